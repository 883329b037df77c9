"""The meter in synchronous and asynchronous order of calls, its text, and a server that nobody can hold up."""

from __future__ import annotations

import math
import socket
import threading
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.payload.engine_steps import Clock, Plan, outputs

from speculative_operator.payload import speculative_port as door
from speculative_operator.payload.speculative_port import serve
from speculative_operator.payload.speculative_scheduler import State
from speculative_operator.payload.speculative_telemetry import Meter, exposition

KS = (0, 1, 3)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def step(meter: Meter, clock: Clock, plan: Plan, given: dict[int, Any], seconds: float, busy: bool = True) -> None:
    """One step in synchronous order."""
    meter.scheduling()
    meter.scheduled(plan)
    clock.now += seconds
    meter.finished(plan, given, busy)


def test_a_step_is_counted_by_k_and_batch(clock: Clock) -> None:
    meter = Meter(KS, varied=False, clock=clock)
    plan = Plan({"a": 3, "b": 3, "c": 0}, {"d": 40, "e": 7})
    step(meter, clock, plan, outputs({"a": 2, "b": 0, "c": 0}, plan, first=["d"]), 0.5)
    assert meter.cells == {(3, 8): (1, 0.5, 5, 6, 47)}
    assert meter.positions == {3: ((2, 2, 2, 0, 0, 0, 0, 0), (1, 1, 0, 0, 0, 0, 0, 0))}


def test_the_time_between_steps_counts_while_there_is_work(clock: Clock) -> None:
    """Drafting of a synchronous engine lies there."""
    meter = Meter(KS, varied=False, clock=clock)
    plan = Plan({"a": 1})
    step(meter, clock, plan, outputs({"a": 0}, plan), 0.1)
    clock.now += 0.05
    step(meter, clock, plan, outputs({"a": 0}, plan), 0.1)
    assert meter.cells[1, 1][1] == pytest.approx(0.25)


@pytest.mark.parametrize("busy", [False, True])
def test_idle_time_is_no_steps(clock: Clock, busy: bool) -> None:
    """Nor is that of an engine which is paused while requests wait."""
    meter = Meter(KS, varied=False, clock=clock)
    plan = Plan({"a": 1})
    step(meter, clock, plan, outputs({"a": 0}, plan), 0.1, busy=busy)
    clock.now += 30
    step(meter, clock, plan, outputs({"a": 0}, plan), 0.1)
    assert meter.cells[1, 1][1] == pytest.approx(0.2)


def test_a_long_step_is_not_taken_for_a_pause(clock: Clock) -> None:
    meter = Meter(KS, varied=False, clock=clock)
    first, second = Plan({"a": 1}), Plan({"a": 1})
    meter.scheduling()
    meter.scheduled(first)
    clock.now += 4
    meter.scheduling()  # asynchronous: the next one while the first is under way
    meter.scheduled(second)
    clock.now += 1
    meter.finished(first, outputs({"a": 1}, first), True)
    assert meter.cells[1, 1][1] == pytest.approx(5.0)


def test_asynchronous_outputs_belong_to_the_step_they_came_from(clock: Clock) -> None:
    """Two steps are under way; batch and K change between them."""
    meter = Meter(KS, varied=False, clock=clock)
    plans = [Plan({"a": 3, "b": 3}), Plan({"a": 1}), Plan({"a": 0, "b": 0, "c": 0})]
    taken = [
        outputs({"a": 3, "b": 0}, plans[0]),
        outputs({"a": 1}, plans[1]),
        outputs(dict.fromkeys("abc", 0), plans[2]),
    ]
    meter.scheduling()
    meter.scheduled(plans[0])
    for number in (1, 2):
        meter.scheduling()
        meter.scheduled(plans[number])
        clock.now += number
        meter.finished(plans[number - 1], taken[number - 1], True)
    clock.now += 4
    meter.finished(plans[2], taken[2], False)
    assert meter.cells == {(3, 2): (1, 1.0, 2, 5, 0), (1, 1): (1, 2.0, 1, 2, 0), (0, 4): (1, 4.0, 3, 3, 0)}


