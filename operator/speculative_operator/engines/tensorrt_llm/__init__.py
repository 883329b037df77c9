"""The TensorRT-LLM engine, served by trtllm-serve with the PyTorch backend, releases 1.0 to 1.4."""
