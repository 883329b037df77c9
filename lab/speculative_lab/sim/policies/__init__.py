"""Controllers of K to compare the tuner with: each rival by its own published law, and the tuner itself."""
