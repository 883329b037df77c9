"""From scrapes to decisions: windows, gaps, repetitions, clocks, restarts; nothing odd ever moves the table."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.plant.scrapes import KNOBS, START, Pod, policy

from speculative_lab.plant import session as module
from speculative_lab.plant.session import Session
from speculative_operator.domain.decision import Decision, Policy, State
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode, OffPolicy
from speculative_operator.domain.table import Actuator, KnobSpace, KTable
from speculative_operator.engines.vllm.adapter import ENGINE
from speculative_operator.tuner import Memory, decide, initial_table
from speculative_operator.tuner.persistence import to_status

Looks = list[Observation]
UNSURE = frozenset({Reason.STARTING, Reason.COLLECTING, Reason.IDLE})


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Every observation that reached the tuner."""
    seen: Looks = []

    def spy(memory: Memory, observation: Observation, policy: Policy, now: float) -> tuple[Memory, Decision]:
        seen.append(observation)
        return decide(memory, observation, policy, now)

    monkeypatch.setattr(module, "decide", spy)
    return seen


def fed(session: Session, pods: dict[str, Pod], scrapes: int, step: float, start: float = START) -> list[Decision]:
    """Serve and scrape `scrapes` times, `step` seconds apart; the first scrape is at `start`."""
    return [
        session.feed(start + index * step, {name: pod.run(step).text() for name, pod in pods.items()})
        for index in range(scrapes)
    ]


@pytest.mark.parametrize(("step", "windows", "length"), [(1, 15, 4), (2, 15, 4), (5, 12, 5), (15, 4, 15), (60, 4, 60)])
def test_windows_join_up_whatever_the_interval(looks: Looks, step: float, windows: int, length: float) -> None:
    """Each window begins where the one before ended, and lasts at least four seconds."""
    scrapes = round(windows * length / step) + 1
    fed(Session(ENGINE, policy()), {"a": Pod(), "b": Pod()}, scrapes, step)
    spans = [(w.start - START, w.end - START) for look in looks for pod, w in look.windows.items() if pod == "b"]
    assert spans == [(index * length, (index + 1) * length) for index in range(windows)]


def test_figures_are_exact_differences(looks: Looks) -> None:
    fed(Session(ENGINE, policy()), {"a": Pod(requests=8, steps=100)}, 3, 5)
    window = looks[-1].windows["a"]
    assert (window.steps, window.batch, window.drafts, window.mean_k) == (500, 8, 4000, 3)
    assert window.tokens_per_step == pytest.approx(1 + 0.7 + 0.5 + 0.35)
    assert window.kv_capacity_tokens == 80_000


def test_the_first_scrape_of_a_pod_holds_all(looks: Looks) -> None:
    session, pods = Session(ENGINE, policy()), {"a": Pod()}
    decisions = fed(session, pods, 6, 5)
    assert (decisions[0].state, decisions[0].reason, decisions[0].valid) == (State.HOLDING, Reason.STARTING, False)
    assert decisions[-1].valid
    pods["b"] = Pod()
    joining = fed(session, pods, 2, 5, START + 30)
    assert not joining[0].valid
    assert looks[-2].gaps["b"].reason is Reason.STARTING
    assert set(looks[-1].windows) == {"a", "b"}


def test_a_pod_that_went_is_forgotten(looks: Looks) -> None:
    session, both = Session(ENGINE, policy()), {"a": Pod(), "b": Pod()}
    fed(session, both, 4, 5)
    assert fed(session, {"a": both["a"]}, 1, 5, START + 20)[0].valid
    assert set(looks[-1].pods) == {"a"}
    assert session.feed(START + 25, {}).reason is Reason.NO_PODS


def test_a_repeated_scrape_repeats_the_answer_and_moves_nothing(looks: Looks) -> None:
    session, pods = Session(ENGINE, policy()), {"a": Pod()}
    last = fed(session, pods, 5, 5)[-1]
    memory, seen = session.memory, len(looks)
    pods["a"].run(5)
    again = session.feed(START + 20, {"a": pods["a"].text()})
    assert (again.state, again.table, again.reason, again.valid) == (last.state, last.table, last.reason, last.valid)
    assert not again.changed
    assert session.memory is memory
    assert len(looks) == seen


