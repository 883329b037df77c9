"""The face of TensorRT-LLM: `trtllm-serve MODEL --config file.yaml`, its API and its metrics, before and since 1.3."""

from __future__ import annotations

VERSION_VARIABLE = "EMULATOR_ENGINE_VERSION"
"""Which release is emulated: a program does not see its image's tag."""
VERSION = "1.3.0"
