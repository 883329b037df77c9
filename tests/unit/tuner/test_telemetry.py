"""What the payload tells beyond the engine's counters: used where it can be true, passed over where it cannot."""

from __future__ import annotations

import math
from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tuner.plant import CHAT, FACTS, KNOBS, Plant, policy, run, same

from speculative_operator.domain.observation import (
    BlockTotals,
    Comparison,
    Observation,
    PodWindow,
    StepCell,
)
from speculative_operator.domain.table import KTable
from speculative_operator.tuner import Memory, decide
from speculative_operator.tuner.acceptance import exact_sample, mean_sample
from speculative_operator.tuner.learning import learn
from speculative_operator.tuner.outlook import outlook
from speculative_operator.tuner.telemetry import behind, believable
from speculative_operator.tuner.traffic import pool

NOW = 1_700_000_000.0
EDGE = KTable.from_rows([[1, 20, 4], [21, 256, 1]])
"""At 20 requests, half of the steps have K = 4 and half K = 1."""
GOOD = Plant(telemetry=True).window(EDGE, 20, NOW)


def learned(memory: Memory, window: PodWindow, now: float = NOW) -> Memory:
    return learn(memory, {"a": window}, pool([window]), policy(), now)


def test_what_is_plausible_is_kept() -> None:
    assert believable(GOOD, KNOBS) is GOOD
    assert len({cell.k for cell in GOOD.cells}) == 2


def with_cell(*figures: float) -> PodWindow:
    return replace(GOOD, cells=(*GOOD.cells, StepCell(*figures)))  # type: ignore[arg-type]  # absurd on purpose


@pytest.mark.parametrize(
    "window",
    [
        with_cell(3, math.nan, 100.0, 1.0, 300.0),
        with_cell(3, 20.0, 1e9, 1e-300, 300.0),
        with_cell(9, 20.0, 100.0, 1.0, 300.0),
        with_cell(-1, 20.0, 100.0, 1.0, 300.0),
        with_cell(3, 1e4, 100.0, 1.0, 300.0),
        with_cell(3, 20.0, 100.0, 1.0, 1e9),
        with_cell(3, 20.0, 100.0, math.inf, 300.0),
        replace(GOOD, cells=tuple(replace(one, steps=9 * one.steps, seconds=9 * one.seconds) for one in GOOD.cells)),
        replace(GOOD, cells=GOOD.cells[:1]),
    ],
    ids=[
        *("not a number", "no time", "K above the largest", "K below 0", "too many requests", "too many tokens"),
        *("endless", "many more steps than the engine counts", "many fewer"),
    ],
)
def test_cells_that_cannot_be_are_passed_over_and_the_window_is_used(window: PodWindow) -> None:
    plain = believable(window, KNOBS)
    assert plain == replace(window, cells=())
    loop = run(Plant())
    loop.play(*[20] * 5)
    moved = replace(window, start=loop.now, end=loop.now + 10)
    found = [
        decide(loop.memory, Observation(loop.now + 10, {"a": one}), loop.policy, loop.now + 10)
        for one in (moved, replace(moved, cells=()))
    ]
    assert found[0][1] == found[1][1]
    assert found[0][1].valid
    assert same(found[0][0], found[1][0])


@pytest.mark.parametrize(
    "drafted",
    [(100.0,), (math.nan,) * 5, (-1.0,) * 5, (0.0,) * 5, (1e6, 2e6, 2e6, 2e6, 2e6)],
    ids=["too short", "not a number", "negative", "fewer than accepted", "rising"],
)
def test_drafts_by_position_that_cannot_be_are_passed_over(drafted: tuple[float, ...]) -> None:
    """And with them what was accepted: both come from the payload."""
    plain = replace(GOOD, drafted_per_position=(), accepted_per_position=())
    assert believable(replace(GOOD, drafted_per_position=drafted), KNOBS) == plain


