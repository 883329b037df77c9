"""docs/tuning-mathematics.md gives every constant of the tuner with its reason: no other value, and none left out."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

from speculative_operator import tuner

DOCUMENT = Path(__file__).parents[3] / "docs" / "tuning-mathematics.md"
ELSEWHERE = {"prior.GENERIC", "prior.TERMS", "outlook.INFEASIBLE", "persistence.FORMAT", "targets.NAMES"}
"""A whole cost set, names, a mark, a version."""
ROW = re.compile(r"^\| ((?:`\w+\.[A-Z_]+`(?:, )?)+) \| ([^|]+) \|", re.MULTILINE)


def flat(value: object) -> list[float]:
    if isinstance(value, dict):
        return [float(one) for one in value.values()]
    return [float(one) for one in value] if isinstance(value, tuple) else [float(str(value))]


def constants() -> dict[str, list[float]]:
    found = {}
    for module in pkgutil.iter_modules(tuner.__path__):
        held = vars(importlib.import_module(f"speculative_operator.tuner.{module.name}"))
        source = Path(str(held["__file__"])).read_text(encoding="utf-8")
        for name in re.findall(r"^([A-Z][A-Z_, ]*)(?:: [^=\n]+)? = ", source, re.MULTILINE):
            for one in name.split(", "):
                if f"{module.name}.{one}" not in ELSEWHERE and isinstance(held[one], float | int | tuple | dict):
                    found[f"{module.name}.{one}"] = flat(held[one])
    return found


def documented() -> dict[str, str]:
    """Row -> values, as written."""
    return dict(ROW.findall(DOCUMENT.read_text(encoding="utf-8")))


def test_documented_values_are_those_of_the_code() -> None:
    known, wrong = constants(), {}
    for names, values in documented().items():
        expected = [value for name in names.replace("`", "").split(", ") for value in known[name]]
        if [float(value) for value in values.split(", ")] != expected:
            wrong[names] = expected
    assert wrong == {}


def test_every_constant_is_documented() -> None:
    listed = {name for names in documented() for name in names.replace("`", "").split(", ")}
    assert set(constants()) - listed == set()
