"""Published measurements of speculative decoding, held against the product's model of step times. Pure.

Called by `speculative cases` and dev/figures; docs/tuning-mathematics.md shows the errors and where they come from.
"""
