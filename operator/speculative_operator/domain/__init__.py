"""Frozen values that all other packages exchange. Standard library only; imports nothing of this project."""
