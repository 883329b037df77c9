"""The plant: nothing is lost or made up, what it exports agrees with itself, seeds decide everything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.tuner.named import RECIPES, named
from speculative_lab.plant import law
from speculative_lab.plant import layout as at
from speculative_lab.plant.draw import world
from speculative_lab.plant.law import EPOCH, Pod
from speculative_lab.plant.serving import constant, fresh, until, with_table
from speculative_lab.plant.texts import accepted
from speculative_lab.plant.types import Floats, State
from speculative_lab.plant.windows import histogram, scrape, window
from speculative_lab.plant.world import World
from speculative_operator.domain.observation import PodWindow
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.telemetry import absurdity, believable

NUMBERS = (0, 1, 5, 8, 11, 14)
SECONDS = 120.0


def served(number: int, k: int) -> tuple[World, State]:
    """The first replica of a world after two minutes under one K."""
    drawn = world(3, number, SECONDS)
    replica = replace(drawn.replicas[0], restart=None)
    state = fresh(replica, drawn.top_k, SECONDS)
    until(state, replica, constant(drawn, k), SECONDS)
    return drawn, state


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("k", [0, 3])
def test_every_token_and_request_is_somewhere(number: int, k: int) -> None:
    _, state = served(number, k)
    counters, req, now = state.counters, state.req, state.now
    assert counters[at.G] == req[:, at.MADE].sum() > 0
    inside = now[at.RUNNING] + now[at.TAIL] - now[at.HEAD]
    assert counters[at.CAME_IN] == counters[at.FINISHED] + counters[at.REJECTED] + inside
    over = req[req[:, at.ENDED] >= 0]
    assert len(over) == counters[at.FINISHED]
    assert (over[:, at.MADE] == over[:, at.OUT]).all()
    assert (req[:, at.MADE] <= req[:, at.OUT]).all()
    assert (over[:, at.FIRST] > over[:, at.CAME]).all()
    running = state.running[: int(now[at.RUNNING])]
    assert now[at.KV] == pytest.approx((req[running, at.CONTEXT] + req[running, at.LEFT]).sum())


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("k", [0, 2, 4])
def test_what_it_exports_agrees_with_itself(number: int, k: int) -> None:
    drawn, state = served(number, k)
    replica = drawn.replicas[0]
    before = scrape(fresh(replica, drawn.top_k, SECONDS), EPOCH)
    seen = window(state, before, scrape(state, EPOCH + SECONDS), float(replica.machine.par[at.KV_CAPACITY]), 1)
    assert absurdity(seen, drawn.policy.knobs) is None
    assert believable(seen, drawn.policy.knobs) == seen
    assert sum(cell.steps for cell in seen.cells) == seen.steps
    assert sum(cell.tokens for cell in seen.cells) == seen.generated_tokens
    assert sum(seen.drafted_per_position) == seen.draft_tokens
    assert sum(seen.accepted_per_position) == seen.accepted_tokens
    assert sum(count for _, count in seen.ttft_histogram) == seen.first_tokens
    assert bool(seen.draft_tokens) == (k > 0)
    _gains_agree(seen, k)


def _gains_agree(seen: PodWindow, k: int) -> None:
    """Without drafts a token a request-step, with drafts at most K more."""
    assert seen.tokens_per_step is not None
    if k == 0:
        assert seen.tokens_per_step == pytest.approx(1.0)
    else:
        assert 1.0 <= seen.tokens_per_step <= k + 1


def test_a_bucket_holds_what_is_at_most_its_bound() -> None:
    assert histogram(np.array([0.5, 1.0, 1.5]), (1.0, 2.0, np.inf)) == ((1.0, 2.0), (2.0, 1.0), (np.inf, 0.0))


def _at_zero(off: bool, tail: int | None = None) -> tuple[State, World]:
    """Two minutes at K = 0, or one and then one at `tail`."""
    drawn = world(3, 1, SECONDS)
    drawn = drawn.with_skip() if off else drawn
    replica = replace(drawn.replicas[0], restart=None)
    state = fresh(replica, drawn.top_k, SECONDS)
    until(state, replica, constant(drawn, 0), SECONDS / 2)
    until(state, replica, constant(drawn, 0 if tail is None else tail), SECONDS)
    return state, drawn


def test_off_is_faster_than_k_0_and_leaves_gaps() -> None:
    (soft, _), (off, drawn) = _at_zero(off=False), _at_zero(off=True)
    assert drawn.policy.knobs.passes_at_zero == 0
    per = [state.now[at.NOW] / state.counters[at.G] for state in (soft, off)]
    assert per[1] < 0.99 * per[0]
    assert soft.req[:, at.GAPPED].sum() == 0
    assert off.req[:, at.GAPPED].max() > 32.0


def test_drafts_of_requests_with_gaps_are_worse_until_they_end() -> None:
    state, drawn = _at_zero(off=True, tail=2)
    machine, request = drawn.replicas[0].machine, state.req[0].copy()
    request[[at.CONTEXT, at.DRAFTED, at.MADE, at.OUT]] = 400.0, 4.0, 100.0, 500.0
    found = []
    for missing in (0.0, 400.0):
        request[at.GAPPED] = missing
        found.append(np.mean([accepted(machine, request_at(request, made), 4, 0.0) for made in range(300)]))
    assert found[1] < found[0]


def _catching_up() -> tuple[Pod, list[bool]]:
    """A pod that was off for a minute with drafts that catch up, and what its blocks are told of each step after it."""
    numbers = (world(3, number, SECONDS) for number in range(40))
    drawn = next(one for one in numbers if one.traits["method"] == "draft_model").with_skip()
    off = law.Order(1, KTable.constant(0, drawn.policy.knobs.max_batch), (), 0.0)
    pod, told = law.pod_of("pod-0", drawn.replicas[0], drawn, off, law.PLUG_IN), list[bool]()
    law._serve_on(pod, SECONDS / 2)
    count = pod.blocks.count

    def counted(*step: Any) -> None:
        told.append(step[-1])
        count(*step)

    pod.blocks.count = counted
    return pod, told


def test_blocks_are_told_in_which_steps_the_drafter_catches_up() -> None:
    pod, told = _catching_up()
    missing = float(pod.state.req[:, at.GAPPED].sum())
    assert missing > 0
    pod.blocks.put_in_force([(1, 256, 2)], None, 0)
    law._serve_on(pod, SECONDS / 2 + 10.0)
    assert 0 < sum(told) <= missing / at.CATCHING_TOKENS + 2
    assert told == sorted(told, reverse=True)
    assert not told[-1]


def request_at(request: Floats, made: int) -> Floats:
    """The same request with that many tokens made, for another draw."""
    moved = request.copy()
    moved[at.MADE] = made
    return moved


def test_no_drafter_has_nothing_to_leave_out() -> None:
    drawn = next(one for one in (world(3, n, 60.0) for n in range(40)) if one.policy.knobs.draft_free)
    assert drawn.with_skip() is drawn


def test_the_same_seed_gives_the_same_world() -> None:
    runs = [with_table(drawn, constant(drawn, 2)) for drawn in (world(3, 1, SECONDS), world(3, 1, SECONDS))]
    assert np.array_equal(runs[0].minutes, runs[1].minutes)
    assert world(3, 1, SECONDS).traits == world(3, 1, SECONDS).traits


def test_worlds_differ_by_seed_and_number() -> None:
    drawn = [world(seed, number, SECONDS) for seed in (3, 4) for number in (0, 1)]
    assert len({w.replicas[0].machine.par[at.TOKEN_SECONDS] for w in drawn}) == 4


def test_a_text_that_fails_at_a_place_fails_there_under_every_k() -> None:
    drawn = world(3, 1, SECONDS)
    replica = drawn.replicas[0]
    rows = replica.requests[:50]
    found = np.array([[accepted(replica.machine, row, k, 0.0) for k in (0, 1, 2, 4)] for row in rows])
    assert (found[:, 0] == 0).all()
    for place, k in enumerate((0, 1, 2)):
        assert (found[:, place] == np.minimum(found[:, 3], k)).all()
    assert 0 < found[:, 3].mean() < 4


def test_fixed_worlds_are_few_and_differ() -> None:
    names = [named(number, 60.0).name for number in range(len(RECIPES))]
    assert len(set(names)) == len(names) <= 30
