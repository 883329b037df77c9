"""A second plant and random worlds: judges the tuner without sharing an assumption with it. `python -m worlds` runs it.

Nothing here is made from tuner/, physics/ or sim/: how a step is timed, how prompts wait, how texts accept drafts and
how requests come were written apart from them, so that what the law assumes is not true here by construction.
"""