def test_positions_of_other_instants_than_the_engines_drafts_hold_nothing() -> None:
    """The payload is scraped at its own instants: while load rises it may have seen more drafts than the engine."""
    loop = run(Plant())
    loop.play(*[20] * 5)
    more = tuple(2.0 * count for count in GOOD.accepted_per_position)
    window = replace(
        GOOD, start=loop.now, end=loop.now + 10, accepted_per_position=more,
        drafted_per_position=tuple(2.0 * count for count in GOOD.drafted_per_position),
    )  # fmt: skip
    assert loop.see(Observation(loop.now + 10, {"a": window})).valid


def test_survival_is_exact_whatever_k_were_mixed() -> None:
    """1,000 drafts of four and 3,000 of one: position 2 was tried by a quarter of those that position 1 was."""
    tried = (4000.0, 1000.0, 1000.0, 1000.0, 0.0)
    survival = np.cumprod(CHAT)
    accepted = tuple((np.array(tried) * survival).tolist())
    sample = exact_sample(tried, accepted, 1.75)
    conditionals = np.array(sample.accepted[:4]) / np.array(sample.reached[:4])
    assert conditionals == pytest.approx(np.array(CHAT[:4]))
    assert (sample.drafts, sample.mean_k) == (4000.0, 1.75)


def test_deep_positions_are_learned_at_the_edge_of_two_k() -> None:
    without = replace(GOOD, cells=(), drafted_per_position=())
    blind, seeing = (learned(Memory.fresh(EDGE, NOW), window).acceptance for window in (without, GOOD))
    assert blind.reached[1] == 0.0
    assert seeing.reached[3] > 100.0
    assert np.array(seeing.accepted[:4]) / np.array(seeing.reached[:4]) == pytest.approx(np.array(CHAT[:4]), rel=1e-6)


def test_costs_are_exact_at_the_edge_of_two_k() -> None:
    """A K that takes 30 % longer is found out from cells while the load moves over the edge between it and another."""
    errors = []
    for telemetry in (False, True):
        plant = Plant(noise=0.01, slow={4: 1.3}, telemetry=telemetry)
        memory = Memory.fresh(EDGE, NOW)
        for step in range(12):
            memory = learned(memory, plant.window(EDGE, 20, NOW + 10 * step), NOW + 10 * step)
        view = outlook(policy(), memory.costs, memory.acceptance, memory.traffic)
        believed = view.at(20, 4) - view.at(20, 1)
        errors.append(abs(believed - np.log(plant.speed(20, 4) / plant.speed(20, 1))))
    assert errors[1] < 0.03
    assert errors[1] < 0.5 * errors[0]


def test_steps_of_prompts_alone_are_no_steps_without_drafts() -> None:
    """Where the table drafts, K = 0 means that nothing decoded: such steps say nothing about K = 0."""
    prompts = StepCell(0, 1.0, 200.0, 200.0, 200.0, 400_000.0)
    window = replace(GOOD, cells=(*GOOD.cells, prompts), decode_request_steps=GOOD.decode_request_steps)
    assert believable(window, KNOBS) is window
    drafting, resting = (
        learned(Memory.fresh(table, NOW), window).last for table in (EDGE, KTable.from_rows([[1, 4, 0], [5, 256, 4]]))
    )
    assert {sample.k for sample in drafting} == {1.0, 4.0}
    assert {sample.k for sample in resting} == {0.0, 1.0, 4.0}


def test_looked_up_drafts_are_counted_by_the_k_that_was_asked_for() -> None:
    knobs = replace(KNOBS, draft_free=True, passes_at_zero=0.0)
    asked = policy(knobs=knobs, facts=replace(FACTS, speculator=None))
    found, memory = 0.4, Memory.fresh(EDGE, NOW)
    plant = Plant(knobs=knobs, telemetry=True)
    for step in range(1, 30):
        window = plant.window(EDGE, 20, NOW + 10 * step)
        assert window.drafts is not None
        assert window.draft_tokens is not None
        sparse = replace(
            window,
            drafts=window.drafts * found,
            draft_tokens=window.draft_tokens * found,
            accepted_per_position=tuple(found * count for count in window.accepted_per_position),
            accepted_tokens=(window.accepted_tokens or 0.0) * found,
            drafted_per_position=tuple(found * count for count in window.drafted_per_position),
        )
        memory = learn(memory, {"a": sparse}, pool([sparse]), asked, NOW + 10 * step)
    assert memory.traffic.draft_share == pytest.approx(found, abs=0.02)
    survival = np.cumprod(np.array(memory.acceptance.accepted[:4]) / np.array(memory.acceptance.reached[:4]))
    assert survival == pytest.approx(found * np.cumprod(CHAT)[:4], rel=0.02)


