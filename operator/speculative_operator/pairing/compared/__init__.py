"""Comparisons of a pair, one topic a module: each has `findings(pair)`, a generator. Called by `judge`."""
