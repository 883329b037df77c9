"""What one object did in one interval, all its pods together: the raw figures that two objects are compared by.

Made from windows of counters by `speculative compare` and by reconcile; `verdict` compares them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from speculative_operator.domain.observation import Histogram, PodWindow


@dataclass(frozen=True, slots=True)
class Sample:
    """One interval of one object, summed over its pods. Times in seconds, everything else in counts."""

    start: float
    end: float
    """Unix time."""
    tokens: float
    """Tokens generated, first tokens included."""
    first_tokens: float
    request_seconds: float
    """Seconds of each step times the requests that decoded in it: (tokens - first_tokens) * TPOT."""
    step_seconds: float
    """Seconds in which steps ran, added up over the pods; the time in which a pod had nothing to do is not in it."""
    steps: float
    decode_request_steps: float
    """Requests that decoded, added up over the steps."""
    prompt_tokens: float
    ttft_seconds: float
    """Times to first token, added up over `first_tokens` requests."""
    requests_finished: float
    accelerators: float
    """Of all pods together; 0 where it is not known, and figures per accelerator are then missing."""
    tpot_histogram: Histogram = ()
    ttft_histogram: Histogram = ()
    failed: float | None = None
    """Requests that failed; None where nobody counts them."""
    hourly_cost: float | None = None
    """Cost of one accelerator for an hour, in the user's currency; None where it is not known."""

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def batch(self) -> float | None:
        """Mean decoding requests of a step of one pod; None when no step ran."""
        return self.decode_request_steps / self.steps if self.steps > 0 else None


def sample_of(
    windows: Iterable[PodWindow],
    *,
    accelerators_per_pod: float = 0.0,
    hourly_cost: float | None = None,
    failed: float | None = None,
) -> Sample | None:
    """Add up the windows of an object's pods over one interval; None where there is none."""
    raise NotImplementedError
