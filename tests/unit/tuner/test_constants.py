"""docs/tuning-mathematics.md gives constants with the reasons of their values: the values are those of the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[3] / "docs" / "tuning-mathematics.md"
ROW = re.compile(r"^\| ((?:`\w+\.[A-Z_]+`(?:, )?)+) \| ([^|]+) \|", re.MULTILINE)


def value_of(name: str) -> list[float]:
    """Of a constant of the tuner, such as `costs.NOISE`, as a list of numbers."""
    module, _, constant = name.partition(".")
    value = getattr(importlib.import_module(f"speculative_operator.tuner.{module}"), constant)
    several = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
    return [float(one) for one in several]


def test_documented_values_are_those_of_the_code() -> None:
    rows = ROW.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert len(rows) > 20
    for names, values in rows:
        expected = [value for name in re.findall(r"`([^`]+)`", names) for value in value_of(name)]
        assert [float(value) for value in values.split(", ")] == expected, names
