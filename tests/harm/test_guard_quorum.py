"""The harm: one pod without figures, or with absurd ones, switches tuning and the guard off for a whole fleet.

In a fleet some pod nearly always has a gap: its node is not scraped, its engine has restarted, an autoscaler has just
made it, it lies. Drafts that lose then lose on all the others for as long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.unit.tuner.plant import KNOBS, TICK, USELESS, Plant, Run, run

from speculative_operator.domain.decision import State
from speculative_operator.domain.observation import Gap, Observation, PodWindow
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.traffic import Traffic, bound_claims, learn_traffic, pool

SILENT = Gap(Reason.METRICS_MISSING, "no samples")
LOAD = 20.0


def begin(pods: int) -> Run:
    """A fleet that is tuned, and whose drafts have just become useless."""
    loop = run(Plant(noise=0.0), table=KTable.constant(4, KNOBS.max_batch))
    for _ in range(4):
        tell(loop, pods)
    loop.plant.conditional = USELESS
    return loop


def tell(loop: Run, pods: int, others: Mapping[str, PodWindow | Gap] | None = None, new: str = "") -> None:
    """One look at `pods` pods that tell the truth, and `others`."""
    loop.now += TICK
    window = loop.window(LOAD)
    seen = {f"pod-{number:02d}": window for number in range(pods)} | dict(others or {})
    loop.see(Observation(loop.now, seen, newcomers=frozenset({new} if new else ())))


def absurd(loop: Run) -> PodWindow:
    return replace(loop.plant.window(loop.memory.table, LOAD, loop.now + TICK), steps=math.nan)


@pytest.mark.parametrize(
    "reason", [Reason.METRICS_MISSING, Reason.COUNTER_RESET, Reason.METRICS_STALE, Reason.STARTING]
)
def test_one_silent_pod_of_a_fleet_never_stops_the_tuner(reason: Reason) -> None:
    loop = begin(19)
    for _ in range(3):
        tell(loop, 19, {"silent": Gap(reason, "no samples")})
    assert loop.memory.table.k_at(LOAD) == 0, loop.decisions[-1].message


def test_one_absurd_pod_of_a_fleet_never_stops_the_tuner_nor_teaches_it() -> None:
    loop = begin(19)
    for _ in range(3):
        tell(loop, 19, {"absurd": absurd(loop)})
    assert loop.memory.table.k_at(LOAD) == 0, loop.decisions[-1].message
    assert "absurd" not in loop.memory.last_windows
    assert all(math.isfinite(value) for value in loop.memory.costs.mean)


def test_a_third_of_the_pods_silent_never_stops_the_guard() -> None:
    loop = begin(2)
    for _ in range(3):
        tell(loop, 2, {"silent": SILENT})
    changes = [decision.reason for decision in loop.decisions[-3:] if decision.changed]
    assert changes == [Reason.GUARD]
    assert loop.memory.table.k_at(LOAD) == 0
    after = loop.decisions[-1]
    assert (after.state, after.reason) == (State.HOLDING, Reason.METRICS_PARTIAL), "and nothing else is decided"
    assert "2 of 3 pods" in after.message


def test_half_of_the_requests_unseen_never_changes_a_table() -> None:
    loop = begin(2)
    table = loop.memory.table
    for _ in range(6):
        tell(loop, 2, {"silent-a": SILENT, "silent-b": SILENT})
    assert loop.memory.table == table
    assert loop.decisions[-1].reason is Reason.METRICS_PARTIAL


def test_many_absurd_pods_never_change_a_table() -> None:
    loop = begin(2)
    table = loop.memory.table
    for _ in range(6):
        tell(loop, 2, {"absurd-a": absurd(loop), "absurd-b": absurd(loop)})
    assert loop.memory.table == table


def test_a_newcomer_without_figures_never_stops_the_tuner_of_few_pods() -> None:
    loop = begin(1)
    for _ in range(3):
        tell(loop, 1, {"new": Gap(Reason.STARTING, "one scrape so far")}, new="new")
    assert loop.memory.table.k_at(LOAD) == 0, loop.decisions[-1].message


def test_an_idle_pod_that_falls_silent_never_stops_the_tuner() -> None:
    """What counts are requests: the pod that was without any is not missed."""
    loop = begin(1)
    idle = PodWindow(loop.now, loop.now + TICK, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    tell(loop, 1, {"idle": idle})
    for _ in range(3):
        tell(loop, 1, {"idle": SILENT})
    assert loop.memory.table.k_at(LOAD) == 0, loop.decisions[-1].message


def test_the_busy_pod_that_falls_silent_is_missed() -> None:
    """Of ten requests two are still seen: three pods of four are no quorum then, nor a majority."""
    loop = begin(1)
    for _ in range(6):
        loop.now += TICK
        light, heavy = loop.window(3.0), loop.window(40.0)
        seen = {"a": light, "b": light, "heavy": heavy if len(loop.decisions) < 6 else SILENT}
        loop.see(Observation(loop.now, seen))
    assert loop.decisions[-1].reason is Reason.METRICS_PARTIAL
    assert not loop.decisions[-1].valid


def slowed() -> Run:
    """A fleet whose steps with drafts have just become three times as long; its table has changed a moment ago, so that
    the choice of tables waits, and nothing but the guard can cut drafts."""
    loop = run(Plant(conditional=(0.8,) * 5, noise=0.0))
    loop.play(*[LOAD] * 10)
    assert loop.memory.table.k_at(LOAD) > 0
    loop.plant.slow = dict.fromkeys(range(1, 6), 3.0)
    loop.memory = replace(loop.memory, changed_at=loop.now)
    loop.decisions.clear()
    return loop


def test_scrapes_rarer_than_looks_never_stop_the_guard() -> None:
    """Every second look brings no new scrape: that is no news, good or bad, and no reason to count anew."""
    loop = slowed()
    for _ in range(2):
        loop.now += TICK
        loop.see(Observation(loop.now, {"pod-00": Gap(Reason.COLLECTING, "no scrape since the last window")}))
        tell(loop, 1)
    assert [one.reason for one in loop.decisions if one.changed] == [Reason.GUARD]


def test_figures_that_were_missing_make_the_guard_count_anew() -> None:
    """The other way round: two slow windows with an outage between them are not two in a row."""
    loop = slowed()
    for _ in range(2):
        loop.now += TICK
        loop.see(Observation(loop.now, {"pod-00": SILENT}))
        tell(loop, 1)
    assert not any(one.changed for one in loop.decisions)


def test_pods_that_are_scraped_in_turns_never_stop_the_tuner() -> None:
    late = Gap(Reason.COLLECTING, "no scrape since the last window")
    loop = begin(2)
    for turn in range(6):
        loop.now += TICK
        window = loop.plant.window(loop.memory.table, LOAD, loop.now, seconds=2 * TICK)
        loop.see(Observation(loop.now, {f"pod-{n:02d}": window if turn % 2 == n else late for n in range(2)}))
    assert loop.memory.table.k_at(LOAD) == 0, loop.decisions[-1].message


def test_one_pod_that_says_it_runs_an_old_table_never_stops_the_tuner() -> None:
    """It may say so in turns, so that no waiting time ever ends."""
    loop = begin(19)
    for turn in range(4):
        loop.now += TICK
        window = replace(loop.window(LOAD), table_version=7)
        seen = {f"pod-{number:02d}": window for number in range(19)}
        odd = replace(window, table_version=6 if turn % 2 == 0 else 7)
        loop.see(Observation(loop.now, {**seen, "odd": odd}, table_version=7))
    assert loop.memory.table.k_at(LOAD) == 0, loop.decisions[-1].message


class TestOnePodThatLies:
    """It controls every figure that it exports, within what is plausible."""

    @staticmethod
    def enormous(honest: PodWindow) -> PodWindow:
        """A thousand times as many steps as the others made, every draft accepted."""
        steps = 10_000.0 * honest.seconds
        requests = steps * 100.0
        return replace(
            honest,
            steps=steps,
            decode_request_steps=requests,
            step_seconds=requests * 1e-4,
            generated_tokens=honest.first_tokens + requests * 5.0,
            drafts=requests,
            draft_tokens=4.0 * requests,
            accepted_tokens=4.0 * requests,
            accepted_per_position=(requests,) * 4,
        )

    def test_it_never_keeps_drafts_that_lose_on_the_others(self) -> None:
        """While nobody else drafts it may have drafts back, as long as writes are left; all pods cut them again."""
        loop, drafted = begin(99), []
        for _ in range(240):
            lie = self.enormous(loop.plant.window(loop.memory.table, LOAD, loop.now + TICK))
            tell(loop, 99, {"liar": lie})
            drafted.append(loop.memory.table.k_at(LOAD) > 0)
        assert sum(drafted[:60]) <= 8
        assert sum(drafted[60:]) <= 5

    @pytest.mark.parametrize(("others", "share"), [(2, 1 / 2), (6, 1 / 3), (99, 0.031)])
    def test_it_never_has_more_than_its_share_of_a_pool(self, others: int, share: float) -> None:
        plant, table = Plant(noise=0.0), KTable.constant(4, KNOBS.max_batch)
        honest = plant.window(table, LOAD, 0.0)
        lie = self.enormous(honest)
        look = pool([*[honest] * others, lie])
        assert look.acceptance_length is not None
        assert honest.acceptance_length is not None
        towards = (look.acceptance_length - honest.acceptance_length) / (5.0 - honest.acceptance_length)
        assert 0.0 < towards < share + 0.01

    def test_it_cannot_say_that_all_requests_wait(self) -> None:
        """Where they wait, drafts count for nothing."""
        honest = Plant(noise=0.0).window(KTable.constant(4, KNOBS.max_batch), LOAD, 0.0)
        windows = bound_claims([*[honest] * 9, replace(self.enormous(honest), ttft_seconds=1e30)])
        learned = learn_traffic(Traffic(), pool(windows), windows, [1.0] * 10, KNOBS.max_batch)
        assert 0.0 < learned.shares.before_first <= 0.26

    def test_its_silence_after_a_boast_never_stops_the_tuner(self) -> None:
        loop = begin(19)
        tell(loop, 19, {"liar": self.enormous(loop.plant.window(loop.memory.table, LOAD, loop.now + TICK))})
        for _ in range(3):
            tell(loop, 19, {"liar": SILENT})
        assert loop.memory.table.k_at(LOAD) == 0, loop.decisions[-1].message
