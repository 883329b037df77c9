"""Laboratory of the operator: emulated engines, a simulated deployment with rivals, and published measurements.

Nothing of it runs in the operator's process. It imports `speculative_operator`, never the other way round;
docs/decisions/0015-judges.md says why it is a package of its own.
"""
