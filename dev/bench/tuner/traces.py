"""Reads the traces that scenarios replay. Called by the bench's `work` and `ablations`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from speculative_lab.sim.traces import Trace, read

ROOT = Path(__file__).resolve().parents[3]
TRACES = ROOT / "dev" / "data" / "traces"


@cache
def read_trace(name: str) -> Trace:
    """The Azure trace called `name`."""
    with (TRACES / f"{name}.csv").open(newline="", encoding="utf-8") as lines:
        return read(lines, "azure")
