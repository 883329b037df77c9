"""A kit that measures on an accelerator without any network what speculation gains and costs there.

`__main__` builds it here and makes a page of what it found; `unpack` and `program` run there.
"""
