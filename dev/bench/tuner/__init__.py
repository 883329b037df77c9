"""`make bench-tuner`: the tuner and its rivals in the simulator, and what came of it as one JSON line."""
