"""`make chaos`: faults done to the operator and to what it depends on while clients are served, and a judge of each.

`faults` do and undo them, `judge` finds harm and knows no fault, `ground` is what all of it happens on.
"""
