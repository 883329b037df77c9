"""The face of SGLang 0.5.23: `python -m sglang.launch_server`, its API, its metrics and its adaptive mode."""

from __future__ import annotations

VERSION = "0.5.23"
ENGINE = f"SGLang {VERSION}"
