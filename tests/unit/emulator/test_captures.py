"""Sizes of captured graphs: values taken from vLLM 0.32.0 itself, and what holds of all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.emulator.building import V1, VERIFIER, Run, quiet, speculation

from speculative_lab.emulator.arguments import parse
from speculative_lab.emulator.captures import CaptureFlags, DecodeShape, capture_sizes
from speculative_lab.emulator.config import engine_config
from speculative_lab.emulator.errors import ConfigError

NONE = CaptureFlags()
SMALL = DecodeShape(16, 8192, 0)
TABLE = (0, *[4] * 4, *[2] * 4, *[0] * 8)
FROM_VLLM = [
    (NONE, SMALL, (1, 2, 4, 8, 16, 24, 32)),
    (NONE, DecodeShape(5, 8192, 0), (1, 2, 4, 5, 8)),
    (NONE, DecodeShape(5, 8192, 2), (1, 2, 3, 4, 6, 8, 12, 15, 16, 24)),
    (NONE, DecodeShape(5, 8192, 2, whole_multiples=True), (3, 6, 9, 12, 15, 18, 24)),
    (CaptureFlags(largest=24), DecodeShape(5, 8192, 2), (1, 2, 4, 8, 16, 24)),
    (CaptureFlags(sizes=(8, 2, 100, 2)), DecodeShape(5, 64, 2), (2, 8)),
    (CaptureFlags(sizes=(8, 2)), DecodeShape(5, 64, 2, whole_multiples=True), (3,)),
    (NONE, DecodeShape(5, 20, 2), (1, 2, 3, 4, 6, 8, 12, 15, 16, 20)),
    (CaptureFlags(eager=True), SMALL, ()),
]
"""As `VllmConfig._set_cudagraph_sizes` gives them; `tests/vllm/test_emulator_vs_real.py` asks it again."""


@pytest.mark.parametrize(("flags", "shape", "sizes"), FROM_VLLM)
def test_sizes_of_vllm(flags: CaptureFlags, shape: DecodeShape, sizes: tuple[int, ...]) -> None:
    assert capture_sizes(flags, shape) == sizes


def test_each_k_of_a_table_has_its_own_sizes_up_to_its_widest_batch() -> None:
    sizes = capture_sizes(NONE, DecodeShape(16, 8192, 4, TABLE))
    assert {5, 10, 20, 3, 6, 12, 24} <= set(sizes)
    assert 40 in sizes, "of the grid"
    assert not {15, 25, 30, 35} & set(sizes), "K = 4 occurs up to 4 requests"


def test_flags_that_disagree() -> None:
    with pytest.raises(ConfigError, match=r"customized max_cudagraph_capture_size\(=4\) should be consistent"):
        capture_sizes(CaptureFlags(sizes=(1, 8), largest=4), SMALL)
    with pytest.raises(ConfigError, match="No valid cudagraph sizes after rounding to multiple of 8"):
        capture_sizes(CaptureFlags(sizes=(4,)), DecodeShape(4, 64, 7, whole_multiples=True))


@given(seqs=st.integers(1, 1024), k=st.integers(0, 16), budget=st.integers(64, 16384), whole=st.booleans())
def test_every_decoding_step_below_the_ceiling_is_served(seqs: int, k: int, budget: int, whole: bool) -> None:
    sizes = capture_sizes(NONE, DecodeShape(seqs, max(budget, seqs), k, whole_multiples=whole))
    assert list(sizes) == sorted(set(sizes))
    assert sizes[-1] <= max(512, k + 1)
    if whole:
        assert all(size % (k + 1) == 0 for size in sizes)


def seconds(requests: int, *flags: str, k: int = 3, verifier: str = VERIFIER) -> float:
    """Seconds of a step in which `requests` decode, K = `k`."""
    words = ["serve", verifier, "--max-num-seqs", "256", "--max-model-len", "4096", *flags]
    run = Run(engine_config(parse([*words, *(speculation(k) if k else ())]), V1, quiet()), quiet())
    for _ in range(requests):
        run.add(prompt=8, output=400)
    run.step()
    run.step()
    return run.step().seconds


def test_a_step_costs_what_the_next_captured_size_costs() -> None:
    sizes = ("--cudagraph-capture-sizes", "4", "64", "128")
    between, at = seconds(9, *sizes), seconds(16, *sizes)
    exact = seconds(9, "--cudagraph-capture-sizes", "36", "128")
    held = at - between
    assert 0 < held < (between - exact) / 2, "from 9 to 16 requests only the context grows"


def test_above_the_largest_size_a_step_waits_for_its_kernels() -> None:
    """A model of 28 layers whose weights are read in half a millisecond: 28 x 0.12 ms eagerly, less from a graph."""
    floor, small = 28 * 0.12e-3, "Qwen/Qwen3-0.6B"
    assert seconds(33, "--max-cudagraph-capture-size", "32", k=0, verifier=small) == pytest.approx(floor)
    assert seconds(1, "--enforce-eager", k=0, verifier=small) == pytest.approx(floor)
    assert seconds(32, "--max-cudagraph-capture-size", "32", k=0, verifier=small) < 0.8 * floor
    graphs = seconds(33, "--max-cudagraph-capture-size", "136", verifier=small)
    assert seconds(33, "--max-cudagraph-capture-size", "128", verifier=small) > graphs
