"""What must not be believed changes nothing, and says why."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.unit.tuner.plant import KNOBS, TICK, USELESS, Plant, Run, policy, run

from speculative_operator.domain.decision import Estimate, State
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.observation import Gap, Observation, PodWindow
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import KTable
from speculative_operator.tuner import Memory, decide

NAN = math.nan


def warmed() -> Run:
    """A loop in which the next believed window would turn drafts off."""
    loop = run(Plant(noise=0.0))
    loop.play(*[20] * 6)
    loop.plant.conditional = USELESS
    loop.now += 100 * TICK
    return loop


def next_window(loop: Run) -> PodWindow:
    loop.now += TICK
    return loop.plant.window(loop.memory.table, 20, loop.now)


def assert_held(loop: Run, observation: Observation, reason: Reason) -> str:
    before = loop.memory
    memory, decision = decide(before, observation, loop.policy, loop.now)
    assert not decision.valid
    assert not decision.changed
    assert decision.state is State.HOLDING
    assert decision.reason is reason
    assert decision.table == before.table == memory.table
    return decision.message


def test_the_same_window_believed_would_change_the_table() -> None:
    loop = warmed()
    before = loop.memory.table
    for _ in range(3):
        window = next_window(loop)
        loop.memory, _ = decide(loop.memory, Observation(loop.now, {"a": window}), loop.policy, loop.now)
    assert loop.memory.table.k_at(20) < before.k_at(20)


def test_nothing_seen_at_all() -> None:
    loop = warmed()
    gap = Gap(Reason.PROMETHEUS_TIMEOUT, "no answer within 5 s")
    message = assert_held(loop, Observation(loop.now, {}, gap), Reason.PROMETHEUS_TIMEOUT)
    assert message.startswith("no answer within 5 s")
    assert_held(loop, Observation(loop.now), Reason.NO_PODS)


def test_one_pod_of_several_missing_holds_all() -> None:
    loop = warmed()
    pods: dict[str, PodWindow | Gap] = {"a": next_window(loop), "b": Gap(Reason.METRICS_MISSING, "no samples")}
    message = assert_held(loop, Observation(loop.now, pods), Reason.METRICS_PARTIAL)
    assert "1 of 2 pods have figures; b: no samples" in message


@pytest.mark.parametrize("reason", [Reason.METRICS_MISSING, Reason.METRICS_STALE, Reason.COUNTER_RESET])
def test_all_pods_missing_gives_their_reason(reason: Reason) -> None:
    loop = warmed()
    pods = {"a": Gap(reason, "why"), "b": Gap(reason, "why"), "c": Gap(Reason.METRICS_ABSURD, "x")}
    assert_held(loop, Observation(loop.now, pods), reason)


@pytest.mark.parametrize("shift", [-61.0, 61.0, -1e9, 1e9])
def test_a_window_of_another_time_is_stale(shift: float) -> None:
    loop = warmed()
    window = next_window(loop)
    moved = replace(window, start=window.start + shift, end=window.end + shift)
    assert_held(loop, Observation(loop.now, {"a": moved}), Reason.METRICS_STALE)


def test_an_idle_window_changes_nothing() -> None:
    loop = warmed()
    loop.now += TICK
    idle = PodWindow(
        *(loop.now - TICK, loop.now),
        *(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    )
    assert_held(loop, Observation(loop.now, {"a": idle}), Reason.IDLE)
    prefilling = replace(idle, steps=50.0, first_tokens=50.0, generated_tokens=50.0, prompt_tokens=5000.0)
    assert_held(loop, Observation(loop.now, {"a": prefilling}), Reason.IDLE)


ABSURD = {
    "not a number": {"steps": NAN},
    "infinite": {"step_seconds": math.inf},
    "negative": {"generated_tokens": -1.0},
    "negative position": {"accepted_per_position": (10.0, -1.0)},
    "nan position": {"accepted_per_position": (NAN,)},
    "nan time": {"end": NAN},
    "nan usage": {"kv_usage": NAN},
    "backwards": {"start": 1_700_002_000.0},
    "too long": {"start": 1_600_000_000.0},
    "too many steps": {"steps": 1e9},
    "batch above the engine's": {"decode_request_steps": 1e9},
    "steps without time": {"step_seconds": 0.0},
    "steps longer than the window": {"step_seconds": 1e9},
    "more tokens than drafts allow": {"generated_tokens": 1e7},
    "fewer tokens than steps": {"generated_tokens": 0.0},
    "endless prompts": {"prompt_tokens": 1e12},
    "overfull cache": {"kv_usage": 1.5},
    "more drafts than steps": {"drafts": 1e7},
    "K above the largest": {"draft_tokens": 1e7},
    "more accepted than drafted": {"accepted_tokens": 1e7},
    "later position accepted more": {"accepted_per_position": (10.0, 500.0)},
    "position accepted more than drafted": {"accepted_per_position": (1e7, 0.0)},
    "endless first tokens": {"first_tokens": 1e300, "generated_tokens": 1e300},
}


@pytest.mark.parametrize("change", ABSURD.values(), ids=ABSURD.keys())
def test_absurd_figures_change_nothing(change: dict[str, float]) -> None:
    loop = warmed()
    window = replace(next_window(loop), **change)  # type: ignore[arg-type]  # fields are named in ABSURD
    message = assert_held(
        loop, Observation(loop.now, {"good": next_window(loop), "bad": window}), Reason.METRICS_ABSURD
    )
    assert message.startswith("bad: ")


def test_absurd_figures_teach_nothing() -> None:
    loop = warmed()
    window = replace(next_window(loop), step_seconds=math.inf)
    memory, _ = decide(loop.memory, Observation(loop.now, {"a": window}), loop.policy, loop.now)
    assert memory.costs == loop.memory.costs
    assert memory.acceptance == loop.memory.acceptance


def test_the_first_window_is_only_watched() -> None:
    loop = warmed()
    loop.memory = Memory.from_status(loop.memory.to_status(), loop.policy)
    assert_held(loop, Observation(loop.now + TICK, {"a": next_window(loop)}), Reason.STARTING)


def test_little_evidence_is_collected_first() -> None:
    loop = run(Plant())
    loop.now += TICK
    short = loop.plant.window(loop.memory.table, 1, loop.now, seconds=1.5)
    loop.memory, _ = decide(loop.memory, Observation(loop.now, {"a": short}), loop.policy, loop.now)
    loop.now += TICK
    short = loop.plant.window(loop.memory.table, 1, loop.now, seconds=1.5)
    message = assert_held(loop, Observation(loop.now, {"a": short}), Reason.COLLECTING)
    assert "drafts remembered; 500 are needed" in message


class TestModes:
    gap = Observation(0.0, {}, Gap(Reason.PROMETHEUS_ERROR, "down"))

    def test_off_has_nothing_to_turn(self) -> None:
        asked = policy(mode=Mode.OFF)
        memory, decision = decide(Memory.fresh(KTable.constant(0, 256), 0.0), self.gap, asked, 0.0)
        assert (decision.state, decision.reason, decision.valid) == (State.HARD_OFF, Reason.DISABLED, True)
        assert decision.estimate == Estimate()
        assert memory.table == KTable.constant(0, 256)

    def test_no_speculator_has_nothing_to_turn(self) -> None:
        asked = policy(knobs=replace(KNOBS, actuator=Actuator.NONE, ks=(0,)))
        _, decision = decide(Memory.fresh(KTable.constant(0, 256), 0.0), self.gap, asked, 0.0)
        assert (decision.state, decision.reason) == (State.HARD_OFF, Reason.NO_SPECULATOR)

    def test_static_holds_the_schedule_even_when_nothing_is_seen(self) -> None:
        schedule = KTable.from_rows([[1, 64, 3], [65, 256, 0]])
        asked = policy(mode=Mode.STATIC, schedule=schedule)
        memory = Memory.fresh(KTable.constant(5, 256), 0.0)
        memory, decision = decide(memory, self.gap, asked, 0.0)
        assert (decision.reason, decision.table, decision.changed, decision.valid) == (
            *(Reason.FIXED, schedule, True, True),
        )
        _, again = decide(memory, self.gap, asked, 10.0)
        assert not again.changed

    def test_static_holds_whatever_is_measured(self) -> None:
        loop = run(Plant(conditional=USELESS), policy(mode=Mode.STATIC, start_k=5))
        decision = loop.play(*[50] * 10)
        assert loop.memory.table == KTable.constant(5, 256)
        assert decision.reason is Reason.FIXED
        gain = decision.estimate.gain_percent
        assert gain is not None
        assert gain.high < 0


def test_a_table_that_no_longer_fits_is_cut_to_the_knobs() -> None:
    memory = Memory.fresh(KTable.from_rows([[1, 100, 5], [101, 512, 0]]), 0.0)
    asked = policy(knobs=replace(KNOBS, ks=(1, 2), max_batch=64))
    memory, decision = decide(memory, TestModes.gap, asked, 0.0)
    assert memory.table == decision.table == KTable.constant(2, 64)
    assert not decision.valid
