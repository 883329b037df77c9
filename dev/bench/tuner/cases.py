"""The published measurements against the step-time model, for the bench's `cases` entry."""

from __future__ import annotations

import csv
from typing import Any

from bench.tuner.traces import ROOT
from speculative_lab.cases.prediction import bench_summary

CASES = ROOT / "dev" / "data" / "published" / "cases.csv"


def case_figures() -> dict[str, Any]:
    """What the file of published cases gives."""
    with CASES.open(newline="", encoding="utf-8") as file:
        return bench_summary(csv.DictReader(file))
