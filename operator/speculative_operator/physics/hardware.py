"""Computes the rates that a step really gets: data-sheet peaks times efficiencies, links between accelerators.

Called by `step_costs` and `draft_costs`. The figures and their sources lie in `data/accelerators.csv`; an accelerator
that is not in that table (a user's own shape) has default efficiencies. `Efficiencies` holds the constants that all
hardware, models and workloads share.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from speculative_operator.domain.models import Accelerator, ModelShape
from speculative_operator.physics.catalog import rows

BANDWIDTH_EFFICIENCY = 0.8
"""Share of peak memory bandwidth that decoding reaches on an unknown accelerator. H100, Llama-3.1-8B: 0.81."""
COMPUTE_EFFICIENCY = 0.6
"""Share of peak dense FLOP/s that a step reaches on an unknown accelerator. H100, Llama-3.1-8B: 0.77; MI355X, 27B:
0.36. Widely spread."""
KV_GAIN = 1.2
"""Attention reads KV nearer to the peak than weights are read: 1.00 against 0.81 on H100 (SpecDecode-Bench fit)."""
LINK_EFFICIENCY = 0.5
REDUCES_PER_LAYER = 2
"""All-reduces of one layer on several accelerators: after its attention, and after its feed-forward part."""

_LINKS = {
    # peak bytes/s of one accelerator in one direction, seconds of an all-reduce of a few tokens
    "nvlink3": (300e9, 10e-6),
    "nvlink4": (450e9, 10e-6),
    "nvlink5": (900e9, 10e-6),
    "xgmi": (448e9, 12e-6),
    "pcie": (32e9, 45e-6),
}
"""Rates: vendors' data sheets. Latencies: assumptions, but for PCIe: 82.45 tokens/s without drafts from 60 layers of
gemma-4-31B (4-bit) on four RTX 3090 (club-3090#814)."""


@dataclass(frozen=True, slots=True)
class Efficiencies:
    """Global constants of the cost model; none depends on a single published row.

    Each has the evidence for it beside it; docs/tuning-mathematics.md shows what was fitted from what.
    """

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


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of all accelerators of a replica together, in bytes/s and FLOP/s, and the costs of their link."""

    bandwidth: float
    kv_bandwidth: float
    bf16: float
    fp8: float
    four_bit: float
    reduce_latency: float
    """Seconds of one all-reduce without payload; 0 on one accelerator."""
    reduce_seconds_per_byte: float
    log_sd_bandwidth: float
    log_sd_compute: float

    def flops(self, model: ModelShape) -> float:
        """FLOP/s for this model's weights: 8-bit rates for 8-bit weights, 16-bit rates for all others."""
        if model.bytes_per_parameter < 1.0:
            return self.four_bit
        return self.fp8 if model.bytes_per_parameter == 1.0 else self.bf16


def rates(accelerator: Accelerator, count: int, fit: Efficiencies = FITTED) -> Rates:
    """Rates of `count` accelerators that share one step."""
    row = _efficiencies().get(accelerator.name, _UNKNOWN)
    together = max(count, 1)
    memory = min(accelerator.memory_bandwidth * row.bandwidth * fit.bandwidth, accelerator.memory_bandwidth)
    share = row.compute * fit.compute * together
    link, latency = _LINKS[row.link]
    return Rates(
        bandwidth=memory * together,
        kv_bandwidth=min(memory * KV_GAIN, accelerator.memory_bandwidth) * together,
        bf16=accelerator.bf16_flops * share,
        fp8=max(accelerator.fp8_flops * fit.eight_bit, accelerator.bf16_flops) * share,
        four_bit=accelerator.bf16_flops * share * fit.four_bit,
        reduce_latency=latency if together > 1 else 0.0,
        reduce_seconds_per_byte=2.0 * (together - 1) / together / (link * LINK_EFFICIENCY),
        log_sd_bandwidth=row.log_sd_bandwidth,
        log_sd_compute=row.log_sd_compute,
    )


@dataclass(frozen=True, slots=True)
class _Row:
    bandwidth: float
    compute: float
    log_sd_bandwidth: float
    log_sd_compute: float
    link: str


_UNKNOWN = _Row(BANDWIDTH_EFFICIENCY, COMPUTE_EFFICIENCY, 0.25, 0.4, "pcie")


@cache
def _efficiencies() -> dict[str, _Row]:
    return {
        row["name"]: _Row(
            bandwidth=float(row["bandwidth_efficiency"]),
            compute=float(row["compute_efficiency"]),
            log_sd_bandwidth=float(row["log_sd_bandwidth"]),
            log_sd_compute=float(row["log_sd_compute"]),
            link=row["link"],
        )
        for row in rows("accelerators")
    }
