"""Which pair of verifier and speculator pods may be made of."""
