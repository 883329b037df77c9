"""The tuner, its rivals and the best table in hindsight in random worlds on the laboratory's plant.

`python -m bench.tuner` (`make bench-tuner`) judges, `bench.tuner.ablations` takes out one mechanism after the other.
"""
