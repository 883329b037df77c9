"""The fitted constants of the cost model: one number each for all hardware, models and workloads.

Called by `roofline` (with the values below) and by `fitting`, which estimates them from published results. Each has a
prior, a spread (log standard deviation) and the evidence for it; docs/physics.md shows what was fitted from what.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Efficiencies:
    """Global constants; nothing in here depends on a single published row."""

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
    lookup_precision: float = 0.37
    """Share of first tokens that are right when a draft was found in the text: with it, the share of request-steps
    that carry a draft follows from S_1. 0.32-0.39 in the n-gram curves of arXiv 2601.11580 Fig. 10."""
    four_bit: float = 0.5
    """Factor on compute efficiency when 4-bit weights are unpacked to 16 bits on the way: an assumption."""
    branches: float = 2.0
    """Candidates that a draft tree offers at each depth, in effect: conditional acceptance 1 - (1 - a)^branches. The
    acceptance lengths 4.68 and 5.39 of trees of depth 5 and 8 in sglang#4247 give 2."""


FITTED = Efficiencies()
