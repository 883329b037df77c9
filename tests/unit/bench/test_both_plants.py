"""The bench runs both plants: what the second one prints last becomes a part of the bench's own last line."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from bench.tuner import __main__ as bench

WHOLE = {
    "regret_percent": {"mean": 1.0, "max": 2.0, "perturbed_mean": 1.0},
    "unsafe_windows_percent": 0.0,
    "wrong_removals": 0,
    "worlds": None,
}


def worlds(mean: float, unsafe: float) -> dict[str, Any]:
    return {"seed": 1, "laws": {"plug-in": {"mean": mean, "unsafe_percent": unsafe}}}


@pytest.mark.parametrize(
    ("arguments", "count"),
    [([], 200), (["--short"], 8), (["--quick"], 0), (["--scenario", "moe"], 0), (["--quick", "--worlds", "3"], 3)],
)
def test_each_form_says_how_many_worlds_it_draws(arguments: list[str], count: int) -> None:
    assert bench.options(arguments).worlds == count


def test_the_last_line_of_the_second_plant_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, 'a page\nof text\n{"seed": 7}\n')

    monkeypatch.setattr(subprocess, "run", run)
    assert bench.random_worlds(bench.options(["--short"])) == {"seed": 7}
    assert bench.random_worlds(bench.options([])) == {"seed": 7}
    short, full = asked
    assert short[short.index("--seed") + 1] == "1", "chance must not fail a build"
    assert "--seed" not in full, "worlds that nobody has seen"


def test_a_short_run_fails_where_the_tuner_is_broken_on_either_plant() -> None:
    assert bench.worse(WHOLE) == 0
    assert bench.worse({**WHOLE, "worlds": worlds(2.0, 0.5)}) == 0
    assert bench.worse({**WHOLE, "worlds": worlds(9.0, 0.5)}) == 1
    assert bench.worse({**WHOLE, "worlds": worlds(2.0, 16.0)}) == 1
    assert bench.worse({**WHOLE, "wrong_removals": 1}) == 1
