"""The fitted constants of the cost model: one number each for all hardware, models and workloads.

Called by `roofline` (with the values below) and by `fitting`, which estimates them from published results. Each has a
prior, a spread (log standard deviation) and the evidence for it; docs/physics.md shows what was fitted from what.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Efficiencies:
    """Global constants of the cost model; none depends on a single published row."""

    host: float = 1.2e-3
    """Seconds of every step outside the accelerator's work: scheduling, sampling, input preparation. 1.207 ms in the
    SpecDecode-Bench fit, where it is paid with and without drafts: only so do its own figures come out (AL 2.391 at
    K = 3 and batch 1 gives 1.81)."""
    bandwidth: float = 1.0
    """Factor on every accelerator's bandwidth efficiency."""
    compute: float = 1.0
    """Factor on every accelerator's compute efficiency."""
    launch: float = 1.0
    """Factor on the launch time of draft passes, 0.25 ms a pass and 20 us a layer."""
    speculative: float = 0.2e-3
    """Seconds a drafted step spends on rejection sampling beyond what `host` holds."""
    expert_spread: float = 0.8
    """Tokens of a step share experts: n of them reach as many as n ** 0.8 independent ones. DeepSeek-V4-Flash on four
    B300 gains 0.5 / 1.2 / 2.8 / 4.3 ms from 1 to 16 / 32 / 64 / 128 tokens, where independence says 1.9 / 3.2 / 4.7 /
    5.7."""
    occupancy: float = 0.75
    """Requests that run at once over those that a closed benchmark keeps open: runs begin and end with fewer, the more
    so the more the lengths of answers differ."""
    lookup_precision: float = 0.37
    """Share of first tokens that are right when a draft was found in the text: with it, the share of request-steps
    that carry a draft follows from S_1. 0.32-0.39 in the n-gram curves of arXiv 2601.11580 Fig. 10."""
    eight_bit: float = 0.8
    """Factor on compute efficiency of 8-bit weights: 1.6 times the 16-bit speed, not 2 (vLLM documentation, FP8)."""
    four_bit: float = 0.5
    """Factor on compute efficiency when 4-bit weights are unpacked to 16 bits on the way: an assumption."""
    widening: float = 0.4
    """How a draft tree raises conditional acceptance: 1 - (1 - a) ** (1 + widening * ln(tokens a level)). Acceptance
    lengths 2.25 of a chain and 2.92 of 21 tokens in 3 levels (specdecode-bench.github.io, Qwen3-8B) and 4.68 of a tree
    of 64 tokens in 5 levels (sglang#4247) give 0.4."""
    tree: float = 2.5e-3
    """Seconds a step with a draft tree spends on building and masking it: steps of 12.9 and 14.2 ms at 5 and 8 levels
    (sglang#4247) where 6.3 ms are plain decoding."""


FITTED = Efficiencies()
