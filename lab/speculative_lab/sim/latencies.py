"""How long a simulated request waited and took per token, as vLLM's histograms have it. Compiled; called by `step`."""

from __future__ import annotations

from speculative_lab.sim import layout as at
from speculative_lab.sim.compiled import compiled
from speculative_lab.sim.replica import Floats, Record


@compiled
def observe(histogram: Floats, bounds: Floats, seconds: float) -> None:
    """Count one observation: a bucket takes what is not above its bound."""
    bucket = 0
    while bucket < len(bounds) and seconds > bounds[bucket]:
        bucket += 1
    histogram[bucket] += 1
    histogram[at.LATENCY_SUM] += seconds


@compiled
def per_token(request: Record) -> float:
    """Seconds per token after the first, as vLLM has it: 0 for an answer of one token."""
    if request.generated <= 1:
        return 0.0
    seconds: float = (request.last - request.first) / (request.generated - 1)
    return seconds
