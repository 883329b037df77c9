"""The counters of tried blocks -> comparisons of a window: exact, or none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engines.test_reading_telemetry import END, START, WINDOW, Change, last, relabel

from speculative_operator.domain.observation import BlockTotals, Comparison, Series
from speculative_operator.engines.vllm.pieces import TRIED_LABELS, TRIED_NAMES
from speculative_operator.engines.vllm.telemetry import extend

SCRAPED = (START - 4, START + 10, END - 4)
TOLD = replace(WINDOW, live=True, engine_version="0.32.0")
THREE = ("3", "4", "5", "6")
ONE = Comparison(
    k=3, against=4, first=5, last=6, blocks=2,
    trial=BlockTotals(32, 0.5, 176, 2.75, tokens=440, decode_steps=30, decode_seconds=0.375),
    beside=BlockTotals(64, 1.25, 352, 6.875, tokens=900, decode_steps=8, decode_seconds=0.25),
    seconds_square=0.03125, tokens_square=0.015625,
)  # fmt: skip


def totals(one: Comparison = ONE, times: float = 1.0, key: tuple[str, ...] = THREE) -> Iterator[Series]:
    """Every series of one label set with one value: `times` that of `one`; samples are added by `grow`."""
    labels = dict(zip(TRIED_LABELS, key, strict=True))
    for name in ("blocks", "seconds_square", "tokens_square"):
        yield series(name, labels, times * getattr(one, name))
    for side in ("tried", "beside"):
        sums = one.trial if side == "tried" else one.beside
        for name in ("steps", "requests", "request_seconds", "tokens", "decode_steps"):
            yield series(name, {**labels, "side": side}, times * getattr(sums, name))
        yield series("step_seconds", {**labels, "side": side}, times * sums.seconds)
        yield series("decode_step_seconds", {**labels, "side": side}, times * sums.decode_seconds)


def series(name: str, labels: Mapping[str, str], value: float, time: float = END) -> Series:
    return Series(f"speculative_payload_tried_{name}_total", {"pod": "qwen-0", **labels}, ((time, value),))


def payload_info(times: tuple[float, ...] = SCRAPED) -> Series:
    labels = {"pod": "qwen-0", "live": "true", "engine_version": "0.32.0"}
    return Series("speculative_payload_info", labels, tuple((time, 1.0) for time in times))


def grow(*values: float | None, one: Comparison = ONE, key: tuple[str, ...] = THREE) -> list[Series]:
    """Series that stand at these multiples of `one` at SCRAPED; None: not exported then."""
    points = [(time, value) for time, value in zip(SCRAPED, values, strict=True) if value is not None]
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    tracks: dict[tuple[str, str], Series] = {}
    for time, value in points:
        for track in totals(one, value, key):
            place = (track.name, track.labels.get("side", ""))
            tracks[place] = track
            found.setdefault(place, []).append((time, track.samples[0][1]))
    return [Series(track.name, track.labels, tuple(found[place])) for place, track in tracks.items()]


def compared(*tracks: Series) -> tuple[Comparison, ...]:
    seen = extend(WINDOW, [payload_info(), *tracks], 60)
    assert seen == replace(TOLD, comparisons=seen.comparisons)
    return seen.comparisons


def test_differences_between_two_scrapes_are_exact() -> None:
    assert compared(*grow(4.0, 4.5, 5.0)) == (ONE,)
    assert set(TRIED_NAMES) == {track.name for track in grow(0, 0, 0)}


def test_what_appears_within_the_window_counts_from_nothing() -> None:
    assert compared(*grow(None, 0.5, 1.0)) == (ONE,)


def test_what_did_not_grow_is_no_comparison() -> None:
    assert compared(*grow(3.0, 3.0, 3.0)) == ()


def test_label_sets_stay_apart_and_those_of_an_old_table_go_alone() -> None:
    other = replace(ONE, k=5, blocks=7)
    five = ("5", "4", "5", "6")
    gone = ("3", "2", "5", "6")
    seen = compared(*grow(1, 1, 2), *grow(None, 0, 1, one=other, key=five), *grow(8, 8.5, None, key=gone))
    assert seen == (ONE, other)


def test_pieces_of_joining_windows_join() -> None:
    """Scrapes of the payload lie elsewhere than the window's ends: what was not counted in one counts in the next."""
    tracks = [payload_info(), *grow(1.0, 1.25, 2.0)]
    middle = START + 20
    parts = [replace(WINDOW, end=middle), replace(WINDOW, start=middle)]
    found = [extend(part, tracks, 60).comparisons for part in parts]
    assert [one.trial.steps for (one,) in found] == [8, 24]