def test_only_an_older_version_is_behind() -> None:
    assert [behind(replace(GOOD, table_version=seen), 7) for seen in (None, 6, 7, 8)] == [False, True, False, False]
    assert not behind(replace(GOOD, table_version=6), None)


@pytest.mark.parametrize("mean_k", [1.0, 3.0, 4.4, 5.0])
@pytest.mark.parametrize("rate", [0.05, 0.4, 0.9])
def test_a_count_of_accepted_drafts_alone_scales_what_was_expected(mean_k: float, rate: float) -> None:
    """As many accepted in all, with the prior's shape."""
    prior = np.array([0.8, 0.7, 0.65, 0.6, 0.55])
    sample = mean_sample(1000.0, 1000.0 * mean_k * rate, mean_k, prior)
    assert sum(sample.accepted) == pytest.approx(1000.0 * mean_k * rate, rel=1e-4)
    found = np.array(sample.accepted) / np.array(sample.reached)
    assert np.all(np.diff(found) <= 1e-9)
    unclipped = found < 0.99
    ratios = (found / prior[: len(found)])[unclipped]
    assert ratios == pytest.approx(np.full(len(ratios), ratios[0]) if len(ratios) else ratios)


def test_an_engine_that_tells_no_positions_gathers_drafts() -> None:
    loop = run(Plant(conditional=(0.2, 0.1, 0.1, 0.1, 0.1)))
    bare = replace(loop.plant.window(KTable.constant(3, 256), 20, NOW), accepted_per_position=())
    memory = Memory.fresh(KTable.constant(3, 256), NOW)
    for _ in range(20):
        memory = learned(memory, bare, NOW)
        memory = replace(memory, seen=())
    view = outlook(policy(), memory.costs, memory.acceptance, memory.traffic)
    assert float(view.drafts.length[3]) == pytest.approx(1.0 + 0.2 + 0.02 + 0.002, rel=0.05)


BLOCKS = Comparison(
    k=3, against=4, first=18, last=24, blocks=2.0,
    trial=BlockTotals(32.0, 0.5, 640.0, 10.0, tokens=1400.0, decode_steps=20.0, decode_seconds=0.3),
    beside=BlockTotals(steps=64.0, seconds=1.1, requests=1280.0, request_seconds=22.0, tokens=3000.0),
    seconds_square=0.01, tokens_square=0.02,
)  # fmt: skip
TRYING = replace(GOOD, comparisons=(BLOCKS,))


def of(side: str, **changes: float) -> Comparison:
    return replace(BLOCKS, **{side: replace(getattr(BLOCKS, side), **changes)})


def test_a_comparison_that_can_be_is_kept() -> None:
    assert believable(TRYING, KNOBS) is TRYING


