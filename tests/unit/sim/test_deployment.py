"""One deployment: what goes in comes out, counters tell the truth, time and memory follow the plant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sim.rigs import CODE, arriving, knobs, plant, steady

from speculative_lab.sim import layout as at
from speculative_lab.sim.deployment import Deployment
from speculative_lab.sim.drafts import Drafts
from speculative_lab.sim.plant import perturbed
from speculative_lab.sim.workload import Lengths, Workload
from speculative_operator.domain.table import KTable

MIXED = KTable.from_rows([[1, 8, 5], [9, 32, 2], [33, 64, 0]])


def at_once(prompt: list[int], output: list[int]) -> Workload:
    """These requests, all at time 0."""
    count = len(prompt)
    return Workload(np.array(prompt), np.array(output), np.zeros(count, dtype=np.int64), (CODE,), np.zeros(count))


def test_every_request_comes_out_with_its_tokens_once() -> None:
    load = arriving(12.0, 60.0)
    run = Deployment(plant(), load, table=MIXED, seed=4)
    run.advance(400.0)
    totals = run.totals()
    assert totals.alive == 0
    assert totals.finished == len(load.prompt)
    assert sorted(totals.row.tolist()) == list(range(len(load.prompt)))
    assert totals.output.tolist() == load.output[totals.row].tolist()
    assert totals.tokens == load.output.sum()
    assert totals.lost_tokens == 0
    seen = run.counters(0)
    assert seen[at.GENERATION] == load.output.sum()
    assert seen[at.PROMPTS] == load.prompt.sum()
    assert seen[at.FIRST_TOKENS] == seen[at.FINISHED] == len(load.prompt)
    assert load.arrival is not None
    assert totals.request_seconds == pytest.approx((totals.end - load.arrival[totals.row]).sum(), rel=1e-9)
    assert seen[at.FIRST_SECONDS] == pytest.approx(totals.ttft.sum(), rel=1e-9)
    assert len(run.totals().row) == 0, "requests are told once"


def test_a_neighbour_makes_all_steps_of_its_spells_longer_and_the_same_ones_for_everybody() -> None:
    alone = plant(noise=0.0)
    crowded = plant(noise=0.0, neighbour_factor=1.5, neighbour_share=0.3, neighbour_seconds=4.0)
    seen = []
    for table in (MIXED, KTable.from_rows([[1, 64, 1]])):
        run = Deployment(crowded, steady(40), table=table, seed=2, log_steps=100_000)
        run.advance(200.0)
        steps = run.steps(0)
        began = steps.end - steps.seconds
        expected = alone.step_seconds(steps.batch, steps.k, steps.context / np.maximum(steps.batch, 1), steps.prefill)
        busy = steps.seconds > 1.2 * expected
        spell = np.floor(began / 4.0).astype(int)
        at_work = {int(one) for one in np.unique(spell) if busy[spell == one].all()}
        assert all(busy[spell == one].all() or not busy[spell == one].any() for one in np.unique(spell))
        assert 8 <= len(at_work) <= 22
        seen.append(at_work)
    assert seen[0] == seen[1]


def test_counters_agree_with_the_steps_they_count() -> None:
    run = Deployment(plant(noise=0.05), steady(40), table=MIXED, seed=2, log_steps=100_000)
    run.advance(120.0)
    seen, steps = run.counters(0), run.steps(0)
    assert seen[at.STEPS] == np.count_nonzero(steps.emitted)
    assert seen[at.BUSY_SECONDS] == pytest.approx(steps.seconds.sum())
    assert seen[at.REQUEST_STEPS] + seen[at.FIRST_TOKENS] == pytest.approx(
        seen[at.GENERATION] - steps.accepted.sum(), rel=2e-3
    )
    assert seen[at.REQUEST_STEPS] == steps.batch.sum()
    assert seen[at.DRAFTED] == steps.drafted.sum() == steps.by_accepted.sum()
    assert seen[at.DRAFT_TOKENS] == steps.draft_tokens.sum()
    assert seen[at.ACCEPTED] == steps.accepted.sum() == (steps.by_accepted * np.arange(6)).sum()
    assert seen[at.GENERATION] == steps.emitted.sum()
    assert seen[at.STEP_TOKENS] == seen[at.PROMPTS] + seen[at.GENERATION]
    assert np.all(steps.accepted <= steps.draft_tokens)
    assert np.all(np.diff(steps.end) > 0)


def test_a_step_takes_what_the_plant_says() -> None:
    """Every step whose K did not just change, of a plant with all shapes at once."""
    own = perturbed(plant(knobs=knobs(capture_sizes=(1, 8, 32, 64), capture_ceiling_tokens=64), eager_seconds=2e-3),
                    np.random.default_rng(3))  # fmt: skip
    load = steady([(0.0, 4), (20.0, 30), (40.0, 60)])
    run = Deployment(own, load, table=MIXED, log_steps=50_000)
    run.advance(60.0)
    steps = run.steps(0)
    even = (steps.k == steps.next_k) & (steps.batch > 0) & (steps.draft_tokens == steps.batch * steps.k)
    assert np.count_nonzero(even) > 2000
    assert set(np.unique(steps.k[even])) == {0.0, 2.0, 5.0}
    expected = own.step_seconds(steps.batch, steps.k, steps.context / np.maximum(steps.batch, 1), steps.prefill)
    assert steps.seconds[even] == pytest.approx(expected[even], rel=1e-9)


def test_experts_are_priced_as_the_plant_says() -> None:
    base = plant()
    own = replace(base, costs=replace(base.costs, expert_fixed=5e-3, expert_reach=1 / 16))
    run = Deployment(own, steady(6), table=KTable.constant(3, 64), log_steps=50_000)
    run.advance(20.0)
    steps = run.steps(0)
    even = steps.batch == 6
    expected = own.step_seconds(6, 3, steps.context / 6, steps.prefill)
    assert steps.seconds[even] == pytest.approx(expected[even], rel=1e-9)


def test_without_drafter_a_step_takes_the_verifiers_time() -> None:
    own = plant()
    run = Deployment(own, steady(6), off=True, log_steps=10_000)
    run.advance(20.0)
    steps = run.steps(0)
    assert not steps.draft_tokens.any()
    expected = own.plain_seconds(steps.batch, steps.context / np.maximum(steps.batch, 1), steps.prefill)
    assert steps.seconds == pytest.approx(expected, rel=1e-9)


def test_noise_has_the_mean_and_spread_it_was_given() -> None:
    own = plant(noise=0.2)
    run = Deployment(own, steady(3, prompt=Lengths(1)), table=KTable.constant(2, 64), log_steps=50_000)
    run.advance(200.0)
    steps = run.steps(0)
    even = (steps.batch == 3) & (steps.prefill == 0)
    ratio = steps.seconds[even] / own.step_seconds(3, 2, steps.context[even] / 3, 0)
    assert ratio.mean() == pytest.approx(1.0, abs=0.01)
    assert ratio.std() == pytest.approx(0.2, rel=0.05)
    assert abs(np.corrcoef(ratio[1:], ratio[:-1])[0, 1]) < 0.03


@pytest.mark.parametrize("k", [0, 3])
def test_littles_law_holds_at_the_analytic_step_time(k: int) -> None:
    """Poisson arrivals settle at b = rate x output x T(b) / AL; T takes in the prompts that b brings per step."""
    own, rate, prompt, output = plant(), 12.0, 300.0, 200.0
    load = arriving(rate, 1500.0, prompt=Lengths(prompt), output=Lengths(output))
    run = Deployment(own, load, table=KTable.constant(k, 64))
    run.advance(100.0)
    before = run.counters(0)
    run.advance(1500.0)
    seen = run.counters(0) - before
    length = CODE.length(k)
    request_steps = (output - 1 + (length - 1) / 2) / length  # the last step is cut: half of AL - 1 tokens too many
    b, step = 10.0, 0.01
    for _ in range(200):
        step = float(own.step_seconds(b, k, prompt + output / 2, rate * prompt * step))
        b = rate * request_steps * step
    assert seen[at.STEP_SECONDS] / 1400.0 == pytest.approx(b, rel=0.03)


def test_little_is_exact_for_the_books() -> None:
    """A closed loop holds as many requests as it is told, so their time in the system is that times the clock."""
    run = Deployment(plant(), steady([(0.0, 9), (30.0, 21)]), table=MIXED)
    run.advance(30.0)
    assert run.totals().request_seconds == pytest.approx(9 * 30.0, rel=1e-9)
    run.advance(50.0)
    assert run.totals().request_seconds == pytest.approx(9 * 30.0 + 21 * 20.0, rel=1e-9)
    assert run.totals().alive == 21


def test_fewer_wanted_requests_drain_and_come_back() -> None:
    run = Deployment(plant(), steady([(0.0, 30), (20.0, 0), (60.0, 5)]), table=MIXED)
    run.advance(59.0)
    assert run.totals().alive == 0
    assert run.load(0) == (0, 0)
    run.advance(61.0)
    assert run.totals().alive == 5


def test_k_is_looked_up_by_scheduled_requests_and_counts_one_step_later() -> None:
    run = Deployment(plant(), arriving(20.0, 60.0), table=MIXED, log_steps=50_000)
    run.advance(60.0)
    steps = run.steps(0)
    dense = np.array(plant().dense(MIXED))
    assert np.array_equal(steps.next_k, dense[steps.scheduled.astype(int)])
    assert len(np.unique(steps.next_k)) > 1
    assert np.array_equal(steps.k[1:], steps.next_k[:-1])
    assert np.all(steps.draft_tokens <= steps.batch * steps.k)


def test_a_new_table_waits_for_its_delay_and_one_step_more() -> None:
    run = Deployment(plant(), steady(4), table=KTable.constant(5, 64), log_steps=50_000)
    run.advance(10.0)
    run.set_table(KTable.constant(2, 64), delay=1.5)
    run.advance(20.0)
    steps = run.steps(0)
    starts = steps.end - steps.seconds
    assert np.all(steps.next_k[starts < 11.5 - 1e-9] == 5)
    assert np.all(steps.next_k[starts > 11.5 + 1e-9] == 2)
    changed = int(np.argmax(steps.k == 2))
    assert (steps.k[changed - 1], steps.next_k[changed - 1]) == (5, 2)


def test_decoding_goes_first_and_prompts_share_what_is_left_of_the_budget() -> None:
    own = plant(max_batched_tokens=128)
    load = steady(12, prompt=Lengths(500), output=Lengths(400))
    run = Deployment(own, load, table=KTable.constant(3, 64), log_steps=50_000)
    run.advance(60.0)
    steps = run.steps(0)
    decoded = steps.batch + steps.draft_tokens
    assert (decoded + steps.prefill).max() == 128
    assert decoded.max() == 48
    full = (steps.prefill > 0) & (decoded + steps.prefill == 128)
    assert np.count_nonzero(full) > 100
    assert run.counters(0)[at.PROMPTS] == 500 * run.counters(0)[at.FIRST_TOKENS]


def test_a_budget_below_the_drafts_cuts_them() -> None:
    run = Deployment(plant(max_batched_tokens=20), steady(10), table=KTable.constant(5, 64), log_steps=50_000)
    run.advance(60.0)
    steps = run.steps(0)
    assert (steps.batch + steps.draft_tokens + steps.prefill).max() <= 20
    assert run.totals().finished > 10


def test_seats_bound_the_running_requests_and_order_is_kept() -> None:
    run = Deployment(plant(knobs=knobs(max_batch=8)), steady(20), table=KTable.constant(2, 8), log_steps=50_000)
    run.advance(60.0)
    assert run.steps(0).scheduled.max() == 8
    assert sum(run.load(0)) == 20
    done = run.totals()
    starts = done.end - done.ttft
    assert np.median(starts) > 0


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 60), st.integers(60, 4000), st.sampled_from([1, 16, 128]), st.integers(0, 3))
def test_kv_is_never_over_its_capacity(requests: int, capacity: int, block: int, seed: int) -> None:
    own = plant(kv_tokens=capacity, block_size=block)
    run = Deployment(own, steady(requests), table=MIXED, seed=seed)
    for until in np.arange(0.5, 20.0, 0.7):
        run.advance(float(until))
        for text in run.exposition().values():
            usage = float(text.split("vllm:kv_cache_usage_perc", 1)[1].split("} ", 1)[1].split("\n", 1)[0])
            assert 0.0 <= usage <= 1.0
    totals = run.totals()
    assert totals.alive == requests
    assert totals.tokens >= totals.output.sum()
    assert totals.output.tolist() == run.workload.output[totals.row].tolist()


def test_preemption_takes_the_youngest_and_computes_again() -> None:
    """Four requests fit at first and outgrow the pool: some are sent back, none is lost, no token is counted twice."""
    load = at_once([100] * 4, [400] * 4)
    run = Deployment(plant(kv_tokens=1200), load, table=KTable.constant(2, 64), log_steps=50_000)
    run.advance(100.0)
    seen, totals, steps = run.counters(0), run.totals(), run.steps(0)
    assert seen[at.PREEMPTIONS] > 0
    assert totals.finished == 4
    assert totals.tokens == seen[at.GENERATION] == 1600
    assert seen[at.FIRST_TOKENS] == 4
    assert seen[at.PROMPTS] == 400, "prompts count once, at the first token"
    assert steps.prefill.sum() > 400, "but are computed again"
    pace = totals.tpot[np.argsort(totals.row)]
    assert pace[3] > 1.5 * pace[0], "the youngest waits, the oldest does not"
    assert seen[at.STEP_SECONDS] == pytest.approx((totals.tpot * (totals.output - 1)).sum())


def test_a_request_larger_than_the_pool_runs_alone() -> None:
    load = at_once([900, 900], [50, 50])
    run = Deployment(plant(kv_tokens=256), load, log_steps=1000)
    run.advance(60.0)
    assert run.totals().finished == 2
    assert run.steps(0).scheduled.max() == 1


def test_same_seed_same_run_other_seed_other_run() -> None:
    texts: list[dict[str, str]] = []
    for seed in (5, 5, 6):
        run = Deployment(plant(noise=0.05), steady(20, drafts=Drafts(0.8, 0.85, 0.3, 0.3)), table=MIXED, seed=seed)
        for until in (7.0, 7.5, 30.0) if seed == 5 and texts else (30.0,):
            run.advance(until)
        texts.append(run.exposition())
    assert texts[0] == texts[1], "and where time is cut does not matter"
    assert texts[0] != texts[2]


def test_requests_of_one_seed_are_the_same_under_every_policy() -> None:
    outputs = []
    for k in (0, 5):
        run = Deployment(plant(), arriving(8.0, 30.0), table=KTable.constant(k, 64), seed=9)
        run.advance(200.0)
        totals = run.totals()
        outputs.append(sorted(zip(totals.row.tolist(), totals.output.tolist(), strict=True)))
    assert outputs[0] == outputs[1]


def test_many_requests_at_once_make_room_as_they_come() -> None:
    """More in the system, and more that end between two looks, than the arrays held at first."""
    load = arriving(30_000.0, 0.4, prompt=Lengths(5), output=Lengths(2))
    run = Deployment(plant(), load, table=MIXED)
    run.advance(0.4)
    assert run.totals().alive > 2048
    run.advance(300.0)
    totals = run.totals()
    assert totals.finished == len(load.prompt) == totals.tokens / 2


def test_drift_and_phases_come_at_their_time() -> None:
    load = steady(16, drift=((30.0, 0.0), (60.0, 1.0)))
    run = Deployment(plant(), load, table=KTable.constant(3, 64), log_steps=50_000)
    run.advance(90.0)
    steps = run.steps(0)
    means = [steps.accepted[(steps.end > a) & (steps.end < a + 15)].mean() for a in (15.0, 45.0, 75.0)]
    assert means[1] < 0.02 * means[0]
    assert means[2] == pytest.approx(means[0], rel=0.1)


def test_time_only_runs_forward() -> None:
    run = Deployment(plant(), steady(2))
    run.advance(5.0)
    with pytest.raises(ValueError, match="forward"):
        run.advance(4.0)
    with pytest.raises(ValueError, match="forward"):
        run.advance(float("nan"))
    with pytest.raises(ValueError, match="log_steps"):
        run.steps(0)
