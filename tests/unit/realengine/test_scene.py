"""The harness' objects: what the operator makes of them, and that a retune needs no other process."""

from __future__ import annotations

from itertools import pairwise

import pytest

from realengine.e2e import retunes, tables, tuning
from realengine.scene import MAX_NUM_SEQS, Wish
from speculative_operator.api.convert import to_domain
from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.registry import engine_for

SCHEDULES = [retunes.schedule(k) for k in (0, 1, 2, 4)] + [tables.BY_LOAD]


@pytest.mark.parametrize("method", ["draft_model", "ngram", "eagle3"])
def test_each_pair_is_served_live(method: str) -> None:
    spec = to_domain(Wish(method, schedule=tables.BY_LOAD).manifest())
    engine = engine_for(spec)
    assert engine.refusals(spec) == ()
    assert engine.knobs(spec).actuator is Actuator.LIVE


def test_every_schedule_of_the_retunes_starts_the_same_process() -> None:
    lines = set()
    for schedule in SCHEDULES:
        spec = to_domain(Wish("draft_model", schedule=schedule).manifest())
        assert spec.speculation.schedule is not None
        lines.add(engine_for(spec).container(resolve(spec), spec.speculation.schedule).args)
    assert len(lines) == 1


def test_every_swept_k_is_one_that_the_operator_may_choose() -> None:
    """The engine takes no K that was not prepared at its start."""
    auto = to_domain(tuning.AUTO.manifest())
    knobs = engine_for(auto).knobs(auto)
    assert knobs.actuator is Actuator.LIVE
    assert knobs.ks == (0, 1, 2, 3, 4)


def test_every_step_from_one_k_to_another_occurs() -> None:
    steps = set(pairwise(retunes.ORDER))
    assert steps == {(a, b) for a in (0, 1, 2, 4) for b in (0, 1, 2, 4) if a != b}
    assert all(first != second for first, second in pairwise([*retunes.ORDER, *retunes.ORDER[1:]]))


@pytest.mark.parametrize("schedule", [*SCHEDULES, tables.CAP_BY_LOAD])
def test_schedules_are_whole(schedule: tuple[tuple[int, int, int], ...]) -> None:
    assert schedule[0][0] == 1
    assert schedule[-1][1] == MAX_NUM_SEQS
    assert all(one[1] + 1 == other[0] for one, other in pairwise(schedule))
    assert tables.k_at(schedule, 1) == schedule[0][2]


def test_the_best_k_of_the_rates_is_two_unless_drafting_is_free_or_very_dear() -> None:
    """Tokens per step over its cost, in steps without drafts; `dear` is a draft's share of such a step."""

    def speed(k: int, dear: float) -> float:
        return (1.0 + sum(tuning.RATES[:k])) / (1.0 + dear * k)

    for dear in (0.05, 0.1, 0.3, 0.6):
        speeds = {k: speed(k, dear) for k in range(5)}
        assert max(speeds, key=lambda k: speeds[k]) == 2


def test_a_run_off_compares_neighbours_on_a_machine_whose_speed_varies() -> None:
    machine = (1.0, 0.1, 0.2, 3.0, 1.0)
    measured = {2: [100.0 * speed for speed in machine], 3: [97.0 * speed for speed in machine], 1: [80.0] * 5}
    assert tuning.behind(measured, [3] * 40, 2) == pytest.approx(3.0)
    assert tuning.behind(measured, [3, 2], 2) == pytest.approx(1.5)
    measured[3][1] = 1.0
    assert tuning.behind(measured, [3], 2) == pytest.approx(3.0), "one turn that was disturbed decides nothing"
