"""What the adapters of SGLang, TensorRT-LLM and TGI have in common: planning, checks, flags, container, reading."""
