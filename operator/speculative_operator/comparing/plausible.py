"""Which samples can be believed. Called by `verdict`: absurd figures lead to no verdict, never to a good one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import chain, pairwise

from speculative_operator.comparing.measures import Sample

LONGEST_SECONDS = 600.0
"""Of one sample: in a longer one the load changes too much to be one load."""
MOST_PER_STEP = 64.0
"""Tokens that a request gains in one step at most."""
MOST_REQUESTS = 65_536.0
"""Requests of one step at most."""
PACE = (1e-5, 100.0)
"""Seconds of a step, and per token, that an engine can have."""
MOST = 2.0**53
"""No figure of a sample gets there: counters are no more exact beyond."""
MOST_ABSURD = 0.1
"""Share of absurd samples beyond which the rest of them is not believed."""
MOST_SHARED = 0.25
"""Part of a sample that the next one may have too, as where pods come and go."""
_NUMBERS = tuple(one.name for one in fields(Sample) if one.type == "float")


def plausible(samples: Sequence[Sample]) -> tuple[list[Sample], str]:
    """Samples that can be believed, in order of time and without those that overlap, and what is wrong where too many
    cannot; empty where all is well."""
    faults = [next(_faults(one), "") for one in samples]
    absurd = [fault for fault in faults if fault]
    if len(absurd) > MOST_ABSURD * len(samples):
        return [], f"{len(absurd)} of {len(samples)} samples are absurd: {absurd[0]}"
    kept = sorted((one for one, fault in zip(samples, faults, strict=True) if not fault), key=lambda one: one.start)
    apart = (after.start >= one.end - MOST_SHARED * one.seconds for one, after in pairwise(kept))
    return [one for one, is_apart in zip(kept, chain((True,), apart), strict=False) if is_apart], ""


def _faults(one: Sample) -> Iterator[str]:
    """Yield what cannot be; only the first counts, and those after it may be nonsense."""
    for name in _NUMBERS:
        if not 0 <= getattr(one, name) < MOST:
            yield f"{name} is {getattr(one, name)}"
    if not 0 < one.seconds <= LONGEST_SECONDS:
        yield f"it lasts {one.seconds:g} s"
    steps, further = one.decode_request_steps, one.tokens - one.first_tokens
    if further < 0:
        yield f"{one.first_tokens:g} first tokens of {one.tokens:g} tokens"
    if further > MOST_PER_STEP * steps + 1:
        yield f"{further:g} tokens in {steps:g} steps of requests"
    if one.batch > MOST_REQUESTS:
        yield f"{one.batch:g} requests in a step"
    if steps > 0 and not PACE[0] <= one.request_seconds / steps <= PACE[1]:
        yield f"{one.request_seconds:g} s of requests in {steps:g} of their steps"
    if one.tpot is not None and not PACE[0] <= one.tpot <= PACE[1]:
        yield f"{one.tpot:g} s per token"
    if not all(0 <= count < MOST for each in (one.tpot_histogram, one.ttft_histogram) for _, count in each):
        yield "a bucket of a histogram holds no count"
