"""Which table is active, and what the tuner decides about it."""
