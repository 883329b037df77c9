"""Windows become evidence once, whoever they come from."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.tuner.plant import CHAT, FACTS, KNOBS, Plant, policy, run, same

from speculative_operator.domain.observation import PodWindow, StepCell
from speculative_operator.domain.table import KTable
from speculative_operator.tuner import Memory
from speculative_operator.tuner.learning import learn
from speculative_operator.tuner.prior import TERMS, basis_of
from speculative_operator.tuner.traffic import pool

NOW = 1_700_000_000.0
TABLE = KTable.constant(3, 256)


def learned(memory: Memory, windows: dict[str, PodWindow], now: float = NOW) -> Memory:
    return learn(memory, windows, pool(list(windows.values())), policy(), now)


def test_a_window_seen_twice_counts_once() -> None:
    window = Plant().window(TABLE, 20, NOW)
    once = learned(Memory.fresh(TABLE, NOW), {"a": window})
    twice = learned(once, {"a": window})
    assert twice.acceptance == once.acceptance
    assert twice.traffic == once.traffic
    assert same(twice.costs, once.costs)


def test_an_overlapping_window_counts_by_its_new_part() -> None:
    plant = Plant(noise=0.0)
    first = learned(Memory.fresh(TABLE, NOW), {"a": plant.window(TABLE, 20, NOW)})
    whole = learned(first, {"a": plant.window(TABLE, 20, NOW + 10)}, NOW + 10)
    half = learned(first, {"a": plant.window(TABLE, 20, NOW + 5)}, NOW + 5)
    gained = [m.acceptance.drafts - first.acceptance.drafts * 0.9 for m in (whole, half)]
    assert gained[0] > gained[1] > 0


def test_replicas_add_up() -> None:
    plant = Plant()
    windows = {name: plant.window(TABLE, 20, NOW) for name in "abc"}
    one = learned(Memory.fresh(TABLE, NOW), {"a": windows["a"]})
    three = learned(Memory.fresh(TABLE, NOW), windows)
    assert three.acceptance.drafts == pytest.approx(3 * one.acceptance.drafts, rel=0.05)
    assert np.trace(three.costs.precision) > 2 * np.trace(one.costs.precision)


def test_windows_with_preemptions_or_few_steps_teach_no_cost() -> None:
    window = Plant().window(TABLE, 20, NOW)
    for odd in (replace(window, preemptions=1.0), Plant().window(TABLE, 1, NOW, seconds=0.05)):
        assert not learned(Memory.fresh(TABLE, NOW), {"a": odd}).costs.precision.any()
    assert learned(Memory.fresh(TABLE, NOW), {"a": window}).costs.precision.any()


def test_a_longer_window_says_more_up_to_a_point() -> None:
    traces = [
        np.trace(
            learned(Memory.fresh(TABLE, NOW), {"a": Plant(noise=0.0).window(TABLE, 20, NOW, seconds)}).costs.precision
        )
        for seconds in (2.0, 5.0, 10.0, 60.0, 600.0)
    ]
    assert all(longer > shorter * (1.0 - 1e-12) for shorter, longer in itertools.pairwise(traces))
    assert traces[-1] < 10 * traces[1]


def test_a_load_that_moved_and_prompts_in_lumps_count_less() -> None:
    plant = Plant(noise=0.0)
    first = learned(Memory.fresh(TABLE, NOW), {"a": plant.window(TABLE, 20, NOW)})

    def gained(batch: float, **plants: float) -> float:
        window = Plant(noise=0.0, **plants).window(TABLE, batch, NOW + 10)  # type: ignore[arg-type]  # numbers by name
        known = learned(first, {"a": window}, NOW + 10).costs.precision
        return float(np.trace(known) / np.trace(first.costs.precision))

    assert gained(20) > gained(60)
    assert gained(20, prompt_ratio=0.1) > gained(20, prompt_ratio=30.0)


def test_a_pod_without_speculator_teaches_the_verifiers_cost() -> None:
    memory = learned(Memory.fresh(TABLE, NOW), {"a": Plant().bare(20, NOW)})
    known = np.diag(memory.costs.precision)
    assert known[TERMS.index("fixed")] > 0
    assert known[TERMS.index("drafting")] == 0
    assert np.all(known[len(TERMS) + basis_of(KNOBS).knots :] == 0)  # no K
    assert memory.acceptance.reached == ()


def test_cells_where_they_are_exported_teach_each_k() -> None:
    plant = Plant(noise=0.0)
    cells = tuple(
        StepCell(k, b, 100.0, 100.0 * plant.seconds(b, k), 100.0 * b * plant.length(k))
        for k, b in ((3, 20.0), (4, 10.0))
    )
    window = replace(plant.window(TABLE, 20, NOW), cells=cells)
    known = np.diag(learned(Memory.fresh(TABLE, NOW), {"a": window}).costs.precision)
    by_k = dict(zip(KNOBS.ks, known[len(TERMS) + basis_of(KNOBS).knots :], strict=True))
    assert {k for k, precision in by_k.items() if precision > 0} == {3, 4}


def test_a_pod_that_began_anew_is_read_from_its_own_start() -> None:
    plant = Plant(noise=0.0)
    first = learned(Memory.fresh(TABLE, NOW), {"a": plant.window(TABLE, 20, NOW)})
    again = learned(first, {"a": plant.window(TABLE, 20, NOW + 60, seconds=5.0)}, NOW + 60)
    assert again.acceptance.drafts > first.acceptance.drafts * 0.3
    assert again.seen[0][1] == NOW + 60


def test_a_clock_that_steps_back_multiplies_nothing() -> None:
    plant = Plant()
    first = learned(Memory.fresh(TABLE, NOW), {"a": plant.window(TABLE, 20, NOW)})
    for back in (60.0, 3600.0, 1e9):
        then = learned(first, {"b": plant.window(TABLE, 20, NOW - back)}, NOW - back)
        assert then.acceptance.drafts < 3 * first.acceptance.drafts
        assert np.trace(then.costs.precision) < 3 * np.trace(first.costs.precision)


def test_context_and_prompt_share_follow_the_load() -> None:
    loop = run(Plant(context=3000.0, prompt_ratio=2.0))
    loop.play(*[20] * 5)
    assert loop.memory.traffic.context == pytest.approx(3000.0, rel=0.02)
    assert loop.memory.traffic.prompt_ratio == pytest.approx(2.0, rel=0.02)


def test_looked_up_drafts_are_priced_by_how_often_they_are_found() -> None:
    knobs = replace(KNOBS, draft_free=True, passes_at_zero=0.0)
    asked = policy(knobs=knobs, facts=replace(FACTS, speculator=None))
    memory = Memory.fresh(TABLE, NOW)
    plant = Plant(knobs=knobs)
    for step in range(1, 30):
        window = plant.window(TABLE, 20, NOW + 10 * step)
        assert window.drafts is not None
        assert window.draft_tokens is not None
        found = 0.4
        sparse = replace(
            window,
            drafts=window.drafts * found,
            draft_tokens=window.draft_tokens * found,
            accepted_per_position=tuple(found * count for count in window.accepted_per_position),
            accepted_tokens=(window.accepted_tokens or 0.0) * found,
        )
        memory = learn(memory, {"a": sparse}, pool([sparse]), asked, NOW + 10 * step)
    assert memory.traffic.draft_share == pytest.approx(found, abs=0.02)
    reached, accepted = memory.acceptance.reached[0], memory.acceptance.accepted[0]
    assert accepted / reached == pytest.approx(found * CHAT[0], rel=0.02)
