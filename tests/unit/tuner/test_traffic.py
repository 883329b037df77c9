"""Replicas pooled into one look, and the fading memory of load."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.unit.tuner.plant import Plant

from speculative_operator.domain.observation import BlockTotals, Comparison, PodWindow, StepCell
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.grid import grid, nearest
from speculative_operator.tuner.traffic import Traffic, bound_claims, learn_traffic, pool

NOW = 1_700_000_000.0
TABLE = KTable.constant(3, 256)
IDLE = PodWindow(NOW - 10, NOW, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def window(batch: float, end: float = NOW, **plant: float) -> PodWindow:
    return Plant(noise=0.0, **plant).window(TABLE, batch, end)  # type: ignore[arg-type]  # numbers by name


def after(traffic: Traffic, *windows: PodWindow, fresh: float = 1.0) -> Traffic:
    return learn_traffic(traffic, pool(windows), windows, [fresh] * len(windows), 256)


class TestPool:
    def test_one_window_is_itself(self) -> None:
        one = window(20)
        look = pool([one])
        assert [look.batch, look.scheduled] == pytest.approx([one.batch, one.load])
        assert look.tpot == pytest.approx(one.tpot)
        assert look.mean_k == pytest.approx(one.mean_k) == pytest.approx(3.0)
        assert look.acceptance_length == pytest.approx(one.acceptance_length)
        assert look.tokens_per_second == pytest.approx(one.generated_tokens / 10)

    def test_means_are_those_of_requests(self) -> None:
        low, high = window(2), window(100)
        look = pool([low, high])
        requests = low.decode_request_steps + high.decode_request_steps
        mean = (low.batch * low.decode_request_steps + high.batch * high.decode_request_steps) / requests
        assert look.batch == pytest.approx(mean)
        assert look.tokens_per_second == pytest.approx((low.generated_tokens + high.generated_tokens) / 10)
        tokens = sum(w.generated_tokens - w.first_tokens for w in (low, high))
        assert look.tpot == pytest.approx((low.step_seconds + high.step_seconds) / tokens)
        assert look.loads == pytest.approx((low.load, high.load))

    def test_an_idle_replica_counts_for_nothing_but_its_price(self) -> None:
        both, one = (replace(pool(windows), tokens_per_second=0.0) for windows in ([window(20), IDLE], [window(20)]))
        assert (both.replicas, one.replicas) == (2, 1)
        assert replace(both, replicas=1) == one

    def test_no_speculator_gives_no_figures_of_one(self) -> None:
        look = pool([Plant().bare(20, NOW)])
        assert (look.mean_k, look.acceptance_rate, look.acceptance_length) == (None, None, None)
        assert look.drafts == 0.0

    def test_no_drafts_is_a_k_of_zero_and_no_rate(self) -> None:
        look = pool([Plant().window(KTable.constant(0, 256), 20, NOW)])
        assert (look.mean_k, look.acceptance_rate, look.acceptance_length) == (0.0, None, None)

    def test_pressure_is_the_share_of_replicas_that_wait_for_memory(self) -> None:
        full = replace(window(20), waiting=5.0, kv_usage=0.99)
        queue_only, full_only = replace(full, kv_usage=0.3), replace(full, waiting=0.0)
        assert pool([full, queue_only, full_only, window(20)]).pressed == pytest.approx(0.25)


def test_a_pod_that_claims_far_more_than_the_others_counts_for_a_part_of_its_blocks_and_latencies() -> None:
    one = Comparison(
        3, 4, 1, 8, 10.0, BlockTotals(160.0, 2.0, 800.0, 10.0, 1600.0, 40.0),
        BlockTotals(320.0, 4.0, 1600.0, 20.0, 3000.0), 0.5, 0.25,
    )  # fmt: skip
    usual = replace(window(20), comparisons=(one,), tpot_histogram=((0.1, 8.0), (math.inf, 2.0)))
    loud = replace(usual, decode_request_steps=usual.decode_request_steps * 8)
    found = bound_claims([usual, usual, usual, loud])
    assert found[:3] == [usual] * 3
    (least,) = found[3].comparisons
    assert least == Comparison(
        3, 4, 1, 8, 3.75, BlockTotals(60.0, 0.75, 300.0, 3.75, 600.0, 15.0),
        BlockTotals(120.0, 1.5, 600.0, 7.5, 1125.0), 0.1875, 0.09375,
    )  # fmt: skip
    assert found[3].tpot_histogram == ((0.1, 3.0), (math.inf, 0.75))


def test_every_load_that_cells_tell_of_counts() -> None:
    """Half of the time at 4 requests and half at 40: the mean, 22, was never there."""
    cells = (StepCell(3, 4.0, 100.0, 5.0, 800.0, 0.0), StepCell(3, 40.0, 50.0, 5.0, 4000.0, 0.0))
    one = replace(window(22), cells=cells)
    assert pool([one]).loads == (4.0, 40.0)
    load = after(Traffic(), one).load
    assert {n for n, seconds in enumerate(load) if seconds > 0} == {nearest(4.0, 256), nearest(40.0, 256)}
    assert pool([replace(one, cells=())]).loads == pytest.approx((one.load,))


class TestMemory:
    def test_context_and_prompts_move_to_what_is_seen(self) -> None:
        traffic = Traffic()
        for n in range(60):
            traffic = after(traffic, window(20, NOW + 10 * n, context=3000.0, prompt_ratio=4.0))
        assert traffic.context == pytest.approx(3000.0, rel=0.02)
        assert traffic.prompt_ratio == pytest.approx(4.0, rel=0.05)

    def test_nothing_new_changes_nothing(self) -> None:
        traffic = after(Traffic(), window(20))
        assert after(traffic, window(90), fresh=0.0) == traffic

    def test_time_is_spent_where_the_load_was_and_fades(self) -> None:
        traffic = after(Traffic(), window(20), window(100))
        assert len(traffic.load) == len(grid(256))
        at = {nearest(20.0, 256), nearest(100.0, 256)}
        spent = {n for n, seconds in enumerate(traffic.load) if seconds > 0}
        assert spent <= {cell + side for cell in at for side in (-1, 0, 1)}
        assert sum(traffic.load) == pytest.approx(20.0)
        later = traffic
        for n in range(1, 200):
            later = after(later, window(3, NOW + 10 * n))
        cell = max(spent)
        assert later.load[cell] < 0.2 * traffic.load[cell]
        assert later.load[cell] < later.history[cell] < traffic.history[cell]

    def test_half_a_window_counts_half(self) -> None:
        whole, half = (sum(after(Traffic(), window(20), fresh=share).load) for share in (1.0, 0.5))
        assert half == pytest.approx(whole / 2)

    def test_pressure_is_a_share_of_the_time_seen(self) -> None:
        full = replace(window(20), waiting=5.0, kv_usage=0.99)
        traffic = Traffic()
        for one in (window(20), window(20), window(20), full):
            traffic = after(traffic, one)
        assert traffic.pressed == pytest.approx(0.25, abs=0.01)
        for _ in range(2000):
            traffic = after(traffic, full)
        assert traffic.pressed > 0.9

    def test_endless_figures_stay_finite(self) -> None:
        traffic = Traffic()
        for usage in (1.0, 1e-300):
            odd = replace(window(20), kv_capacity_tokens=1e308, kv_usage=usage, prompt_tokens=1e12)
            traffic = after(traffic, odd, odd)
        assert math.isfinite(traffic.context)
        assert math.isfinite(traffic.prompt_ratio)