def test_without_a_second_scrape_nothing_is_compared() -> None:
    assert extend(WINDOW, [payload_info((END - 4,)), *grow(None, None, 9)], 60) == TOLD


def test_of_two_scrape_jobs_one_is_listened_to() -> None:
    tracks = [payload_info(), *grow(4, 4.5, 5)]
    twice = [Series(t.name, {**t.labels, "job": job}, t.samples) for job in ("a", "b") for t in tracks]
    assert extend(WINDOW, twice, 60).comparisons == (ONE,)


def test_cells_do_not_depend_on_comparisons_nor_these_on_cells() -> None:
    names = ("steps", "step_seconds", "requests", "tokens", "prefill_tokens")
    cell = [
        Series(f"speculative_payload_{name}_total", {"pod": "qwen-0", "k": "3", "batch": "4"},
               tuple((time, count * value) for count, time in enumerate(SCRAPED)))
        for name, value in zip(names, (10.0, 0.5, 30.0, 60.0, 0.0), strict=True)
    ]  # fmt: skip
    broken = [track for track in cell if "tokens" not in track.name]
    seen = extend(WINDOW, [payload_info(), *cell, *grow(1, 2, 1)], 60)
    assert ([one.steps for one in seen.cells], seen.comparisons) == ([20.0], ())
    seen = extend(WINDOW, [payload_info(), *broken, *grow(1, 1, 2)], 60)
    assert (seen.cells, seen.comparisons) == ((), (ONE,))


def only(name: str, change: Change, side: str = "") -> Change:
    wanted = f"tried_{name}_total"
    return lambda t: change(t) if t.name.endswith(wanted) and t.labels.get("side", "") == side else t


WRONG: dict[str, Change] = {
    "a counter fell": only("blocks", last(1.0)),
    "no number": only("tokens", last(math.nan), "tried"),
    "infinite": only("seconds_square", last(math.inf)),
    "negative": only("requests", last(-1.0), "beside"),
    "too large to count": only("request_seconds", last(2.0**53), "beside"),
    "a series missing": only("tokens_square", lambda _: None),
    "one side missing": lambda t: None if t.labels.get("side") == "beside" else t,
    "no side": lambda t: Series(t.name, {k: v for k, v in t.labels.items() if k != "side"}, t.samples),
    "a side that is none": only("steps", relabel(side="before"), "tried"),
    "no K": relabel(k="many"),
    "a K that nobody drafts": relabel(against="129"),
    "no load": relabel(first=""),
    "the first scrape by half": only("tokens", lambda t: Series(t.name, t.labels, t.samples[1:]), "tried"),
    "the first scrape without a side": lambda t: (
        Series(t.name, t.labels, t.samples[1:]) if t.labels.get("side") == "beside" else t
    ),
    "the last scrape by half": only("steps", lambda t: Series(t.name, t.labels, t.samples[:-1]), "tried"),
    "one label set for two": relabel(side="tried"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_compares_nothing_and_leaves_the_window(name: str) -> None:
    good = grow(4.0, 4.5, 5.0)
    assert compared(*good)
    assert compared(*filter(None, map(WRONG[name], good))) == ()


_value = st.floats() | st.integers(0, 50).map(float)
_label = st.sampled_from(["3", "4", "", "x", "99999"])
_labels = st.fixed_dictionaries(
    {"pod": st.just("qwen-0"), "k": _label, "against": _label},
    optional={"first": _label, "last": _label, "side": st.sampled_from(["tried", "beside", ""])},
)
_samples = st.lists(st.tuples(st.sampled_from([*SCRAPED, math.inf]), _value), max_size=4).map(tuple)


@settings(deadline=None)
@given(st.lists(st.builds(Series, st.sampled_from(TRIED_NAMES), _labels, _samples), max_size=20))
def test_no_series_whatever_raise_or_change_anything_else(tracks: list[Series]) -> None:
    for one in compared(*tracks):
        assert all(0 <= figure < 2.0**53 for figure in (one.blocks, one.seconds_square, one.trial.steps))
