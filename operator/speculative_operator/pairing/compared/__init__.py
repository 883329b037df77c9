"""Comparisons of a pair, by topic: generators of findings. Called by `judge`."""
