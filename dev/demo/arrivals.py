"""Request arrivals of the demo: a real trace, its time warped so that the load climbs and falls. Pure.

Prompt and output lengths and the order of requests are the trace's own. Only the time axis is changed: request n comes
when the integral of the wanted rate reaches the n-th request's share of the trace, so that the trace's burstiness
relative to its mean rate is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from speculative_lab.plant.traces import Trace

LOCAL = 100
"""Requests over which the trace's own arrival rate is averaged."""
TRACE = Path(__file__).resolve().parents[1] / "data" / "traces" / "azure_llm_2023_conv.csv"


@dataclass(frozen=True, slots=True)
class Profile:
    """Arrival rate over time, linear between points (seconds, requests per second)."""

    points: tuple[tuple[float, float], ...]

    @classmethod
    def climb_and_fall(cls, seconds: float, low: float, peak: float) -> Profile:
        """Low for a third of the time, up, a plateau of a third, down, and low again."""
        shape = ((0.0, low), (0.34, low), (0.40, peak), (0.72, peak), (0.76, low), (1.0, low))
        return cls(tuple((share * seconds, rate) for share, rate in shape))

    @property
    def seconds(self) -> float:
        return self.points[-1][0]


def _gaps_by_local_rate(seconds: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Arrival times in units of the mean gap around each request: burstiness without the trace's own drift."""
    gaps = np.diff(seconds, prepend=seconds[0])
    window = min(LOCAL, len(gaps))
    local = np.convolve(np.pad(gaps, window // 2, mode="reflect"), np.full(window, 1.0 / window), mode="same")
    return np.cumsum(gaps / local[window // 2 : window // 2 + len(gaps)])


def warp(trace: Trace, profile: Profile, max_context: int) -> list[dict[str, float]]:
    """The trace's requests at the profile's rate, as the load generator takes them; requests longer than `max_context`
    tokens in all are left out.

    Raises ValueError when the trace is too short for the profile.
    """
    fitting = np.flatnonzero(trace.prompt + trace.output <= max_context)
    times = np.linspace(0.0, profile.seconds, 4000)
    rates = np.interp(times, [t for t, _ in profile.points], [r for _, r in profile.points])
    expected = np.concatenate(([0.0], np.cumsum((rates[1:] + rates[:-1]) / 2 * np.diff(times))))
    counts = _gaps_by_local_rate(trace.arrival[fitting])
    if counts[-1] < expected[-1]:
        raise ValueError(f"the trace has {len(fitting)} fitting requests, the profile asks for {expected[-1]:.0f}")
    used = fitting[: int(np.searchsorted(counts, expected[-1]))]
    at = np.interp(counts[: len(used)], expected, times)
    rows = zip(at.tolist(), trace.prompt[used].tolist(), trace.output[used].tolist(), strict=True)
    return [{"at": moment, "prompt": prompt, "output": output} for moment, prompt, output in rows]
