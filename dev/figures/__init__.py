"""Figures of the documentation, drawn from the code that they show."""
