"""`make bench-scale`: a fleet of objects with pods on a real API server, and what the operator takes for it.

`bed` is what it is measured on, `phases` and `soak` are what is done, `goals` judges the figures.
"""
