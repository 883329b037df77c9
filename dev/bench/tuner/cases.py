"""The published measurements against the step-time model, for the bench's `cases` entry."""

from __future__ import annotations

import csv
from importlib import import_module
from typing import Any

from bench.tuner.traces import ROOT

CASES = ROOT.parent / "shared" / "data" / "cases.csv"


def case_figures() -> dict[str, Any] | None:
    """What `physics.cases.bench_summary` makes of the file of cases; None where it is not at hand."""
    if not CASES.is_file():
        return None
    try:
        module = import_module("speculative_operator.physics.cases")
    except ModuleNotFoundError:
        return None
    with CASES.open(newline="", encoding="utf-8") as file:
        found: dict[str, Any] = module.bench_summary(list(csv.DictReader(file)))
    return found
