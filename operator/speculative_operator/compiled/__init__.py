"""Compiled code of engines, kept between pods. Runs beside the engine in serving pods, never in the operator.

Python's own library and nothing else: what waits beside an engine for weeks must be small.
"""
