"""What a replica's counters say of the last window, as the reader hands it to the tuner (docs/metrics.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from speculative_lab.plant import layout as at
from speculative_lab.plant.comparing import less
from speculative_lab.plant.types import Floats, State
from speculative_operator.domain.observation import Comparison, Histogram, PodWindow, StepCell

TPOT_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, math.inf)
"""vLLM 0.32's buckets, seconds."""
TTFT_BOUNDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
    math.inf,
)


@dataclass(slots=True)
class Scrape:
    """Counters of one pod at one moment."""

    time: float
    counters: Floats
    cells: Floats
    positions: Floats
    ends: int
    firsts: int
    comparisons: dict[tuple[int, int, int, int], Comparison] = field(default_factory=dict)


def scrape(state: State, time: float, comparisons: dict[tuple[int, int, int, int], Comparison] | None = None) -> Scrape:
    """What the pod exports now."""
    ends, firsts = int(state.now[at.ENDS]), int(state.now[at.FIRSTS])
    return Scrape(
        time, state.counters.copy(), state.cells.copy(), state.positions.copy(), ends, firsts, comparisons or {}
    )


def histogram(values: Floats, bounds: tuple[float, ...]) -> Histogram:
    """Observations in each bucket; a bucket holds what is at most its bound."""
    places = np.searchsorted(np.array(bounds[:-1]), values, side="left")
    counts = np.bincount(places, minlength=len(bounds))
    return tuple((bound, float(count)) for bound, count in zip(bounds, counts, strict=True))


def window(state: State, before: Scrape, after: Scrape, capacity: float, plug_in: int | None) -> PodWindow:
    """The window between two scrapes. `plug_in`: version of the table in force that the plug-in tells, None without."""
    d = after.counters - before.counters
    ended = state.req[state.ended[before.ends : after.ends]]
    first = state.req[state.first[before.firsts : after.firsts]]
    long = ended[ended[:, at.OUT] > 1]
    tpot = (long[:, at.ENDED] - long[:, at.FIRST]) / (long[:, at.OUT] - 1)
    ttft = first[:, at.FIRST] - first[:, at.CAME]
    positions = after.positions - before.positions
    seated = state.req[state.running[: int(state.now[at.RUNNING])]]
    untouched = float(np.sum((seated[:, at.LEFT] >= seated[:, at.PROMPT]) & (seated[:, at.CHUNK] <= 0)))
    return PodWindow(
        start=before.time,
        end=after.time,
        steps=float(d[at.N]),
        decode_request_steps=float(d[at.R]),
        step_seconds=float(d[at.I]),
        first_tokens=float(d[at.F]),
        generated_tokens=float(d[at.G]),
        prompt_tokens=float(d[at.PROMPT_TOKENS]),
        running=float(state.now[at.RUNNING]) - untouched,
        waiting=float(state.now[at.TAIL] - state.now[at.HEAD]) + untouched,
        preemptions=float(d[at.PREEMPTED]),
        kv_usage=min(float(state.now[at.KV]) / capacity, 1.0),
        kv_capacity_tokens=capacity,
        drafts=float(d[at.D]),
        draft_tokens=float(d[at.T]),
        accepted_tokens=float(d[at.A]),
        accepted_per_position=tuple(map(float, positions[1])),
        ttft_seconds=float(d[at.TTFT]),
        queue_seconds=float(d[at.QUEUED]),
        cells=_cells(after.cells - before.cells) if plug_in is not None else (),
        drafted_per_position=tuple(map(float, positions[0])) if plug_in is not None else (),
        table_version=plug_in,
        live=True if plug_in is not None else None,
        engine_version="0.32.0" if plug_in is not None else "",
        comparisons=_comparisons(before.comparisons, after.comparisons),
        tpot_histogram=histogram(tpot, TPOT_BOUNDS),
        ttft_histogram=histogram(ttft, TTFT_BOUNDS),
    )


def _cells(grown: Floats) -> tuple[StepCell, ...]:
    found = []
    for k, size in np.argwhere(grown[:, :, at.C_STEPS] > 0):
        steps, seconds, requests, tokens, prompt = map(float, grown[k, size])
        found.append(StepCell(int(k), requests / steps, steps, seconds, tokens, prompt))
    return tuple(found)


def _comparisons(
    before: dict[tuple[int, int, int, int], Comparison], after: dict[tuple[int, int, int, int], Comparison]
) -> tuple[Comparison, ...]:
    """What grew, label set by label set; one that is new began at 0."""
    grown = (less(value, before.get(key)) for key, value in after.items())
    return tuple(value for value in grown if value.blocks > 0)
