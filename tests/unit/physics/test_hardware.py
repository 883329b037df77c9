"""Rates of accelerators: efficiencies, links, precisions."""

from __future__ import annotations

import dataclasses

import pytest

from speculative_operator.domain.models import Accelerator, ModelShape
from speculative_operator.physics.catalog import find_accelerator, find_model, rows
from speculative_operator.physics.hardware import rates

OWN = Accelerator("own", bf16_flops=100e12, fp8_flops=200e12, memory_bytes=64e9, memory_bandwidth=1e12)


def shape(name: str) -> ModelShape:
    found = find_model(name)
    assert found is not None
    return found


def device(name: str) -> Accelerator:
    found = find_accelerator(name)
    assert found is not None
    return found


def test_every_accelerator_has_rates_below_its_peaks_and_a_link() -> None:
    for row in rows("accelerators"):
        found, peak = rates(device(row["name"]), 2), 2 * device(row["name"]).memory_bandwidth
        assert found.bandwidth <= found.kv_bandwidth <= peak
        assert found.reduce_latency > 0.0


def test_an_accelerator_of_ones_own_has_default_efficiencies() -> None:
    found = rates(OWN, 1)
    assert found.bandwidth == pytest.approx(0.8e12)
    assert found.bf16 == pytest.approx(60e12)
    assert found.fp8 == pytest.approx(0.8 * 120e12)
    assert found.four_bit == pytest.approx(30e12)
    assert (found.reduce_latency, found.reduce_seconds_per_byte) == (0.0, 0.0)


def test_four_share_a_step_but_not_for_nothing() -> None:
    one, four = rates(OWN, 1), rates(OWN, 4)
    assert four.bandwidth == pytest.approx(4 * one.bandwidth)
    assert four.reduce_latency > 0.0
    assert rates(device("H100"), 4).reduce_seconds_per_byte < four.reduce_seconds_per_byte


def test_rates_follow_the_precision_of_the_weights() -> None:
    found, model = rates(device("H100"), 1), shape("Qwen/Qwen3-8B")
    eight, four = (dataclasses.replace(model, bytes_per_parameter=size) for size in (1.0, 0.5))
    assert found.flops(eight) == pytest.approx(1.6 * found.flops(model))
    assert found.flops(four) == pytest.approx(0.5 * found.flops(model))
    ampere = rates(device("A100"), 1)
    assert ampere.flops(eight) == ampere.flops(model)  # no 8-bit floating point
