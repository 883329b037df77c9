"""The measured tables of docs/tuning.md are filled between their marks and never empty; the gate of CI can fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.tuner.__main__ import faults
from generate import measured

PAGE = "a\n<!-- rivals -->\nold\n<!-- /rivals -->\nb\n<!-- ablations --><!-- /ablations -->\n"
FIGURES = {"lost": 2.13, "median": 0.9, "p95": 9.1, "worst": 31.0, "unsafe_percent": 3.2, "unsafe_worst": 9.0}


def test_a_table_is_filled_between_its_marks_and_nowhere_else() -> None:
    filled = measured.filled(PAGE, "rivals", ["| 1 |"])
    assert filled.startswith("a\n<!-- rivals -->\n\n| 1 |\n\n<!-- /rivals -->\nb\n")
    with pytest.raises(ValueError, match="no place for the table targets"):
        measured.filled(PAGE, "targets", ["| 1 |"])


def test_the_best_law_comes_first() -> None:
    laws = {"smartspec": FIGURES, "plug-in": {**FIGURES, "lost": 1.0}}
    *_, first, second = measured.rivals({"worlds": 3, "minutes": 20.0, "seed": 7, "laws": laws})
    assert first == "| this operator | 1.0 | 0.9 | 9 | 31 | 3.2 |"
    assert second.startswith("| SmartSpec | 2.1 |")


@pytest.mark.parametrize("missing", [True, False])
def test_an_empty_table_is_refused(missing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "KEPT", tmp_path)
    if not missing:
        (tmp_path / "tuner.json").write_text('{"worlds": 0, "minutes": 20, "seed": 7, "laws": {}}')
    with pytest.raises(ValueError, match="is missing" if missing else "without rows"):
        measured.tuning(PAGE)


@pytest.mark.parametrize(
    ("worse", "broken"), [({}, 0), ({"regret": 9.0}, 1), ({"unsafe": [50.0]}, 2), ({"unsafe": [1.0]}, 0)]
)
def test_the_gate_fails_where_the_tuner_is_broken(worse: dict[str, Any], broken: int) -> None:
    law = {"regret": 1.0, "unsafe": [], "cost": 0, "rest_cost": 0, "writes": 1, "changes": 1, "decide_ms": 1, **worse}
    rows = [{"laws": {"plug-in": law, "smartspec": {**law, "regret": 99.0}}}]
    assert len(faults(rows, ("plug-in", "smartspec"))) == broken
    assert faults(rows, ("smartspec",)) == []
