"""What one object did in one interval, all its pods together: the raw figures that two objects are compared by.

Made from windows of counters by `speculative compare` and by reconcile; `verdict` compares them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from speculative_operator.domain.observation import Histogram, PodWindow


@dataclass(frozen=True, slots=True)
class Sample:
    """One interval of one object, summed over its pods. Times in seconds, everything else in counts."""

    start: float
    end: float
    """Unix time; where pods are scraped at different moments, their mean."""
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
    """Prompt tokens computed, cache hits excluded."""
    ttft_seconds: float
    """Times to first token, added up over `first_tokens` requests."""
    accelerators: float
    """Of one pod; 0 where it is not known, and figures per accelerator are then missing."""
    pods: float = 1.0
    """That the sample is of."""
    tpot_histogram: Histogram = ()
    ttft_histogram: Histogram = ()
    hourly_cost: float | None = None
    """Cost of one accelerator for an hour, in the user's currency; None where it is not known."""
    drafts: float = 0.0
    """Verifications of drafts."""
    draft_tokens: float = 0.0
    accepted: float = 0.0
    """Draft tokens that were accepted."""

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def batch(self) -> float:
        """Mean decoding requests of a step of one pod; 0 when no step ran."""
        return self.decode_request_steps / self.steps if self.steps > 0 else 0.0

    @property
    def prompt_share(self) -> float:
        """Share of the prompt tokens among all tokens computed or generated."""
        every = self.prompt_tokens + self.tokens
        return self.prompt_tokens / every if every > 0 else 0.0

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first."""
        return _ratio(self.request_seconds, self.tokens - self.first_tokens)

    @property
    def ttft(self) -> float | None:
        """Mean seconds to the first token."""
        return _ratio(self.ttft_seconds, self.first_tokens)

    @property
    def throughput(self) -> float | None:
        """Tokens per second and accelerator while steps ran: idle time tells of the traffic, not of the object."""
        return _ratio(self.tokens, self.step_seconds * self.accelerators)

    @property
    def cost(self) -> float | None:
        """Cost of 1,000 tokens at that throughput: hourly cost / 3600 / tokens per second and accelerator * 1000."""
        speed = self.throughput
        return _ratio((self.hourly_cost or 0.0) / 3.6, speed) if speed is not None else None


def _ratio(above: float, below: float) -> float | None:
    """A positive finite ratio; None for anything else."""
    if not (0 < above < math.inf and 0 < below < math.inf):
        return None
    found = above / below
    return found if 0 < found < math.inf else None


def sample_of(
    windows: Iterable[PodWindow], *, accelerators_per_pod: float, hourly_cost: float | None = None
) -> Sample | None:
    """Add up the windows of an object's pods over one interval; None where there is none."""
    every = list(windows)
    if not every:
        return None

    def total(name: str) -> float:
        return math.fsum(getattr(one, name) for one in every)

    return Sample(
        start=total("start") / len(every),
        end=total("end") / len(every),
        tokens=total("generated_tokens"),
        first_tokens=total("first_tokens"),
        request_seconds=total("step_seconds"),
        step_seconds=math.fsum(one.steps * (one.step_period or 0.0) for one in every),
        steps=total("steps"),
        decode_request_steps=total("decode_request_steps"),
        prompt_tokens=total("prompt_tokens"),
        ttft_seconds=total("ttft_seconds"),
        accelerators=accelerators_per_pod,
        pods=float(len(every)),
        tpot_histogram=add(one.tpot_histogram for one in every),
        ttft_histogram=add(one.ttft_histogram for one in every),
        hourly_cost=hourly_cost,
        drafts=math.fsum(one.drafts or 0.0 for one in every),
        draft_tokens=math.fsum(one.draft_tokens or 0.0 for one in every),
        accepted=math.fsum(one.accepted_tokens or 0.0 for one in every),
    )


def add(histograms: Iterable[Histogram]) -> Histogram:
    """The sum of histograms with the same bounds; empty where bounds differ or one is unknown."""
    found: defaultdict[float, float] = defaultdict(float)
    bounds: set[tuple[float, ...]] = set()
    for one in histograms:
        bounds.add(tuple(bound for bound, _ in one))
        for bound, count in one:
            found[bound] += count
    return tuple(sorted(found.items())) if len(bounds) == 1 else ()
