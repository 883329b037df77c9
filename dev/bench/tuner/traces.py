"""Finds the traces that scenarios replay: the whole ones beside the checkout, else the slice that the demo has."""

from __future__ import annotations

import csv
from datetime import datetime
from functools import cache
from pathlib import Path

from speculative_operator.sim.scenarios import Trace

ROOT = Path(__file__).resolve().parents[3]
PLACES = (ROOT.parent / "shared" / "traces", ROOT / "dev" / "demo" / "data")


@cache
def find(name: str) -> Trace | None:
    """The trace called `name`, its first request at 0 s; None when no file of it is at hand."""
    for place in PLACES:
        for path in (place / f"{name}.csv", place / f"{name}_slice.csv"):
            if path.is_file():
                return _read(path)
    return None


def _read(path: Path) -> Trace:
    """An Azure 2023 file: TIMESTAMP with 100 ns digits, ContextTokens, GeneratedTokens."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows]
    return (
        [time - times[0] for time in times],
        [int(row["ContextTokens"]) for row in rows],
        [int(row["GeneratedTokens"]) for row in rows],
    )
