"""Whether one object serves better than another at equal load. Called by `speculative compare` and by reconcile."""
