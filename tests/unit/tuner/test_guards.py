"""What must not be believed changes nothing, and says why."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.unit.tuner.plant import KNOBS, TICK, USELESS, Plant, Run, policy, run, same

from speculative_operator.domain.decision import Estimate, State
from speculative_operator.domain.observation import Gap, Observation, PodWindow
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.tuner import Memory, decide
from speculative_operator.tuner.decide import PATIENCE
from speculative_operator.tuner.grid import nearest
from speculative_operator.tuner.guards import GUARD_SHARE, count_slow, proven
from speculative_operator.tuner.outlook import QUANTILE, outlook
from speculative_operator.tuner.pace import SAVED, Pace
from speculative_operator.tuner.persistence import from_status, to_status
from speculative_operator.tuner.report import measured_speed
from speculative_operator.tuner.traffic import pool

NAN = math.nan


def warmed() -> Run:
    """A loop in which the next believed window would turn drafts off."""
    loop = run(Plant(noise=0.0), table=KTable.constant(4, KNOBS.max_batch))
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


def test_one_pod_of_two_missing_holds_both() -> None:
    loop = warmed()
    pods: dict[str, PodWindow | Gap] = {"a": next_window(loop), "b": Gap(Reason.METRICS_MISSING, "no samples")}
    message = assert_held(loop, Observation(loop.now, pods), Reason.METRICS_PARTIAL)
    assert "1 of 2 pods have figures that can be believed, with 50 % of the requests; b: no samples" in message


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
    message = assert_held(loop, Observation(loop.now, {"a": moved}), Reason.METRICS_STALE)
    assert f"more than 60 s {'old' if shift < 0 else 'in the future'}" in message


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
    "first tokens waited less than nothing": {"ttft_seconds": -1.0},
    "nan wait": {"ttft_seconds": NAN},
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
    "a sliver of a step": {"steps": 5e-324, "decode_request_steps": 100.0},
    "endless memory": {"kv_capacity_tokens": 1e306},
}


@pytest.mark.parametrize("change", ABSURD.values(), ids=ABSURD.keys())
def test_absurd_figures_change_nothing(change: dict[str, object]) -> None:
    loop = warmed()
    window = replace(next_window(loop), **change)  # type: ignore[arg-type]  # fields are named in ABSURD
    alone = assert_held(loop, Observation(loop.now, {"bad": window}), Reason.METRICS_ABSURD)
    assert alone.startswith("bad: ")
    both = Observation(loop.now, {"good": next_window(loop), "bad": window})
    assert "; bad: " in assert_held(loop, both, Reason.METRICS_PARTIAL)


def test_absurd_figures_teach_nothing() -> None:
    loop = warmed()
    window = replace(next_window(loop), step_seconds=math.inf)
    memory, _ = decide(loop.memory, Observation(loop.now, {"a": window}), loop.policy, loop.now)
    assert memory.blind_since == loop.now
    assert same(replace(memory, blind_since=None), loop.memory)


def test_the_first_window_is_only_watched() -> None:
    loop = warmed()
    loop.plant.conditional = tuple(0.5 * one for one in Plant().conditional)
    loop.memory = from_status(to_status(loop.memory), loop.policy)
    assert_held(loop, Observation(loop.now + TICK, {"a": next_window(loop)}), Reason.STARTING)


def test_the_first_window_decides_where_hardly_a_draft_was_accepted() -> None:
    loop = warmed()
    loop.memory = from_status(to_status(loop.memory), loop.policy)
    window = next_window(loop)
    memory, decision = decide(loop.memory, Observation(loop.now, {"a": window}), loop.policy, loop.now)
    assert decision.valid
    assert memory.table.k_at(20) == 0


class TestCollecting:
    """Too little to decide on."""

    def short(self, drafts: float, steps: float = 20.0) -> tuple[Run, PodWindow]:
        loop = run(Plant())
        loop.now += TICK
        window = loop.plant.window(loop.memory.table, 1, loop.now)
        shrink = steps / window.steps
        counts = ("steps", "decode_request_steps", "step_seconds", "first_tokens", "generated_tokens", "prompt_tokens")
        window = replace(window, **{name: getattr(window, name) * shrink for name in counts})
        share = drafts / (window.drafts or 1.0)
        drafted = ("drafts", "draft_tokens", "accepted_tokens")
        window = replace(
            window,
            **{name: getattr(window, name) * share for name in drafted},
            accepted_per_position=tuple(share * count for count in window.accepted_per_position),
        )
        loop.memory, _ = decide(loop.memory, Observation(loop.now, {"a": window}), loop.policy, loop.now)
        loop.now += TICK
        return loop, replace(window, start=window.start + TICK, end=window.end + TICK)

    def test_few_drafts_are_waited_for(self) -> None:
        loop, window = self.short(drafts=10.0)
        message = assert_held(loop, Observation(loop.now, {"a": window}), Reason.COLLECTING)
        assert "drafts remembered" in message

    def test_few_steps_are_waited_for(self) -> None:
        loop, window = self.short(drafts=3.0, steps=3.0)
        message = assert_held(loop, Observation(loop.now, {"a": window}), Reason.COLLECTING)
        assert message.startswith("3 steps in the window")

    def test_a_drafter_that_hardly_drafts_is_not_waited_for_forever(self) -> None:
        loop, window = self.short(drafts=3.0)
        for _ in range(PATIENCE):
            decision = loop.see(Observation(loop.now, {"a": window}))
            loop.now += TICK
            window = replace(window, start=window.start + TICK, end=window.end + TICK)
        assert decision.valid


def guarded() -> Run:
    """Two more windows like the last, and drafts are cut."""
    loop = run(Plant(conditional=(0.8,) * 5, noise=0.0))
    loop.play(*[30] * 10)
    assert loop.memory.table.k_at(30) > 0
    loop.plant.slow = dict.fromkeys(range(1, 6), 3.0)
    loop.memory = replace(loop.memory, changed_at=loop.now)
    return loop


class TestGuard:
    """Drafting that loses against none is cut whatever was changed when."""

    def test_two_slow_windows_cut_drafts_from_that_load_on(self) -> None:
        loop = guarded()
        before = loop.memory.table
        first, second = loop.play(30), loop.play(30)
        assert (first.changed, second.changed, second.reason) == (False, True, Reason.GUARD)
        assert second.table.k_at(30) < before.k_at(30)
        assert second.table.k_at(1) == before.k_at(1)
        assert "measured" in second.message

    def test_a_gap_between_them_starts_the_count_again(self) -> None:
        loop = guarded()
        loop.play(30)
        loop.see(Observation(loop.now, {}, Gap(Reason.PROMETHEUS_ERROR, "down")))
        assert not loop.play(30).changed

    def test_writes_that_are_used_up_do_not_hold_it(self) -> None:
        loop = guarded()
        loop.memory = replace(loop.memory, pace=Pace(-5.0))
        loop.play(30)
        assert loop.play(30).reason is Reason.GUARD

    @pytest.mark.parametrize("changes", [{"mode": Mode.RECOMMEND}, {"knobs": replace(KNOBS, actuator=Actuator.TABLE)}])
    def test_not_where_it_is_not_allowed_or_not_quick(self, changes: dict[str, object]) -> None:
        loop = guarded()
        loop.policy = policy(**changes)
        loop.play(*[30] * 4)
        assert all(decision.reason is not Reason.GUARD for decision in loop.decisions)


class TestWaiting:
    """A better table that may not come yet."""

    def test_for_time_since_the_last_change(self) -> None:
        loop = warmed()
        loop.memory = replace(loop.memory, changed_at=loop.now + TICK - 1.0)
        decision = loop.see(Observation(loop.now + TICK, {"a": next_window(loop)}))
        assert (decision.reason, decision.changed, decision.valid) == (Reason.RECENTLY_CHANGED, False, True)
        assert "s more after the last change" in decision.message

    def test_for_writes(self) -> None:
        loop = warmed()
        loop.memory = replace(loop.memory, pace=Pace(-9.0), changed_at=None)
        decision = loop.see(Observation(loop.now + TICK, {"a": next_window(loop)}))
        assert (decision.reason, decision.changed) == (Reason.RECENTLY_CHANGED, False)
        assert "too many recent changes" in decision.message


def test_the_last_write_is_no_dearer_than_the_first() -> None:
    """A gain of 6 % of which little is measured."""
    for left in (SAVED, 1.0):
        loop = run(Plant(noise=0.0), table=KTable.constant(4, KNOBS.max_batch))
        for _ in range(8):
            loop.memory = replace(loop.memory, pace=Pace(left))
            loop.play(20)
        assert loop.memory.table.k_at(20) == 2


class TestModes:
    gap = Observation(0.0, {}, Gap(Reason.PROMETHEUS_ERROR, "down"))

    def test_off_has_nothing_to_turn(self) -> None:
        asked = policy(mode=Mode.DISABLED)
        memory, decision = decide(Memory.fresh(KTable.constant(0, 256), 0.0), self.gap, asked, 0.0)
        assert (decision.state, decision.reason, decision.valid) == (State.REMOVED, Reason.DISABLED, True)
        assert decision.estimate == Estimate()
        assert memory.table == KTable.constant(0, 256)

    def test_no_speculator_has_nothing_to_turn(self) -> None:
        asked = policy(knobs=replace(KNOBS, actuator=Actuator.NONE, ks=(0,)))
        _, decision = decide(Memory.fresh(KTable.constant(0, 256), 0.0), self.gap, asked, 0.0)
        assert (decision.state, decision.reason) == (State.REMOVED, Reason.NO_SPECULATOR)

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


@pytest.mark.parametrize(("widths", "slow"), [(0.0, 0), (0.9, 0), (1.1, 1), (2.0, 1)])
def test_drafts_are_slow_only_beyond_the_error_of_what_is_known(widths: float, slow: int) -> None:
    """A window that is slower by less than the error of the costs is no evidence against drafts."""
    loop = run(Plant(noise=0.0), table=KTable.constant(3, KNOBS.max_batch))
    loop.play(*[30] * 6)
    memory = loop.memory
    view = outlook(loop.policy, memory.costs, memory.acceptance, memory.traffic, memory.last, memory.cells)
    look = pool([loop.plant.window(memory.table, 30, loop.now + TICK)])
    at = nearest(look.scheduled, KNOBS.max_batch)
    width = QUANTILE * math.hypot(float(view.costs.deviation(view.off_gradients[at])), view.costs.unrest)
    assert width > 0.0
    wanted = math.log(GUARD_SHARE) + view.at(look.batch, 0) - widths * width - 1e-9
    seen, gained = measured_speed(view, look, 3), look.tokens_per_step
    assert seen is not None
    assert gained is not None
    slower = replace(look, tokens_per_step=gained * math.exp(wanted - seen))
    assert count_slow(replace(memory, slow_windows=0), view, slower).slow_windows == slow


class TestProven:
    """What an outage leaves of a table of K = 3, at 20 requests."""

    table = KTable.constant(3, KNOBS.max_batch)

    def left(self, plant: Plant, later: float = 600.0) -> int:
        """After ten minutes of figures, and so many seconds without."""
        loop = run(plant, policy(mode=Mode.STATIC, schedule=self.table), self.table)
        loop.play(*[20] * 60)
        return proven(loop.memory, self.table, policy(), loop.now + later).k_at(20)

    def test_what_was_measured_to_pay_stays(self) -> None:
        assert self.left(Plant(conditional=(0.8,) * 5)) == 3

    def test_drafts_that_were_measured_to_fail_count(self) -> None:
        assert self.left(Plant(conditional=USELESS)) == 0

    def test_evidence_that_is_too_old_proves_nothing(self) -> None:
        assert self.left(Plant(conditional=(0.8,) * 5), later=365 * 86400.0) == 0
