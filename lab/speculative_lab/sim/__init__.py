"""Discrete-event simulator of a serving deployment: it judges the tuner and its rivals. Pure; numba comes on first use.

`Deployment` and the kernel under it need the extra `speculative-lab[sim]`; nothing here imports it before one is
made.
"""
