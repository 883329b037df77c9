"""Harm: a K that was to be tried for seconds stays in force for as long as operator or Prometheus are away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.payload.speculative_table import BadTableError, TableFile, parse

ALLOWED = (0, 1, 3, 7)
BASE = {"version": 8, "rows": [[1, 8, 1]]}


class Pod:
    """A table file and who reads it. Time passes when told to."""

    def __init__(self, folder: Path) -> None:
        self.path, self.now = folder / "table.json", 100.0
        self.start()

    def start(self) -> None:
        """The engine's process starts (again)."""
        self.reader = TableFile(str(self.path), ALLOWED, 8, lambda: self.now)

    def write(self, content: Any) -> None:
        new = self.path.with_name("new")
        new.write_text(content if isinstance(content, str) else json.dumps(content))
        new.rename(self.path)

    def after(self, seconds: float) -> tuple[int, int]:
        """Version in force then, and K at one request."""
        self.now += seconds
        self.reader.poll()
        assert self.reader.table is not None
        return self.reader.table.version, self.reader.table.dense[1]


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def on_trial(version: int = 9, seconds: float = 15, k: int = 7, base: Any = None) -> dict[str, Any]:
    return {"version": version, "rows": [[1, 8, k]], "trial": {"seconds": seconds, **(base or BASE)}}


def test_a_trial_never_outlasts_its_seconds_when_nobody_writes_any_more(pod: Pod) -> None:
    pod.write(BASE)
    assert pod.after(1) == (8, 1)
    pod.write(on_trial())
    assert pod.after(1) == (9, 7)
    assert pod.after(14.9) == (9, 7)
    assert pod.after(0.2) == (8, 1)
    assert pod.after(6 * 3600) == (8, 1)


def test_an_engine_that_starts_within_a_trial_never_runs_it(pod: Pod) -> None:
    pod.write(on_trial())
    assert pod.after(1) == (8, 1)
    assert pod.after(60) == (8, 1), "nor does the same file start one later"


@pytest.mark.parametrize("then", ["{", '{"version": 10, "rows": [[1, 8, 2]]}', None], ids=["half", "bad", "gone"])
def test_a_file_that_breaks_within_a_trial_never_prolongs_it(pod: Pod, then: str | None) -> None:
    pod.write(BASE)
    pod.after(1)
    pod.write(on_trial())
    pod.after(1)
    pod.path.unlink() if then is None else pod.write(then)
    assert pod.after(5) == (9, 7)
    assert pod.after(10) == (8, 1)


def test_the_same_file_delivered_again_never_starts_the_trial_again(pod: Pod) -> None:
    pod.write(BASE)
    pod.after(1)
    pod.write(on_trial())
    pod.after(1)
    pod.write(on_trial())
    assert pod.after(14) == (9, 7)
    assert pod.after(2) == (8, 1)
    pod.write(on_trial())
    assert pod.after(1) == (8, 1)


def test_what_is_written_within_a_trial_is_not_undone_by_its_end(pod: Pod) -> None:
    pod.write(BASE)
    pod.after(1)
    pod.write(on_trial())
    pod.after(1)
    pod.write({"version": 10, "rows": [[1, 8, 3]]})
    assert pod.after(1) == (10, 3)
    assert pod.after(3600) == (10, 3)


def test_the_second_k_of_a_trial_returns_to_the_same_base(pod: Pod) -> None:
    pod.write(BASE)
    pod.after(1)
    pod.write(on_trial())
    pod.after(1)
    pod.write(on_trial(version=10, k=3))
    assert pod.after(14) == (10, 3)
    assert pod.after(16) == (8, 1)


@pytest.mark.parametrize(
    "trial",
    [
        None, 15, [], {}, {"seconds": 15}, {"seconds": 0, **BASE}, {"seconds": -1, **BASE}, {"seconds": True, **BASE},
        {"seconds": "15", **BASE}, {"seconds": 1e9, **BASE}, {"seconds": float("nan"), **BASE},
        {"seconds": 15, "version": 9, "rows": [[1, 8, 1]]}, {"seconds": 15, "version": 8, "rows": []},
        {"seconds": 15, "version": 8, "rows": [[1, 8, 2]]}, {"seconds": 15, "until": 5, **BASE},
    ],
    ids=repr,
)  # fmt: skip
def test_a_trial_without_a_way_back_never_begins(trial: Any) -> None:
    with pytest.raises(BadTableError):
        parse(json.dumps({"version": 9, "rows": [[1, 8, 7]], "trial": trial}), ALLOWED, 8)


@given(
    seconds=st.floats(0.2, 3600.0),
    waits=st.lists(st.floats(0.0, 600.0), max_size=8),
)
def test_no_walk_of_time_leaves_a_trial_in_force_beyond_its_end(
    tmp_path_factory: pytest.TempPathFactory, seconds: float, waits: list[float]
) -> None:
    pod = Pod(tmp_path_factory.mktemp("pod"))
    pod.write(BASE)
    pod.after(1)
    pod.write(on_trial(seconds=seconds))
    pod.after(1)
    passed = 0.0
    for wait in waits:
        passed += wait
        version, _ = pod.after(wait)
        assert version == 8 or passed < seconds + 0.2
