"""Computes the rates that a step really gets: data-sheet peaks times efficiencies, links between accelerators.

Called by `step_costs` and `draft_costs`. The figures and their sources lie in `data/accelerators.csv`; an accelerator
that is not in that table (a user's own shape) has default efficiencies. docs/tuning-mathematics.md shows what was
fitted from what.
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
EIGHT_BIT = 0.8
"""Factor on compute efficiency of 8-bit weights: 1.6 times the 16-bit speed, not 2 (vLLM documentation, FP8)."""
FOUR_BIT = 0.5
"""Factor on compute efficiency when 4-bit weights are unpacked to 16 bits on the way: an assumption."""
LINK_EFFICIENCY = 0.5
"""Share of a link's peak that all-reduces reach: an assumption."""
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

    def flops(self, model: ModelShape) -> float:
        """FLOP/s for this model's weights: 8-bit rates for 8-bit weights, 16-bit rates for all others."""
        if model.bytes_per_parameter < 1.0:
            return self.four_bit
        return self.fp8 if model.bytes_per_parameter == 1.0 else self.bf16


def rates(accelerator: Accelerator, count: int) -> Rates:
    """Rates of `count` accelerators that share one step."""
    row = _efficiencies().get(accelerator.whole or accelerator.name, _UNKNOWN)
    together = max(count, 1)
    memory = accelerator.memory_bandwidth * row.bandwidth
    share = row.compute * together
    link, latency = _LINKS[row.link]
    return Rates(
        bandwidth=memory * together,
        kv_bandwidth=min(memory * KV_GAIN, accelerator.memory_bandwidth) * together,
        bf16=accelerator.bf16_flops * share,
        fp8=max(accelerator.fp8_flops * EIGHT_BIT, accelerator.bf16_flops) * share,
        four_bit=accelerator.bf16_flops * share * FOUR_BIT,
        reduce_latency=latency if together > 1 else 0.0,
        reduce_seconds_per_byte=2.0 * (together - 1) / together / (link * LINK_EFFICIENCY),
    )


@dataclass(frozen=True, slots=True)
class _Row:
    bandwidth: float
    compute: float
    link: str


_UNKNOWN = _Row(BANDWIDTH_EFFICIENCY, COMPUTE_EFFICIENCY, "pcie")


@cache
def _efficiencies() -> dict[str, _Row]:
    return {
        row["name"]: _Row(float(row["bandwidth_efficiency"]), float(row["compute_efficiency"]), row["link"])
        for row in rows("accelerators")
    }
