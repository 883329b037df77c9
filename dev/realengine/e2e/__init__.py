"""`make e2e-vllm`: the operator and the real engine together, held to what the engine counts.

`__main__` sets up and sums up outside the cluster's network; `play` runs inside it and does the work.
"""
