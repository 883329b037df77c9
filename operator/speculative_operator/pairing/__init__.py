"""Is this speculator made for this verifier, do both fit, and which pairs are known. Pure: facts in, verdicts out."""
