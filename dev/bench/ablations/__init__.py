"""`make bench-ablations`: the tuner's law with one mechanism switched off at a time, and what that costs."""
