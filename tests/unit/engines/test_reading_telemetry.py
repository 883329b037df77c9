"""What the payload writes is what the reader reads; and whatever is wrong with it, the window stays as it was."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engines.exposition import IDLE, scrapes, speculating
from tests.unit.payload.engine_steps import Clock, Plan, outputs

from speculative_operator.domain.observation import PodWindow, Series, StepCell
from speculative_operator.engines.exposition import parse
from speculative_operator.engines.vllm.reading import METRIC_NAMES, read
from speculative_operator.engines.vllm.telemetry import NAMES, extend
from speculative_operator.payload.speculative_scheduler import State
from speculative_operator.payload.speculative_telemetry import Meter, exposition

NOW = 1_700_000_100.0
START, END = NOW - 35, NOW - 5
WINDOW = PodWindow(
    start=START, end=END, steps=100, decode_request_steps=400, step_seconds=4.0, first_tokens=8,
    generated_tokens=808, prompt_tokens=5000, running=4, waiting=2, drafts=400, draft_tokens=1200,
    accepted_tokens=400, accepted_per_position=(250, 120, 30),
)  # fmt: skip


def state_of(engine_version: str) -> State:
    """What a payload tells at first."""
    state = State()
    state.engine_version, state.proven = engine_version, True
    return state


class Engine:
    """A payload that counts steps and is scraped."""

    def __init__(self, ks: Sequence[int] = (0, 1, 3)) -> None:
        self.clock = Clock()
        self.state: Any = state_of("0.32.0")
        self.state.file, self.state.scheduler, self.state.table = object(), "sync", (7, NOW - 100)
        self.meter = self.state.meter = Meter(ks, varied=False, clock=self.clock)
        self.points: list[tuple[float, str]] = []

    def step(self, accepted: Mapping[str, int], k: int, seconds: float = 0.25, prompt: int = 0) -> None:
        plan = Plan(dict.fromkeys(accepted, k), {"prompt": prompt} if prompt else {})
        self.meter.scheduling()
        self.meter.scheduled(plan)
        self.clock.now += seconds
        self.meter.finished(plan, outputs(accepted, plan), True)

    def scrape(self, time: float) -> None:
        self.points.append((time, exposition(self.state)))

    def series(self, **labels: str) -> list[Series]:
        return as_series(self.points, **labels)


def as_series(points: Sequence[tuple[float, str]], **labels: str) -> list[Series]:
    """Scraped texts as Prometheus gives them back."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]] = {}
    for time, text in points:
        for key, value in parse(text, NAMES).items():
            found.setdefault((key.name, key.labels), []).append((time, value))
    beside = {"pod": "qwen-0", "instance": "10.0.0.7:8001", **labels}
    return [Series(name, {**dict(own), **beside}, tuple(samples)) for (name, own), samples in found.items()]


@pytest.fixture
def engine() -> Engine:
    """Two steps before the window, three in it, one after it."""
    made = Engine()
    made.step({"a": 3, "b": 1}, 3)
    made.step({"a": 0}, 0)
    made.scrape(START - 4)
    made.step({"a": 2, "b": 0}, 3, seconds=0.5)
    made.step({"a": 1, "b": 1}, 3, prompt=40)
    made.step({"a": 1, "b": 0, "c": 0}, 1)
    made.scrape(END - 4)
    made.step({"a": 3}, 3)
    made.scrape(END + 1)
    return made


def test_cells_and_positions_between_the_scrapes_that_bound_the_window(engine: Engine) -> None:
    seen = extend(WINDOW, engine.series(), 60)
    assert seen == replace(
        WINDOW,
        cells=(
            StepCell(k=1, batch=3.0, steps=1, seconds=0.25, tokens=4),
            StepCell(k=3, batch=2.0, steps=1, seconds=0.5, tokens=4),
            StepCell(k=3, batch=3.0, steps=1, seconds=0.25, tokens=4, prefill_tokens=40),
        ),
        drafted_per_position=(7, 4, 4),
        accepted_per_position=(4, 1, 0),
        table_version=7,
        live=True,
        engine_version="0.32.0",
    )


def test_pieces_of_joining_windows_join(engine: Engine) -> None:
    """Nothing is counted twice, nothing is lost, although the targets are scraped at different instants."""
    middle = START + 20
    engine.points.insert(1, (middle - 3, engine.points[0][1]))
    parts = [replace(WINDOW, end=middle), replace(WINDOW, start=middle)]
    steps = [sum(cell.steps for cell in extend(part, engine.series(), 60).cells) for part in parts]
    assert steps == [0, 3]


def test_without_a_scrape_before_the_window_it_begins_at_the_first_one(engine: Engine) -> None:
    del engine.points[0]
    engine.points[0:0] = [(START + 10, engine.points[0][1])]
    assert extend(WINDOW, engine.series(), 60).cells == ()


