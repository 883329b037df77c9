"""Desired against actual: which actions bring a deployment closer to its spec, what status and events say of it.

Pure. `tick.tick` puts tuner, engines and render together; the shell calls it and carries out what it returns.
"""
