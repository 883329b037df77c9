"""Finds the traces that scenarios replay: the whole ones beside the checkout, else the slice that the demo has."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from speculative_operator.sim.traces import Trace, read

ROOT = Path(__file__).resolve().parents[3]
PLACES = (ROOT.parent / "shared" / "traces", ROOT / "dev" / "demo" / "data")


@cache
def find(name: str) -> Trace | None:
    """The Azure trace called `name`; None when no file of it is at hand."""
    for place in PLACES:
        for path in (place / f"{name}.csv", place / f"{name}_slice.csv"):
            if path.is_file():
                with path.open(newline="", encoding="utf-8") as lines:
                    return read(lines, "azure")
    return None