IMPOSSIBLE = {
    "K outside the knobs": replace(BLOCKS, k=6),
    "K in force outside the knobs": replace(BLOCKS, against=-1),
    "a K beside itself": replace(BLOCKS, k=4),
    "no request": replace(BLOCKS, first=0),
    "the last before the first": replace(BLOCKS, last=17),
    "more requests than are scheduled": replace(BLOCKS, last=257),
    "no block": replace(BLOCKS, blocks=0.0),
    "more blocks than steps": replace(BLOCKS, blocks=33.0),
    "blocks that are no number": replace(BLOCKS, blocks=math.nan),
    "a square below 0": replace(BLOCKS, tokens_square=-0.1),
    "a square of blocks 20,000 times as fast": replace(BLOCKS, seconds_square=201.0),
    "no step beside": of("beside", steps=0.0),
    "steps without end": of("trial", steps=math.inf, requests=math.inf),
    "steps of no time": of("trial", seconds=1e-9, request_seconds=1e-7),
    "steps without requests": of("trial", requests=20.0),
    "more requests than fit": of("beside", requests=64 * 300.0),
    "less time for all requests than for one": of("trial", request_seconds=0.4),
    "more time than all requests could have": of("trial", request_seconds=0.5 * 300),
    "no token": of("trial", tokens=0.0),
    "more tokens than K and one": of("trial", tokens=640.0 * 4.3),
    "steps without prompts below nothing": of("beside", decode_steps=-1.0),
    "steps without prompts that are no number": of("beside", decode_steps=math.nan),
    "more steps without prompts than steps": of("trial", decode_steps=40.0),
    "steps without prompts that took no time": of("trial", decode_seconds=0.0),
    "steps without prompts that took longer than all": of("trial", decode_seconds=0.6),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_comparison_that_cannot_be_takes_all_of_the_pod_along(name: str) -> None:
    window = replace(GOOD, comparisons=(BLOCKS, IMPOSSIBLE[name]))
    assert believable(window, KNOBS) == GOOD


def times(factor: float) -> Comparison:
    """The same blocks, so many times."""
    return replace(
        BLOCKS, blocks=factor * BLOCKS.blocks, seconds_square=0.0, tokens_square=0.0,
        trial=BlockTotals(*(factor * value for value in astuple(BLOCKS.trial))),
        beside=BlockTotals(*(factor * value for value in astuple(BLOCKS.beside))),
    )  # fmt: skip


def test_no_more_steps_were_compared_than_ran() -> None:
    """But for one comparison whose first blocks may lie in the window before."""
    most = (1.5 * GOOD.steps + 20 + 256) / 32
    assert believable(replace(GOOD, comparisons=(times(0.99 * most),)), KNOBS).comparisons
    assert believable(replace(GOOD, comparisons=(times(1.01 * most),)), KNOBS) == GOOD
    assert believable(replace(GOOD, comparisons=(times(0.51 * most), times(0.51 * most))), KNOBS) == GOOD


figures = st.floats() | st.sampled_from([0.0, -1.0, 1.0, 1e300, math.nan, math.inf])
sums = st.builds(BlockTotals, figures, figures, figures, figures, figures, figures)
ks = st.integers(-2, 9)
comparisons = st.builds(Comparison, ks, ks, ks, st.integers(-1, 500), figures, sums, sums, figures, figures)


@given(st.lists(comparisons, max_size=3).map(tuple))
def test_whatever_is_told_either_stays_and_is_finite_or_goes(told: tuple[Comparison, ...]) -> None:
    found = believable(replace(GOOD, comparisons=told), KNOBS)
    assert replace(found, comparisons=()) == GOOD
    assert found.comparisons in ((), told)
    for one in found.comparisons:
        for totals in (one.trial, one.beside):
            speed = math.log(totals.tokens / totals.request_seconds)
            assert math.isfinite(speed)


@given(st.floats(1.0, 5.0), st.floats(1e-4, 1.0), st.integers(1, 24), st.floats(0.01, 100.0))
def test_blocks_as_engines_have_them_are_kept(length: float, period: float, batch: int, blocks: float) -> None:
    """Whatever a step takes and yields, also of a pod that counts for a part only."""
    steps = 16.0 * blocks

    def side(k: int) -> BlockTotals:
        tokens = steps * batch * min(length, k + 1)
        return BlockTotals(
            steps, steps * period, steps * batch, steps * batch * period, tokens, steps / 4, steps * period / 5
        )

    one = Comparison(2, 5, 1, 24, blocks, side(2), side(5), 0.03 * blocks, 0.01 * blocks)
    window = replace(GOOD, steps=max(GOOD.steps, 2 * steps), cells=(), comparisons=(one,))
    assert believable(window, KNOBS) is window