def test_an_output_after_the_last_request_is_no_step(clock: Clock) -> None:
    """The asynchronous engine had scheduled one more for a request that ended."""
    meter = Meter(KS, varied=False, clock=clock)
    first, stale = Plan({"a": 1}), Plan({"a": 1})
    meter.scheduling()
    meter.scheduled(first)
    meter.scheduling()
    meter.scheduled(stale)
    clock.now += 1
    meter.finished(first, outputs({"a": 1}, first), False)
    clock.now += 1
    meter.finished(stale, {}, False)
    clock.now += 60
    fresh = Plan({}, {"b": 9})
    step(meter, clock, fresh, outputs({}, fresh, first=["b"]), 0.5)
    assert meter.cells == {(1, 1): (1, 1.0, 1, 2, 0), (0, 1): (1, 0.5, 1, 1, 9)}


def test_steps_without_output_count_nothing_but_time_passes(clock: Clock) -> None:
    """A chunk of a long prompt: the engine's own counter of steps leaves it out too."""
    meter = Meter(KS, varied=False, clock=clock)
    step(meter, clock, Plan({}, {"a": 512}), {}, 1.0)
    last = Plan({}, {"a": 88})
    step(meter, clock, last, outputs({}, last, first=["a"]), 0.5)
    assert meter.cells == {(0, 1): (1, 0.5, 1, 1, 88)}


def test_drafts_cut_short_belong_to_the_k_they_were_made_for(clock: Clock) -> None:
    meter = Meter(KS, varied=False, clock=clock)
    plan = Plan({"a": 2})
    step(meter, clock, plan, outputs({"a": 2}, plan), 0.1)
    assert set(meter.cells) == {(3, 1)}


def test_k_of_methods_that_draft_as_they_can_is_the_tables(clock: Clock) -> None:
    """n-gram drafts nothing where nothing matches: such a step is one of the table's K, not of K 0."""
    meter = Meter(KS, varied=True, clock=clock)
    prompt = Plan({}, {"a": 9}, next_k=3)
    step(meter, clock, prompt, outputs({}, prompt, first=["a"]), 0.1)
    for drafts in (1, 0, 3):
        plan = Plan({"a": drafts}, next_k=3 if drafts != 3 else 0)
        step(meter, clock, plan, outputs({"a": 0}, plan), 0.1)
    last = Plan({"a": 0})
    step(meter, clock, last, outputs({"a": 0}, last), 0.1)
    assert {key: cell[0] for key, cell in meter.cells.items()} == {(0, 1): 2, (3, 1): 3}


def test_steps_that_never_end_are_forgotten(clock: Clock) -> None:
    meter = Meter(KS, varied=False, clock=clock)
    for _ in range(10_000):
        meter.scheduled(Plan({"a": 1}))
    assert len(meter._under_way) < 100


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 3, 8, 9, 64, 1024, 1025, 1500]), st.sampled_from(KS), st.integers(0, 500)),
        min_size=1,
        max_size=6,
    ),
)
def test_totals_are_those_of_the_steps_and_labels_are_bounded(steps: list[tuple[int, int, int]]) -> None:
    clock = Clock()
    meter = Meter(KS, varied=False, clock=clock)
    for batch, k, prompt in steps:
        plan = Plan({str(number): k for number in range(batch)}, {"p": prompt} if prompt else {})
        step(meter, clock, plan, outputs({str(number): k for number in range(batch)}, plan), 0.5)
    sums = [sum(cell[place] for cell in meter.cells.values()) for place in range(5)]
    assert sums == [
        len(steps),
        len(steps) / 2,
        sum(batch + bool(prompt) for batch, _, prompt in steps),
        sum(batch * (k + 1) for batch, k, _ in steps),
        sum(prompt for *_, prompt in steps),
    ]
    text = exposition(state_of(meter))
    batches = {labels["batch"] for name, labels, _ in samples(text) if name.endswith("_steps_total")}
    assert batches <= {*(str(1 << power) for power in range(11)), "+Inf"}
    for (_, bucket), (count, _, requests, _, _) in meter.cells.items():
        if bucket <= 1024:
            assert bucket / 2 < requests / count <= bucket


