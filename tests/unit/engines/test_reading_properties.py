"""Whatever arrives, the reader neither raises nor invents."""

from __future__ import annotations

import random
from dataclasses import fields

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engines.exposition import scrapes
from tests.unit.engines.test_reading import BUSY, ZERO

from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.engines.vllm.reading import METRIC_NAMES, read

NOW = 1_700_000_000.0
PODS = ["a", "b"]

number = st.floats(allow_nan=True, allow_infinity=True) | st.integers(0, 10**6).map(float)
any_time = st.floats(allow_nan=True, allow_infinity=True) | st.floats(NOW - 70, NOW + 5)
any_series = st.builds(
    Series,
    name=st.sampled_from([*METRIC_NAMES, "other"]),
    labels=st.dictionaries(
        st.sampled_from(["pod", "engine", "position", "source", "job", "kv_cache_size_tokens", "block_size"]),
        st.sampled_from(["a", "b", "0", "1", "2", "local_compute", "²", ""]),
    ),
    samples=st.lists(st.tuples(any_time, number), max_size=5).map(tuple),
)


@given(
    st.lists(any_series, max_size=25),
    st.dictionaries(st.sampled_from(PODS), st.floats(allow_nan=True, allow_infinity=True)),
)
@settings(max_examples=300, deadline=None)
def test_chaos_raises_nothing(series: list[Series], since: dict[str, float]) -> None:
    seen = read(series, PODS, since, NOW, 60.0)
    assert set(seen) == set(PODS)
    for value in seen.values():
        assert isinstance(value, Gap) or _sane(value)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[float, dict[str, float]]]:
    """Scrapes of a pod whose counters only grow, not always consistently; sometimes one value is spoilt."""
    times = sorted(draw(st.sets(st.integers(-60, 0), min_size=1, max_size=6)))
    totals = dict(ZERO)
    points = []
    for time in times:
        grown = draw(st.floats(0, 3))
        totals = {name: totals[name] + BUSY[name] * grown for name in totals} | {"vllm:kv_cache_usage_perc": 0.5}
        points.append((NOW + time, totals))
    if draw(st.booleans()):
        victim = draw(st.integers(0, len(points) - 1))
        name = draw(st.sampled_from(sorted(BUSY)))
        points[victim] = (points[victim][0], points[victim][1] | {name: draw(number)})
    return points


@given(histories())
@settings(deadline=None)
def test_figures_are_never_negative(points: list[tuple[float, dict[str, float]]]) -> None:
    seen = read(scrapes(points, pod="a"), ["a"], {}, NOW, 60.0)["a"]
    assert isinstance(seen, Gap) or _sane(seen)


@given(histories(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_order_does_not_matter(points: list[tuple[float, dict[str, float]]], shuffler: random.Random) -> None:
    series = scrapes(points, pod="a")
    shuffled = []
    for track in series:
        samples = list(track.samples)
        shuffler.shuffle(samples)
        shuffled.append(Series(track.name, track.labels, tuple(samples)))
    shuffler.shuffle(shuffled)
    one, two = (read(each, ["a"], {}, NOW, 60.0)["a"] for each in (series, shuffled))
    assert type(one) is type(two)
    if isinstance(one, PodWindow):
        assert one == two


def _sane(window: PodWindow) -> bool:
    numbers = [getattr(window, field.name) for field in fields(window)]
    flat = [value for value in numbers if isinstance(value, float)] + list(window.accepted_per_position)
    return window.end > window.start and all(0 <= value < 2.0**60 for value in flat)
