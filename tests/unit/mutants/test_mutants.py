"""What `make mutants` makes of the verdicts that mutmut leaves; and that what it names exists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mutants import __main__ as mutants

KILLED, SURVIVED, UNTESTED = 1, 0, 33


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mutants, "COPY", tmp_path)
    folder = tmp_path / "mutants" / "src" / mutants.PACKAGE / "tuner"
    folder.mkdir(parents=True)
    return folder / "guards.py.meta"


def verdict(told: Path, *codes: int | None) -> dict[str, object]:
    told.write_text(json.dumps({"exit_code_by_key": {f"m{n}": code for n, code in enumerate(codes)}}))
    return mutants.summary(["tuner/guards"])


def test_enough_noticed_is_good(told: Path) -> None:
    found = verdict(told, *[KILLED] * 8, SURVIVED, UNTESTED)
    assert found["ok"] is True
    assert found["modules"] == {"tuner/guards": {"made": 10, "noticed": 0.8, "unnoticed": ["m8", "m9"]}}


def test_too_few_noticed_is_not(told: Path) -> None:
    assert verdict(told, *[KILLED] * 5, *[SURVIVED] * 5)["ok"] is False


def test_a_run_that_was_cut_short_is_not(told: Path) -> None:
    assert verdict(told, *[KILLED] * 9, None)["ok"] is False


def test_no_change_at_all_is_not(told: Path) -> None:
    """A module that was moved has none."""
    assert verdict(told)["ok"] is False


def test_modules_and_tests_exist() -> None:
    for module, tests in mutants.MODULES.items():
        assert (mutants.ROOT / "operator" / mutants.PACKAGE / f"{module}.py").is_file()
        assert [path for path in tests if not (mutants.ROOT / path).exists()] == []
