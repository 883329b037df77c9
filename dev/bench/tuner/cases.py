"""The published measurements against the step-time model, for the bench's `cases` entry."""

from __future__ import annotations

import csv
from typing import Any

from bench.tuner.traces import ROOT
from speculative_operator.physics.cases import bench_summary

CASES = ROOT.parent / "shared" / "data" / "cases.csv"


def case_figures() -> dict[str, Any] | None:
    """What the file of published cases gives; None where it is not at hand."""
    if not CASES.is_file():
        return None
    with CASES.open(newline="", encoding="utf-8") as file:
        return bench_summary(csv.DictReader(file))
