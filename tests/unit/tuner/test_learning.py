"""Windows become evidence once, whoever they come from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.tuner.plant import CHAT, FACTS, KNOBS, Plant, policy, run

from speculative_operator.domain.observation import PodWindow
from speculative_operator.domain.table import KTable
from speculative_operator.tuner import Memory
from speculative_operator.tuner.learning import learn
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
    assert twice.costs == once.costs


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
    assert three.costs.precision[0] > 2 * one.costs.precision[0]


def test_windows_with_preemptions_or_few_steps_teach_no_cost() -> None:
    window = Plant().window(TABLE, 20, NOW)
    for odd in (replace(window, preemptions=1.0), Plant().window(TABLE, 1, NOW, seconds=0.2)):
        assert learned(Memory.fresh(TABLE, NOW), {"a": odd}).costs.per_k == ()


def test_a_pod_without_speculator_teaches_the_verifiers_cost() -> None:
    window = Plant().window(KTable.constant(0, 256), 20, NOW)
    bare = replace(window, drafts=None, draft_tokens=None, accepted_tokens=None, accepted_per_position=())
    memory = learned(Memory.fresh(TABLE, NOW), {"a": bare})
    assert memory.costs.precision[0] > 0
    assert memory.costs.precision[3 * 5 + 3] == 0  # nothing about drafting
    assert memory.acceptance.reached == ()


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
