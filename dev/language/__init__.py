"""Draws docstrings, messages and names of functions by a seed, for somebody to read: `python -m language --seed 7`."""
