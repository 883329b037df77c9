"""Comparisons of a pair, one topic a module: each has `findings(pair)`, a generator in the order of the files."""