def test_a_late_scrape_is_stale_and_moves_nothing(looks: Looks) -> None:
    session, pods = Session(ENGINE, policy()), {"a": Pod()}
    fed(session, pods, 5, 5)
    memory, seen = session.memory, len(looks)
    for late in (START + 15, START + 3, START):
        decision = session.feed(late, {"a": Pod().text()})
        assert (decision.valid, decision.reason, decision.changed) == (False, Reason.METRICS_STALE, False)
    assert session.memory is memory
    assert len(looks) == seen
    assert fed(session, pods, 1, 5, START + 25)[0].valid


def test_a_clock_set_back_for_good_begins_anew(looks: Looks) -> None:
    session, pods = Session(ENGINE, policy()), {"a": Pod()}
    fed(session, pods, 5, 5)
    after = fed(session, pods, 6, 5, START - 7200)
    assert [decision.reason for decision in after[:2]] == [Reason.METRICS_STALE] * 2
    assert after[2].reason is Reason.STARTING
    assert looks[-1].windows["a"].seconds == 5


def test_a_clock_set_forward_begins_anew(looks: Looks) -> None:
    session, pods = Session(ENGINE, policy()), {"a": Pod()}
    fed(session, pods, 5, 5)
    after = fed(session, pods, 2, 5, START + 7200)
    assert (after[0].valid, looks[-2].gaps["a"].reason) == (False, Reason.STARTING)
    assert looks[-1].windows["a"].seconds == 5


@pytest.mark.parametrize("time", [float("nan"), float("inf"), -1.0, 1.7e12])
def test_a_time_that_is_none(time: float) -> None:
    session = Session(ENGINE, policy())
    decision = session.feed(time, {"a": Pod().run(5).text()})
    assert (decision.valid, decision.reason) == (False, Reason.METRICS_ABSURD)
    assert session.memory is None


def test_a_restart_costs_one_window(looks: Looks) -> None:
    session, pod = Session(ENGINE, policy()), Pod()
    fed(session, {"a": pod}, 4, 5)
    after = fed(session, {"a": pod.restart()}, 2, 5, START + 20)
    assert (after[0].reason, after[0].valid) == (Reason.COUNTER_RESET, False)
    assert looks[-1].windows["a"].start == START + 20


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Reason.METRICS_MISSING),
        (None, Reason.METRICS_MISSING),
        ("<html>no metrics here</html>", Reason.METRICS_MISSING),
        ('vllm:num_requests_running{engine="0} 4', Reason.METRICS_ABSURD),
        ('vllm:num_requests_running{engine="0"} 4\n', Reason.METRICS_PARTIAL),
        (Pod().run(60).text(generation_tokens_total="NaN"), Reason.METRICS_ABSURD),
        (Pod().run(60).text(generation_tokens_total="-7"), Reason.METRICS_ABSURD),
        (Pod().run(60).text(inter_token_latency_seconds_sum="+Inf"), Reason.METRICS_ABSURD),
        (Pod().run(60).text(iteration_tokens_total_count="1"), Reason.COUNTER_RESET),
    ],
)
def test_one_bad_scrape_of_one_pod_holds_all_and_is_skipped(looks: Looks, text: str, reason: Reason) -> None:
    session, pods = Session(ENGINE, policy()), {"a": Pod(), "b": Pod()}
    fed(session, pods, 4, 5)
    table = session.table
    for pod in pods.values():
        pod.run(5)
    bad = session.feed(START + 20, {"a": pods["a"].text(), "b": text})
    assert not bad.valid
    assert (bad.state, bad.table, bad.changed) == (State.HOLDING, table, False)
    assert looks[-1].gaps["b"].reason is reason
    assert isinstance(fed(session, pods, 3, 5, START + 25)[-1].estimate.concurrency, float)
    assert looks[-1].windows["b"].end == START + 35


