"""Samples of an imagined object for tests: they scatter as those of a real one, at loads that a test gives."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from speculative_operator.comparing.measures import Sample
from speculative_operator.domain.observation import Histogram

BOUNDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, math.inf)
SECONDS = 15.0


def samples(
    seed: int = 1,
    count: int = 80,
    *,
    batch: float = 8.0,
    pace: float = 1.0,
    ttft: float = 1.0,
    tail: float = 0.0,
    prompt: float = 400.0,
    scatter: float = 0.03,
) -> list[Sample]:
    """`count` samples at about `batch` requests: TPOT grows with the square root of the batch size, times `pace`; TTFT
    is 0.1 s times `ttft`; a share `tail` of the requests is ten times slower per token; `prompt` tokens a request."""
    rng = np.random.default_rng(seed)
    made = []
    for place in range(count):
        now = batch * math.exp(0.2 * rng.normal())
        tpot = 0.02 * pace * math.sqrt(now / 8.0) * math.exp(scatter * rng.normal())
        further = now * SECONDS / tpot
        requests = further / 200.0
        values = (
            tpot * np.exp(0.2 * rng.normal(size=round(requests))) * np.where(rng.random(round(requests)) < tail, 10, 1)
        )
        made.append(
            Sample(
                start=1e9 + SECONDS * place,
                end=1e9 + SECONDS * (place + 1),
                tokens=further + requests,
                first_tokens=requests,
                request_seconds=now * SECONDS,
                step_seconds=SECONDS,
                steps=SECONDS / tpot,
                decode_request_steps=further,
                prompt_tokens=prompt * requests,
                ttft_seconds=requests * 0.1 * ttft * math.exp(scatter * rng.normal()),
                accelerators=1.0,
                tpot_histogram=histogram(values),
                ttft_histogram=histogram(0.1 * ttft * np.exp(0.3 * rng.normal(size=round(requests)))),
            )
        )
    return made


def histogram(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Histogram:
    places = np.searchsorted(np.array(BOUNDS[:-1]), values)
    counts = np.bincount(places, minlength=len(BOUNDS))
    return tuple((bound, float(count)) for bound, count in zip(BOUNDS, counts, strict=True))


def priced(every: list[Sample], hourly: float) -> list[Sample]:
    return [replace(one, hourly_cost=hourly) for one in every]