def state_of(meter: Meter | None = None) -> State:
    state = State()
    state.engine_version, state.proven, state.meter = "0.32.0", True, meter
    return state


def samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    return [(s.name, s.labels, s.value) for family in text_string_to_metric_families(text) for s in family.samples]


def test_text_of_an_engine_that_counts(clock: Clock) -> None:
    meter = Meter(KS, varied=False, clock=clock)
    plan = Plan({"a": 3, "b": 3})
    step(meter, clock, plan, outputs({"a": 2, "b": 0}, plan), 0.125)
    state = state_of(meter)
    state.file, state.scheduler, state.table = object(), "async", (7, 1_800_000_000.25)
    cell = {"k": "3", "batch": "2"}
    prefix = "speculative_payload_"
    assert samples(exposition(state)) == [
        (
            f"{prefix}info",
            {"live": "true", "engine_version": "0.32.0", "proven": "true", "scheduler": "async", "reason": ""},
            1.0,
        ),
        (f"{prefix}table_version", {}, 7.0),
        (f"{prefix}table_applied_timestamp_seconds", {}, 1_800_000_000.25),
        (f"{prefix}steps_total", cell, 1.0),
        (f"{prefix}step_seconds_total", cell, 0.125),
        (f"{prefix}requests_total", cell, 2.0),
        (f"{prefix}tokens_total", cell, 4.0),
        (f"{prefix}prefill_tokens_total", cell, 0.0),
        *((f"{prefix}drafted_tokens_total", {"k": "3", "position": place}, 2.0) for place in "012"),
        *((f"{prefix}accepted_tokens_total", {"k": "3", "position": place}, float(place != "2")) for place in "012"),
    ]


def test_what_is_said_of_a_step_that_was_counted(clock: Clock) -> None:
    """K verified, decoding and scheduled requests, seconds, tokens, prompt tokens; nothing of one without tokens."""
    meter = Meter(KS, varied=False, clock=clock)
    plan, chunk = Plan({"a": 3, "b": 1}, {"c": 40}), Plan({}, {"a": 512})
    for one, decoding in ((plan, 2), (chunk, 0)):
        meter.scheduling()
        meter.scheduled(one, decoding)
        clock.now += 0.5
        given = outputs({"a": 2, "b": 0}, one) if one is plan else {}
        assert meter.finished(one, given, True) == ((3, 2, 3, 0.5, 4, 40) if one is plan else None)


def test_a_step_of_prompts_alone_has_the_k_that_was_asked_for(clock: Clock) -> None:
    """In its cell it is K = 0, for it verified nothing; compared blocks at any K hold such steps."""
    meter = Meter(KS, varied=False, clock=clock)
    plan, prompt = Plan({"a": 3}, next_k=3), Plan({}, {"b": 40})
    step(meter, clock, plan, outputs({"a": 3}, plan), 0.5)
    meter.scheduling()
    meter.scheduled(prompt, 1)
    clock.now += 0.5
    assert meter.finished(prompt, outputs({}, prompt, first=["b"]), True) == (3, 1, 1, 0.5, 1, 40)
    assert set(meter.cells) == {(3, 1), (0, 1)}


def test_text_of_comparisons() -> None:
    state = state_of()
    sides = ((8, 0.25, 16, 0.5, 48, 7, 0.2), (16, 0.5, 32, 1.0, 64, 9, 0.3))
    state.blocks = SimpleNamespace(comparisons={(5, 3, 1, 4): (2, *sides, 0.125, 0.0625)})
    prefix, labels = "speculative_payload_tried_", {"k": "5", "against": "3", "first": "1", "last": "4"}
    names = ("steps", "step_seconds", "requests", "request_seconds", "tokens", "decode_steps", "decode_step_seconds")
    assert [sample for sample in samples(exposition(state)) if "tried" in sample[0]] == [
        (f"{prefix}blocks_total", labels, 2.0),
        (f"{prefix}seconds_square_total", labels, 0.125),
        (f"{prefix}tokens_square_total", labels, 0.0625),
        *(
            (f"{prefix}{name}_total", {**labels, "side": side}, float(figures[place]))
            for place, name in enumerate(names)
            for side, figures in zip(("tried", "beside"), sides, strict=True)
        ),
    ]