def test_one_scrape_acknowledges_and_counts_nothing(engine: Engine) -> None:
    del engine.points[:2]
    seen = extend(WINDOW, engine.series(), 60)
    assert seen == replace(WINDOW, table_version=7, live=True, engine_version="0.32.0")


def test_the_newest_acknowledgement_wins(engine: Engine) -> None:
    engine.state.table = (8, NOW)
    engine.scrape(END + 2)
    assert extend(WINDOW, engine.series(), 60).table_version == 8


def test_an_engine_without_a_table_acknowledges_none(engine: Engine) -> None:
    engine.state.table, engine.state.file, engine.state.reason = None, None, "NoSchedule"
    engine.points.clear()
    engine.scrape(START)
    engine.step({"a": 1}, 1)
    engine.scrape(END)
    seen = extend(WINDOW, engine.series(), 60)
    assert (seen.table_version, seen.live) == (None, False)
    assert [cell.k for cell in seen.cells] == [1]


def test_an_engine_that_stands_aside_says_only_that() -> None:
    state = state_of("0.34.1")
    state.reason = "EngineVersion"
    seen = extend(WINDOW, as_series([(START, exposition(state)), (END, exposition(state))]), 60)
    assert seen == replace(WINDOW, live=False, engine_version="0.34.1", inert="EngineVersion")


def test_an_engine_that_lacks_a_hook_names_it() -> None:
    state = state_of("0.34.1")
    state.reason = "MissingHook"
    state.ended = (("Hooks", "Scheduler.schedule has other parameters"),)
    seen = extend(WINDOW, as_series([(START, exposition(state)), (END, exposition(state))]), 60)
    assert seen.inert == "MissingHook: Scheduler.schedule has other parameters"
    state.ended = (("Hooks", "x" * 5000),)
    seen = extend(WINDOW, as_series([(START, exposition(state)), (END, exposition(state))]), 60)
    assert len(seen.inert) == 200, "who writes series may write much"


def test_positions_of_an_engine_started_without_a_speculator_stay_unknown(engine: Engine) -> None:
    plain = replace(WINDOW, drafts=None, draft_tokens=None, accepted_tokens=None, accepted_per_position=())
    seen = extend(plain, engine.series(), 60)
    assert (seen.drafted_per_position, seen.accepted_per_position) == ((), ())
    assert seen.cells


def test_positions_are_as_many_as_the_engines_own() -> None:
    made = Engine()
    made.scrape(START)
    made.step({"a": 1}, 1)
    made.scrape(END)
    seen = extend(WINDOW, made.series(), 60)
    assert (seen.drafted_per_position, seen.accepted_per_position) == ((1, 0, 0), (1, 0, 0))


def test_no_drafts_leave_the_engines_positions() -> None:
    made = Engine()
    made.scrape(START)
    made.step({"a": 0}, 0)
    made.scrape(END)
    seen = extend(WINDOW, made.series(), 60)
    assert (seen.drafted_per_position, seen.accepted_per_position) == ((), WINDOW.accepted_per_position)


def test_of_two_scrape_jobs_one_is_listened_to(engine: Engine) -> None:
    twice = [*engine.series(job="a"), *engine.series(job="b")]
    assert extend(WINDOW, twice, 60) == extend(WINDOW, engine.series(), 60)


def test_nothing_is_nothing() -> None:
    assert extend(WINDOW, [], 60) == WINDOW


def test_a_stale_payload_adds_nothing(engine: Engine) -> None:
    late = replace(WINDOW, start=START + 200, end=END + 200)
    assert extend(late, engine.series(), 60) == late


Change = Callable[[Series], Series | None]


def only(name: str, change: Change) -> Change:
    return lambda track: change(track) if track.name.endswith(name) else track


def last(value: float) -> Change:
    return lambda track: Series(track.name, track.labels, (*track.samples[:-1], (track.samples[-1][0], value)))


def relabel(**labels: str) -> Change:
    return lambda track: Series(track.name, {**track.labels, **labels}, track.samples)


