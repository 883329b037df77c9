"""The face of TensorRT-LLM 1.3: `trtllm-serve MODEL --config file.yaml`, its API and its metrics."""

from __future__ import annotations

VERSION = "1.3.0"