def test_text_of_an_engine_that_stands_aside() -> None:
    state = state_of()
    state.reason = 'a "b"\n\\'
    assert samples(exposition(state)) == [
        (
            "speculative_payload_info",
            {"live": "false", "engine_version": "0.32.0", "proven": "true", "scheduler": "none", "reason": 'a "b"\n\\'},
            1.0,
        )
    ]


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECULATIVE_TELEMETRY_HOST", "127.0.0.1")
    monkeypatch.setenv("SPECULATIVE_TELEMETRY_PORT", "0")


@pytest.fixture
def port(anywhere: None) -> int:
    found = serve(lambda: exposition(state_of()))
    assert found is not None
    return found


def fetch(port: int, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def test_a_scrape_gives_the_text(port: int) -> None:
    assert fetch(port) == exposition(state_of())
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetch(port, "/secrets")


@pytest.mark.usefixtures("anywhere")
def test_a_table_is_looked_for_at_each_scrape() -> None:
    """So an engine without requests acknowledges a new table too."""
    state = state_of()

    def look() -> None:
        state.table = (4, 5.0)

    state.look = look
    port = serve(lambda: exposition(state))
    assert port is not None
    assert "speculative_payload_table_version 4" in fetch(port)


@pytest.mark.usefixtures("anywhere")
def test_a_failing_answer_does_not_end_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "TEXT_SECONDS", 0.0)
    state = state_of()
    failures = iter([True])

    def look() -> None:
        if next(failures, False):
            raise RuntimeError("boom")

    state.look = look
    port = serve(lambda: exposition(state))
    assert port is not None
    with pytest.raises(OSError, match=r"."):
        fetch(port)
    assert fetch(port)


@pytest.mark.usefixtures("anywhere")
def test_a_taken_port_is_one_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("SPECULATIVE_TELEMETRY_PORT", str(taken.getsockname()[1]))
        assert serve(lambda: exposition(state_of())) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("asked", ["eight", "-1", "99999"])
@pytest.mark.usefixtures("anywhere")
def test_a_strange_port_is_one_warning(
    asked: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SPECULATIVE_TELEMETRY_PORT", asked)
    assert serve(lambda: exposition(state_of())) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_no_port_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECULATIVE_TELEMETRY_PORT", "off")
    before = threading.active_count()
    assert serve(lambda: exposition(state_of())) is None
    assert threading.active_count() == before


def test_scrapes_beside_a_counting_engine_see_whole_steps(clock: Clock) -> None:
    """Each step emits 3 tokens for 2 requests; a scrape in between must never see another ratio."""
    meter = Meter(KS, varied=False, clock=clock)
    plan = Plan({"a": 1, "b": 1})
    taken = outputs({"a": 1, "b": 0}, plan)
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            step(meter, clock, plan, taken, 0.5)

    engine = threading.Thread(target=count, daemon=True)
    engine.start()
    try:
        for _ in range(300):
            for steps, seconds, requests, tokens, _ in dict(meter.cells).values():
                assert (requests, tokens) == (2 * steps, 3 * steps)
                assert math.isclose(seconds, steps / 2)
    finally:
        stop.set()
        engine.join()


def test_an_engine_of_another_shape_stops_the_counting_alone(clock: Clock) -> None:
    """What the scheduler does with the error is its test; here it must be an error, not a wrong figure."""
    meter = Meter(KS, varied=False, clock=clock)
    with pytest.raises(AttributeError):
        meter.scheduled(SimpleNamespace())
