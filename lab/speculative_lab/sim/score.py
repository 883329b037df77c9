"""How good a simulated run was: regret, safety, adaptation, writes, removal. Used by bench and command line.

Every run of a scenario has the same requests. Speed is output tokens per request-second of residence, waiting included,
so it falls with every way in which requests are held up, and for a fixed number of users it is their throughput.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

WARM_UP = 60.0
"""Seconds at the start that no score counts."""
WINDOW = 300.0
"""Seconds of a safety window; a new one begins every WINDOW_STEP."""
WINDOW_STEP = 60.0
SAFE_SHARE = 0.98
LEAST_TOKENS = 2000.0
"""A window with fewer tokens says nothing: single requests decide its speed."""
ADAPTED_SHARE = 0.97
ADAPT_WINDOW = 20.0
CONFIRM_WINDOW = 60.0
DEAD_WEIGHT_GAIN = 0.05
"""Removal is right when it is faster than the best table with the drafter by more than this."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one controller did to one scenario. Slices are of equal length; arrays have one entry a slice."""

    name: str
    ends: Array
    """Simulated seconds at the end of each slice."""
    tokens: Array
    request_seconds: Array
    """Residence of all requests in the slice, those that wait included."""
    writes: tuple[float, ...] = ()
    """Simulated seconds of each change of table, or of what is tried, after the first one."""
    removals: tuple[float, ...] = ()
    """Simulated seconds at which pods were told to run without the drafter."""
    shares: dict[int, float] = field(default_factory=dict)
    """Request-steps by K, where the controller counts them."""

    @property
    def seconds(self) -> float:
        return float(self.ends[-1])


def speed(run: Run, since: float = WARM_UP, until: float = np.inf) -> float:
    """Output tokens per request-second of the slices that end in (since, until]; NaN without any request."""
    inside = (run.ends > since + 1e-6) & (run.ends <= until + 1e-6)
    held = float(run.request_seconds[inside].sum())
    return float(run.tokens[inside].sum()) / held if held > 0 else float("nan")


def regret(run: Run, best: Run) -> float:
    """1 - speed / speed of `best`; negative where the run was faster."""
    return 1.0 - speed(run) / speed(best)


def window_ratios(run: Run, off: Run) -> list[tuple[float, float]]:
    """(start in seconds, speed over that of no drafts) of each safety window that holds enough tokens."""
    starts = [float(start) for start in np.arange(WARM_UP, run.seconds - WINDOW + 1.0, WINDOW_STEP)]
    return [
        (start, speed(run, start, start + WINDOW) / speed(off, start, start + WINDOW))
        for start in starts
        if min(_tokens(run, start, start + WINDOW), _tokens(off, start, start + WINDOW)) >= LEAST_TOKENS
    ]


def unsafe_windows(run: Run, off: Run, pauses: Sequence[tuple[float, float]] = ()) -> tuple[int, int]:
    """(windows in which the run was slower than SAFE_SHARE of no drafts, windows compared).

    `pauses`: (from, until) in seconds; windows that touch one are not compared.
    """
    ratios = [
        ratio
        for start, ratio in window_ratios(run, off)
        if not any(start < until and begin < start + WINDOW for begin, until in pauses)
    ]
    return sum(ratio < SAFE_SHARE for ratio in ratios), len(ratios)


def worst_window(run: Run, off: Run) -> float:
    """Smallest speed over that of no drafts in any window; NaN when none was compared."""
    return min((ratio for _, ratio in window_ratios(run, off)), default=float("nan"))


def adaptation_seconds(run: Run, best: Run, steps: Sequence[float]) -> list[float]:
    """For each change of load at `steps`: seconds until the run keeps within 3 % of `best`.

    Single slices scatter by several per cent, so a moment counts as reached when both the 20 s and the 60 s from it
    on are within 3 %. A change with no such moment before the next one counts whole.
    """
    found = []
    for step, following in pairwise([*steps, run.seconds]):
        starts = run.ends[(run.ends >= step - 1e-6) & (run.ends <= following - CONFIRM_WINDOW)]
        reached = (float(start) - step for start in starts if _keeps_up(run, best, float(start)))
        found.append(max(0.0, next(reached, following - step)))
    return found


def writes_per_hour(run: Run) -> float:
    return 3600.0 * len(run.writes) / run.seconds


def dead_drafter_minutes(run: Run, dead_since: float) -> float:
    """Minutes from `dead_since` until the drafter was first unloaded; to the end of the run when it never was."""
    return (next((at for at in run.removals if at >= dead_since), run.seconds) - dead_since) / 60.0


def is_dead_weight(without: Run, best: Run, since: float) -> bool:
    """True when pods that never had the drafter beat the best table with it by more than DEAD_WEIGHT_GAIN."""
    begin = max(since, WARM_UP)
    return speed(without, begin) > (1.0 + DEAD_WEIGHT_GAIN) * speed(best, begin)


def _tokens(run: Run, since: float, until: float) -> float:
    return float(run.tokens[(run.ends > since + 1e-6) & (run.ends <= until + 1e-6)].sum())


def _keeps_up(run: Run, best: Run, start: float) -> bool:
    return all(
        speed(run, start, start + width) >= ADAPTED_SHARE * speed(best, start, start + width)
        for width in (ADAPT_WINDOW, CONFIRM_WINDOW)
    )
