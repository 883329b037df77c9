"""What clients ask of a simulated deployment: requests of an open loop, or a number of requests always in flight.

Called by scenarios, by the trace readers' users and by `deployment`, which turns a workload into arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speculative_lab.sim.drafts import Drafts

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Course = tuple[tuple[float, float], ...]
"""((from seconds, value), ...): each value holds until the next; ascending, the first from 0."""

POOL_ROWS = 4096
"""Requests that a closed loop draws from in turn; sixteen generations of 256 concurrent ones."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Log-normal lengths in tokens; `spread` is the standard deviation of the logarithm, 0 for a constant."""

    mean: float
    spread: float = 0.0
    longest: int = 1 << 20

    def sample(self, count: int, rng: np.random.Generator) -> Ints:
        """Whole numbers from 1 to `longest` whose mean is `mean` (before cutting)."""
        draws = self.mean * np.exp(self.spread * rng.standard_normal(count) - self.spread**2 / 2.0)
        return np.asarray(np.clip(np.rint(draws), 1, self.longest), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Phase:
    """What requests look like from `start` seconds on. `mix` weighs the workload's classes."""

    start: float
    mix: tuple[float, ...]
    prompt: Lengths
    output: Lengths


@dataclass(frozen=True, slots=True)
class Pool:
    """Rows `first` to before `stop` are what a closed loop draws from, from `start` seconds on."""

    start: float
    first: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Requests as arrays of one length, and how they come. Make one with `open_loop`, `closed_loop` or `replayed`."""

    prompt: Ints
    """Prompt tokens, >= 1."""
    output: Ints
    """Output tokens, >= 1."""
    kind: Ints
    """Index into `classes`."""
    classes: tuple[Drafts, ...]
    arrival: Array | None = None
    """Open loop: seconds, ascending. None: closed loop."""
    concurrency: tuple[tuple[float, int], ...] = ()
    """Closed loop: (from seconds, requests in flight). A lower number takes effect as requests end."""
    pools: tuple[Pool, ...] = ()
    """Closed loop: which rows are drawn, in turn, from when on; empty for all of them."""
    drift: Course = ()
    """(from seconds, share of runs of accepted drafts that still start), each 0..1: 0.5 about halves survival."""

    def __post_init__(self) -> None:
        rows = len(self.prompt)
        if not rows or len(self.output) != rows or len(self.kind) != rows:
            raise ValueError(
                f"{rows} prompts, {len(self.output)} outputs, {len(self.kind)} kinds: give as many of each"
            )
        if self.prompt.min() < 1 or self.output.min() < 1:
            raise ValueError("prompts and outputs have at least 1 token")
        if not 0 <= self.kind.min() <= self.kind.max() < len(self.classes):
            raise ValueError(f"kinds must lie in 0..{len(self.classes) - 1}, the places of the classes")
        if (self.arrival is None) == (not self.concurrency):
            raise ValueError("give either arrival (open loop) or concurrency (closed loop)")
        if self.arrival is not None and (len(self.arrival) != rows or np.any(np.diff(self.arrival) < 0)):
            raise ValueError("arrivals must be as many as prompts, and ascending")
        if any(not 0.0 <= factor <= 1.0 for _, factor in self.drift):
            raise ValueError("a drift factor lies in 0..1")

    @property
    def closed(self) -> bool:
        return self.arrival is None


def closed_loop(
    concurrency: Sequence[tuple[float, int]],
    classes: Sequence[Drafts],
    phases: Sequence[Phase],
    rng: np.random.Generator,
    drift: Course = (),
) -> Workload:
    """A closed loop: as many requests in flight as `concurrency` says, drawn from what `phases` describe."""
    parts = [_draw(phase, POOL_ROWS, rng) for phase in phases]
    pools = tuple(Pool(phase.start, i * POOL_ROWS, (i + 1) * POOL_ROWS) for i, phase in enumerate(phases))
    prompt, output, kind = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Workload(prompt, output, kind, tuple(classes), None, tuple(concurrency), pools, tuple(drift))


def open_loop(
    rate: Course,
    seconds: float,
    classes: Sequence[Drafts],
    phases: Sequence[Phase],
    rng: np.random.Generator,
    drift: Course = (),
) -> Workload:
    """Poisson arrivals at `rate` requests per second until `seconds`, shaped by `phases`."""
    arrival = poisson(rate, seconds, rng)
    if not len(arrival):
        raise ValueError("no request arrives at these rates: raise the rate or the time")
    starts = np.array([phase.start for phase in phases])
    which = np.maximum(np.searchsorted(starts, arrival, side="right") - 1, 0)
    columns = np.empty((3, len(arrival)), dtype=np.int64)
    for index, phase in enumerate(phases):
        rows = which == index
        columns[:, rows] = _draw(phase, int(rows.sum()), rng)
    return Workload(columns[0], columns[1], columns[2], tuple(classes), arrival, drift=tuple(drift))


def replayed(
    arrival: ArrayLike,
    prompt: ArrayLike,
    output: ArrayLike,
    classes: Sequence[Drafts],
    mix: Sequence[float],
    rng: np.random.Generator,
    drift: Course = (),
) -> Workload:
    """A trace as an open loop; it names no class, so classes are drawn by `mix`."""
    times = np.asarray(arrival, dtype=float)
    kind = _kinds(mix, len(times), rng)
    prompts, outputs = np.asarray(prompt, dtype=np.int64), np.asarray(output, dtype=np.int64)
    return Workload(prompts, outputs, kind, tuple(classes), times, drift=tuple(drift))


def poisson(rate: Course, seconds: float, rng: np.random.Generator) -> Array:
    """Arrival times in [0, seconds) of a Poisson process with a piecewise constant rate per second."""
    found = []
    for index, (start, value) in enumerate(rate):
        stop = min(rate[index + 1][0] if index + 1 < len(rate) else seconds, seconds)
        if stop > start and value > 0:
            found.append(rng.uniform(start, stop, rng.poisson(value * (stop - start))))
    return np.sort(np.concatenate(found)) if found else np.zeros(0)


def _draw(phase: Phase, count: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    return phase.prompt.sample(count, rng), phase.output.sample(count, rng), _kinds(phase.mix, count, rng)


def _kinds(mix: Sequence[float], count: int, rng: np.random.Generator) -> Ints:
    weights = np.asarray(mix, dtype=float)
    return np.asarray(rng.choice(len(weights), size=count, p=weights / weights.sum()), dtype=np.int64)
