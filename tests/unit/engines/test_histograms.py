"""Buckets of latencies -> what was observed within a window: exact, or unknown, and never a reason for a gap."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engines.exposition import scrapes
from tests.unit.engines.test_reading import BUSY, T0, T1, T2, ZERO, gap, window

from speculative_operator.domain.observation import PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.samples import histogram
from speculative_operator.engines.vllm.reading import READER

INF = math.inf
PLAIN = window(scrapes([(T0, ZERO), (T2, BUSY)]))
TTFT = {"0.1": (10, 14), "0.5": (10, 30), "+Inf": (12, 32)}
"""Bound -> cumulative counts at T0 and T2: 4, 16 and no observation in between."""
SEEN = ((0.1, 4.0), (0.5, 16.0), (INF, 0.0))


def buckets(
    counts: Mapping[str, Sequence[float | None]] = TTFT,
    name: str = READER.buckets.ttft,
    times: Sequence[float] = (T0, T2),
    **labels: str,
) -> list[Series]:
    """A series for each bound, with no sample where a count is None."""
    shared = {"pod": "qwen-0", "engine": "0", **labels}
    return [
        Series(
            name,
            {**shared, "le": bound},
            tuple((time, float(count)) for time, count in zip(times, own, strict=True) if count is not None),
        )
        for bound, own in counts.items()
    ]


def read(*tracks: Series) -> PodWindow:
    """The window with these buckets beside its counters: all else in it is as without."""
    seen = window([*scrapes([(T0, ZERO), (T2, BUSY)]), *tracks])
    assert replace(seen, tpot_histogram=(), ttft_histogram=()) == PLAIN
    return seen


def test_observations_by_bucket_within_the_window() -> None:
    tpot = buckets({"0.01": (0, 7), "+Inf": (0, 9)}, READER.buckets.tpot)
    seen = read(*buckets(), *tpot)
    assert (seen.ttft_histogram, seen.tpot_histogram) == (SEEN, ((0.01, 7.0), (INF, 2.0)))
    assert read().ttft_histogram == ()
    assert read(*tpot).ttft_histogram == ()


def test_windows_that_join_share_no_observation() -> None:
    times = (T0, T1, T2)
    counts = {"0.1": (10, 11, 14), "+Inf": (12, 20, 32)}
    points = [(time, {key: value * place for key, value in BUSY.items()}) for place, time in enumerate(times)]
    tracks = [*scrapes(points), *buckets(counts, times=times)]
    seen = [window(tracks[:], {"qwen-0": T1}).ttft_histogram, window(tracks).ttft_histogram]
    assert seen == [((0.1, 3.0), (INF, 9.0)), ((0.1, 4.0), (INF, 16.0))]


def test_engines_of_a_pod_are_added() -> None:
    both = [*buckets(), *buckets({"0.1": (0, 1), "0.5": (0, 1), "+Inf": (5, 7)}, engine="1")]
    assert read(*both).ttft_histogram == ((0.1, 5.0), (0.5, 16.0), (INF, 1.0))


def test_bounds_are_numbers_however_they_are_written() -> None:
    one = buckets({"0.50": (0, 1), "1": (0, 1), "+Inf": (0, 1)})
    two = buckets({"0.5": (0, 1), "1.0": (0, 2), "Inf": (0, 2)}, engine="1")
    assert read(*one, *two).ttft_histogram == ((0.5, 2.0), (1.0, 1.0), (INF, 0.0))


def test_a_label_set_that_appears_within_the_window_counts_from_nothing() -> None:
    fresh = {"0.1": (None, 3), "0.5": (None, 5), "+Inf": (None, 5)}
    assert read(*buckets(), *buckets(fresh, engine="1")).ttft_histogram == ((0.1, 7.0), (0.5, 18.0), (INF, 0.0))


def test_a_bucket_that_the_engine_does_not_have_makes_the_next_one_wider() -> None:
    assert read(*buckets({"0.5": (10, 30), "+Inf": (12, 32)})).ttft_histogram == ((0.5, 20.0), (INF, 0.0))


def test_of_two_scrape_jobs_the_one_that_is_listened_to_counts() -> None:
    jobs = [
        track
        for job, late in (("a", 0.0), ("b", 3.0))
        for track in (
            *scrapes([(T0 + late, ZERO), (T2 + late, BUSY)], job=job),
            *buckets(times=(T0 + late, T2 + late), job=job),
        )
    ]
    assert window(jobs).ttft_histogram == SEEN
    alone = [track for track in jobs if "bucket" not in track.name or track.labels["job"] == "b"]
    assert window(alone).ttft_histogram == ()


Change = Callable[[list[Series]], list[Series]]


def changed(bound: str, *values: float | None) -> Change:
    return lambda tracks: [*(t for t in tracks if t.labels["le"] != bound), *buckets({bound: values})]


WRONG: dict[str, Change] = {
    "a bucket missing at the end": changed("0.5", 10, None),
    "a bucket missing at the start": changed("+Inf", None, 32),
    "the last bucket missing": lambda tracks: tracks[:-1],
    "a bucket that fell": changed("0.5", 10, 9),
    "no number": changed("0.1", 10, math.nan),
    "no number at first": changed("0.1", math.nan, 14),
    "infinite": changed("+Inf", 10, INF),
    "below nothing": changed("0.1", -1, 14),
    "too large to count": changed("+Inf", 12, 2.0**53),
    "more in a bucket than in a larger one": changed("0.5", 10, 13),
    "twice": lambda tracks: [*tracks, tracks[0]],
    "no bound": lambda tracks: [*tracks, *buckets({"": (0, 0)})],
    "a bound that is no number": lambda tracks: [*tracks, *buckets({"nan": (0, 0)})],
    "a bound below nothing": lambda tracks: [*tracks, *buckets({"-1": (0, 0)})],
    "bounds that differ": lambda tracks: [*tracks, *buckets({"0.2": (0, 1), "+Inf": (0, 1)}, engine="1")],
    "all buckets missing at the end": lambda _: buckets({"0.1": (10, None), "0.5": (10, None), "+Inf": (12, None)}),
    "an engine that ended": lambda tracks: [*tracks, *buckets({"0.1": (1, None), "+Inf": (1, None)}, engine="1")],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_makes_the_histogram_unknown_and_nothing_else(name: str) -> None:
    good = buckets({"0.01": (0, 7), "+Inf": (0, 9)}, READER.buckets.tpot)
    seen = read(*WRONG[name](buckets()), *good)
    assert (seen.ttft_histogram, seen.tpot_histogram) == ((), ((0.01, 7.0), (INF, 2.0)))


def test_a_bucket_that_fell_and_grew_past_its_old_value_is_unknown() -> None:
    tracks = buckets({"0.1": (10, 3, 14), "+Inf": (12, 12, 32)}, times=(T0, T1, T2))
    assert read(*tracks).ttft_histogram == ()


def test_a_pod_of_which_only_buckets_are_seen_is_missing() -> None:
    assert gap(buckets()).reason is Reason.METRICS_MISSING


_count = st.floats() | st.integers(0, 40).map(float)
_samples = st.lists(st.tuples(st.sampled_from([T0 - 30, T0, T1, T2, T2 + 9, math.nan]), _count), max_size=3).map(tuple)
_labels = st.fixed_dictionaries({"le": st.sampled_from(["0.1", "0.5", "+Inf", "", "x"])})


@given(st.lists(st.builds(Series, st.just(READER.buckets.tpot), _labels, _samples), max_size=5))
def test_whatever_is_exported_is_counted_or_unknown(tracks: list[Series]) -> None:
    for bound, count in histogram(tracks, T0, T2):
        assert bound > 0
        assert 0 <= count < 2.0**53


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=4, max_size=4))
def test_counts_come_back(observed: list[tuple[int, int]]) -> None:
    """Observations before and within the window, bucket by bucket, told as running totals."""
    bounds, before, within, tracks = ("0.1", "0.2", "0.4", "+Inf"), 0, 0, {}
    for bound, (earlier, own) in zip(bounds, observed, strict=True):
        before, within = before + earlier, within + own
        tracks[bound] = (before, before + within)
    seen = histogram(buckets(tracks), T0, T2)
    assert seen == tuple((float(bound), float(own)) for bound, (_, own) in zip(bounds, observed, strict=True))
