"""An emulation of vLLM 0.32: its command line, its HTTP API and its metrics, with steps timed by `physics`.

No model runs here. The development cluster, the demo and the tests start it (`vllm-emulator serve MODEL ...`) wherever
a real engine would need an accelerator. docs/laboratory.md says what it emulates and what it does not.
"""

from __future__ import annotations

import csv
from importlib import resources

VLLM_VERSION = "0.32.0"
"""The release whose command line, API and metrics are emulated."""


def notice(engine: str) -> str:
    """What every emulator says of itself."""
    return f"emulation of {engine}: no model runs, texts are made up, steps are timed by a cost model"


NOTICE = notice(f"vLLM {VLLM_VERSION}")


def rows(name: str) -> list[dict[str, str]]:
    """Rows of data/<name>: what is on record of the engines."""
    path = resources.files("speculative_lab.emulator").joinpath("data", name)
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