def test_metrics_of_the_drafter_vanish_with_removal(looks: Looks) -> None:
    """A pod without speculator has none of its series; until the last pod is rolled, windows do not mix."""
    session, pods = Session(ENGINE, policy()), {"a": Pod(), "b": Pod()}
    fed(session, pods, 5, 5)
    bare = {"a": Pod(speculates=False), "b": pods["b"]}
    mixed = fed(session, bare, 3, 5, START + 25)
    assert (mixed[-1].reason, mixed[-1].valid) == (Reason.ROLLING_OUT, False)
    alone = fed(session, {"a": bare["a"], "c": Pod(speculates=False)}, 3, 5, START + 40)
    assert alone[-1].reason not in (Reason.METRICS_PARTIAL, Reason.ROLLING_OUT)
    assert looks[-1].windows["c"].drafts is None


def test_a_restart_without_drafter_under_the_same_name(looks: Looks) -> None:
    session, pod = Session(ENGINE, policy()), Pod()
    fed(session, {"a": pod}, 4, 5)
    pod.speculates = False
    fed(session, {"a": pod.restart()}, 4, 5, START + 20)
    assert looks[-1].windows["a"].drafts is None


def test_a_change_comes_into_force_and_the_memory_agrees() -> None:
    """Drafts that are never accepted, in a full batch: K must go down, by tables that the session then holds."""
    session, pod = Session(ENGINE, policy()), Pod(requests=60, steps=30, survival=(0.02, 0.0, 0.0))
    first = session.table
    changes = []
    for index in range(200):
        pod.k = session.table.k_at(pod.requests)
        pod.steps = 100 / (2 + pod.k)
        decision = fed(session, {"a": pod}, 1, 5, START + 5 * index)[0]
        assert session.memory is not None
        assert session.memory.table == session.table
        if decision.changed:
            changes.append(decision.table)
            assert session.table == decision.table
    assert changes
    assert session.table.k_at(60) < first.k_at(60)


@pytest.mark.parametrize(
    ("mode", "schedule"), [(Mode.RECOMMEND, None), (Mode.STATIC, KTable.from_rows([[1, 16, 5], [17, 64, 1]]))]
)
def test_modes_that_keep_the_table(mode: Mode, schedule: KTable | None) -> None:
    session = Session(ENGINE, policy(mode=mode, schedule=schedule))
    first, pod = session.table, Pod(requests=60, steps=30, survival=(0.02, 0.0, 0.0))
    fed(session, {"a": pod}, 60, 5)
    assert session.table == first
    assert schedule in (None, first)


def test_memory_goes_on_where_it_was() -> None:
    session, pod = Session(ENGINE, policy()), Pod()
    fed(session, {"a": pod}, 10, 5)
    assert session.memory is not None
    other = Session(ENGINE, policy(), session.memory)
    assert other.table == session.table
    fed(other, {"a": pod}, 3, 5, START + 50)
    assert other.memory is not None
    assert other.memory.windows > session.memory.windows


# --- whatever is scraped: no exception, no table outside the knobs, no change on a gap ---

VALUES = st.sampled_from(["NaN", "+Inf", "-Inf", "-1", "0", "1e15", "9007199254740993", "1e308", "3.5"])
NAMES = st.sampled_from(
    [
        "iteration_tokens_total_count",
        "inter_token_latency_seconds_count",
        "inter_token_latency_seconds_sum",
        "generation_tokens_total",
        "prompt_tokens_total",
        "num_requests_running",
        "kv_cache_usage_perc",
        "spec_decode_num_drafts_total",
        "spec_decode_num_draft_tokens_total",
        "spec_decode_num_accepted_tokens_total",
        "spec_decode_num_accepted_tokens_per_pos_total",
    ]
)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Policy, list[tuple[float, dict[str, str | None]]]]:
    """A policy and up to 25 scrapes of up to three pods, most of them sound."""
    knobs = KNOBS
    if draw(st.integers(0, 3)) == 0:
        actuator = draw(st.sampled_from(list(Actuator)))
        ks = (0,) if actuator is Actuator.NONE else (1, 3) if actuator is Actuator.RESTART else (0, 1, 2, 4)
        knobs = KnobSpace(actuator, ks, max_batch=draw(st.sampled_from([1, 7, 64])), capture_ceiling_tokens=32)
    wanted = policy(
        knobs=knobs,
        mode=draw(st.sampled_from([Mode.AUTO, Mode.AUTO, Mode.AUTO, Mode.RECOMMEND, Mode.STATIC])),
        off_policy=draw(st.sampled_from(list(OffPolicy))),
    )
    pods = {name: Pod(requests=draw(st.floats(0.5, 80)), steps=draw(st.floats(1, 300))) for name in "abc"}
    now, scrapes = START, list[tuple[float, dict[str, str | None]]]()
    for _ in range(draw(st.integers(2, 25))):
        step = draw(st.sampled_from([5.0, 5.0, 5.0, 5.0, 1.0, 0.0, 30.0, -5.0, -7200.0, 7200.0, 1e6]))
        now += step
        texts: dict[str, str | None] = {}
        for name in draw(st.sampled_from(["a", "ab", "abc", "b", ""])):
            texts[name] = _scraped(draw, pods[name], step)
        scrapes.append((now, texts))
    return wanted, scrapes