WRONG: dict[str, Change] = {
    "fell": only("steps_total", lambda t: Series(t.name, t.labels, tuple((s, 100 - v) for s, v in t.samples))),
    "no number": only("tokens_total", last(math.nan)),
    "infinite": only("step_seconds_total", last(math.inf)),
    "negative": only("requests_total", last(-1)),
    "a figure missing": only("prefill_tokens_total", lambda _: None),
    "more accepted than drafted": only("accepted_tokens_total", last(1e6)),
    "accepted alone": only("drafted_tokens_total", lambda _: None),
    "batch beyond its bucket": only("requests_total", last(1e6)),
    "tokens from nowhere": only("tokens_total", last(1e6)),
    "more time than passed": only("step_seconds_total", last(1e6)),
    "no K": only("_total", relabel(k="many")),
    "huge K": only("_total", relabel(k="99999")),
    "no batch": only("requests_total", relabel(batch="0")),
    "one cell for all": only("_total", relabel(k="3", batch="4", position="0")),
    "ended early": only("steps_total", lambda t: Series(t.name, t.labels, t.samples[:-1])),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_adds_no_figure(engine: Engine, name: str) -> None:
    engine.points.pop()
    changed = [track for track in map(WRONG[name], engine.series()) if track is not None]
    assert extend(WINDOW, changed, 60) == replace(WINDOW, table_version=7, live=True, engine_version="0.32.0")


@pytest.mark.parametrize(("version", "told"), [(3.0, 3), (3.5, None), (-1.0, None), (math.nan, None), (1e300, None)])
def test_only_a_whole_version_acknowledges(engine: Engine, version: float, told: int | None) -> None:
    changed = [only("table_version", last(version))(track) for track in engine.series()]
    assert extend(WINDOW, [track for track in changed if track], 60).table_version == told


def test_an_unknown_word_for_live_makes_the_whole_unknown(engine: Engine) -> None:
    changed = [relabel(live="perhaps")(track) for track in engine.series()]
    assert extend(WINDOW, [track for track in changed if track], 60) == WINDOW


def test_the_reader_keeps_the_two_targets_of_a_pod_apart(engine: Engine) -> None:
    """The payload has more series than vLLM here and is fresher: it must not be taken for the pod's one target."""
    busy = {**IDLE, "vllm:iteration_tokens_total_count": 9.0, "vllm:inter_token_latency_seconds_count": 18.0,
            "vllm:inter_token_latency_seconds_sum": 1.0, "vllm:generation_tokens_total": 30.0,
            **speculating(18, 54, (12, 6, 3))}  # fmt: skip
    own = scrapes([(START, dict.fromkeys(busy, 0.0)), (END, busy)], instance="10.0.0.7:8000")
    alone = read(own, ["qwen-0"], {}, NOW, 60)["qwen-0"]
    both = read([*own, *engine.series()], ["qwen-0"], {}, NOW, 60)["qwen-0"]
    assert isinstance(alone, PodWindow)
    assert isinstance(both, PodWindow)
    assert both == extend(alone, engine.series(), 60)
    assert both.cells
    assert set(NAMES) <= set(METRIC_NAMES)


_value = st.floats() | st.integers(0, 50).map(float)
_time = st.sampled_from([START - 4, START, START + 10, END - 4, END, END + 3, math.inf])
_labels = st.fixed_dictionaries(
    {"pod": st.just("qwen-0")},
    optional={
        "k": st.sampled_from(["0", "3", "x", ""]),
        "batch": st.sampled_from(["1", "4", "+Inf", "-"]),
        "position": st.sampled_from(["0", "1", "7"]),
        "live": st.sampled_from(["true", "false", ""]),
    },
)
_samples = st.lists(st.tuples(_time, _value), max_size=4).map(tuple)


@settings(deadline=None)
@given(st.lists(st.builds(Series, st.sampled_from(NAMES), _labels, _samples), max_size=12))
def test_no_series_whatever_raise_or_change_the_engines_own_figures(tracks: list[Series]) -> None:
    seen = extend(WINDOW, tracks, 60)
    same = replace(
        seen, cells=(), drafted_per_position=(), accepted_per_position=WINDOW.accepted_per_position,
        live=None, table_version=None, engine_version="",
    )  # fmt: skip
    assert same == WINDOW
    for cell in seen.cells:
        assert cell.steps > 0
        assert cell.seconds > 0
        assert cell.batch >= 1
    for drafted, accepted in zip(seen.drafted_per_position, seen.accepted_per_position, strict=False):
        assert 0 <= accepted <= drafted


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.sampled_from((0, 1, 3)), st.integers(0, 30)), max_size=20))
def test_what_is_written_is_what_is_read(steps: list[tuple[int, int, int]]) -> None:
    made = Engine()
    made.scrape(START)
    for batch, k, prompt in steps:
        made.step({str(number): number % (k + 1) for number in range(batch)}, k, 0.001, prompt)
    made.scrape(END)
    cells = extend(WINDOW, made.series(), 60).cells
    assert sum(cell.steps for cell in cells) == len(steps)
    assert sum(cell.seconds for cell in cells) == pytest.approx(len(steps) * 0.001)
    assert sum(cell.tokens for cell in cells) == sum(
        1 + number % (k + 1) for batch, k, _ in steps for number in range(batch)
    )
    assert sum(cell.prefill_tokens for cell in cells) == sum(prompt for *_, prompt in steps)
    assert sum(cell.batch * cell.steps for cell in cells) == pytest.approx(
        sum(batch + bool(prompt) for batch, _, prompt in steps)
    )
