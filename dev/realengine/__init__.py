"""The real vLLM on a CPU: installed once into the cache, run as pods of the development cluster.

`make e2e-vllm` proves with it what the emulator can only imitate. Nothing of it is part of the product.
"""
