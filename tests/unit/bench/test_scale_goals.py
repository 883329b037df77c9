"""How `make bench-scale` judges: ratios of two revisions, trifles and a busy machine aside; and memory left behind."""

from __future__ import annotations

import os

import pytest

from bench.scale.goals import MEASURES, Row, rows
from bench.scale.machine import Moment, memory_mib
from bench.scale.soak import LEFT_KIB, judged

BY_KEY = {measure.key: measure for measure in MEASURES}
QUIET = {measure.phase: 0.0 for measure in MEASURES}


def row(key: str, here: float, there: float | None, foreign: float = 0.0) -> Row:
    return Row(BY_KEY[key], here, there, foreign)


def test_a_ratio_beyond_its_limit_is_worse() -> None:
    assert row("create_p50", 1.30, 1.0).worse
    assert not row("create_p50", 1.20, 1.0).worse


def test_nothing_is_worse_without_another_revision() -> None:
    assert not row("create_p50", 100.0, None).worse


@pytest.mark.parametrize(("here", "worse"), [(0.05, False), (0.29, False), (0.5, True)])
def test_trifles_are_not_compared(here: float, worse: bool) -> None:
    assert row("create_p50", here, 0.01).worse is worse


def test_times_of_a_busy_machine_are_not_judged_but_its_memory_and_writes_are() -> None:
    assert row("create_p50", 9.0, 1.0, foreign=0.6).busy
    assert not row("create_p50", 9.0, 1.0, foreign=0.6).worse
    assert row("rss", 200.0, 100.0, foreign=0.6).worse
    assert row("rest_writes", 100.0, 0.0, foreign=0.6).worse
    assert row("gone_exits", 1.0, 0.0, foreign=0.6).worse


def test_rounds_count_by_their_medians() -> None:
    here = [dict.fromkeys(BY_KEY, value) for value in (1.0, 50.0, 3.0)]
    there = [dict.fromkeys(BY_KEY, 3.0)]
    found = rows(here, there, QUIET)
    assert [one.measure for one in found] == list(MEASURES)
    assert {one.here for one in found} == {3.0}
    assert not any(one.worse for one in found)


def test_foreign_time_is_none_of_ours() -> None:
    began = Moment.now()
    sum(range(5_000_000))
    assert began.foreign()[0] >= 0.0
    assert Moment.now().own > began.own


def test_memory_is_read() -> None:
    assert memory_mib(os.getpid()) > 1.0
    with pytest.raises(ProcessLookupError):
        memory_mib(os.getpid(), "VmNone")


def samples(kib: float, files: float = 0.0) -> list[tuple[int, float, int, int]]:
    """A process that fills its caches with the first objects, and then keeps so much of each."""
    filled = [(n, 90 + min(n, 100) * 0.3 + kib * n / 1024, 30 + int(files * n), 12) for n in range(1, 6001)]
    return filled[::10]


@pytest.mark.parametrize(("kib", "ok"), [(0.0, True), (LEFT_KIB, True), (3 * LEFT_KIB, False), (60.0, False)])
def test_memory_that_grows_with_objects_is_found(kib: float, ok: bool) -> None:
    found = judged(samples(kib))
    assert found["ok"] is ok
    assert found["left"]["kib_per_object"] == pytest.approx(kib, abs=0.5)


@pytest.mark.parametrize(("step", "ok"), [(6.0, True), (30.0, False)])
def test_one_step_of_memory_is_no_growth_if_it_is_small(step: float, ok: bool) -> None:
    found = [(n, rss + step * (n > 400), *rest) for n, rss, *rest in samples(0.0)[:60]]
    assert judged(found)["ok"] is ok  # type: ignore[arg-type]  # the rest are files and threads


def test_files_left_open_are_found() -> None:
    assert not judged(samples(0.0, files=0.05))["ok"]
