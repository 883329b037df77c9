"""The demonstration: one model under a climbing and falling load, tuned by the operator, beside the same model untuned.

`make demo` runs it; nothing of it is part of the product.
"""