def _scraped(draw: st.DrawFn, pod: Pod, step: float) -> str | None:
    """One scrape of a pod that mostly behaves."""
    pod.run(abs(step) if abs(step) < 100 else 5.0)
    match draw(st.integers(0, 14)):
        case 0:
            pod.restart().run(1)
        case 1:
            pod.k = draw(st.sampled_from([0, 1, 3, 5, 20]))
            pod.survival = draw(st.sampled_from([(0.9,) * 20, (0.0,), (0.5, 0.6, 2.0)]))
        case 2:
            return pod.text(**{draw(NAMES): draw(VALUES)})
        case 3:
            text = pod.text()
            return text[: draw(st.integers(0, len(text)))]
        case 4:
            return draw(st.sampled_from([None, "", "vllm:num_requests_running{ 5\n", "\x00\udcff", "vllm:a 1\n" * 3]))
        case 5:
            pod.speculates = not pod.speculates
        case 6:
            pod.steps = draw(st.sampled_from([0.0, 1e-9, 1e9, 50.0]))
        case _:
            pass
    return pod.text()


def allowed(wanted: Policy) -> Callable[[KTable], bool]:
    ks = set(wanted.knobs.ks) | {0}
    return lambda table: table.max_batch == wanted.knobs.max_batch and table.ks <= ks


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_nothing_that_is_scraped_does_harm(scene: tuple[Policy, list[tuple[float, dict[str, str | None]]]]) -> None:
    wanted, scrapes = scene
    session, fits = Session(ENGINE, wanted), allowed(wanted)
    first = initial_table(wanted)
    assert session.table == first
    for time, texts in scrapes:
        before = session.table
        decision = session.feed(time, texts)
        assert fits(decision.table)
        assert fits(session.table)
        if not decision.valid and decision.reason is not Reason.METRICS_LOST:
            assert not decision.changed
            assert session.table == before
        if any(not text for text in texts.values()) or not texts:
            assert not decision.changed or decision.reason is Reason.METRICS_LOST, "a pod that could not be scraped"
        if session.table != before:
            assert decision.changed
            assert wanted.mode is Mode.AUTO


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 11), min_size=1, max_size=30), st.data())
def test_repeated_and_late_scrapes_move_nothing(extra: list[int], data: st.DataObject) -> None:
    """The same scrapes with repetitions and late arrivals strewn in end with the same memory and table."""
    pod = Pod(requests=30)
    texts = [pod.run(5).text() for _ in range(12)]
    plain, disturbed = Session(ENGINE, policy()), Session(ENGINE, policy())
    for index, text in enumerate(texts):
        expected = plain.feed(START + 5 * index, {"a": text})
        found = disturbed.feed(START + 5 * index, {"a": text})
        assert found == expected
        for late in extra:
            if late <= index and data.draw(st.booleans()):
                assert not disturbed.feed(START + 5 * late, {"a": texts[late]}).changed
    assert disturbed.table == plain.table
    assert disturbed.memory is not None
    assert plain.memory is not None
    assert to_status(disturbed.memory) == to_status(plain.memory)
