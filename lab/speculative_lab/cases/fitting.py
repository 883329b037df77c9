"""The global constants from published results, all of them or all but one source: how much each source decides.

Called by `speculative cases --leave-one-out` and by the tests. The constants of `Efficiencies` are estimated by Newton
steps on robust least squares (Huber) of log errors: every source weighs the same, whatever number of rows it has, and
every constant is tied to its prior. What is left out is predicted with constants that have not seen it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from speculative_lab.cases.prediction import predict_case
from speculative_lab.cases.rows import Case
from speculative_operator.physics.hardware import FITTED, Efficiencies

Array = NDArray[np.float64]

PRIOR_SPREADS = {
    # log standard deviation around the value of `Efficiencies`: how much evidence beyond the cases there is for it
    "host": 0.3,
    "bandwidth": 0.15,
    "compute": 0.2,
    "launch": 0.4,
    "expert_spread": 0.15,
    "occupancy": 0.2,
    "lookup_precision": 0.2,
    "eight_bit": 0.2,
    "four_bit": 0.3,
    "widening": 0.2,
    "tree": 0.4,
}
NOISE = 0.1
"""Log standard deviation of a published figure given the right constants."""
_HUBER = 0.2
_STEP = 0.03
_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One source predicted by constants that were fitted without it."""

    source: str
    rows: int
    error_shipped: float
    """Median |log error| with the constants in the package."""
    error_fitted: float
    """The same with constants fitted to all sources."""
    error_left_out: float
    """The same with constants fitted to all others."""


def leave_one_out(cases: Sequence[Case]) -> tuple[Efficiencies, list[LeftOut]]:
    """(constants fitted to all measured rows, one entry a source). Rows of simulators and unverified ones are left."""
    judged = [case for case in cases if case.speedup and not case.simulated and case.evidence != "unverified"]
    sources = np.array([case.source for case in judged])
    everything = fit(judged, FITTED)
    found = []
    for source in dict.fromkeys(sources.tolist()):
        own = [case for case in judged if case.source == source]
        others = [case for case in judged if case.source != source]
        without = fit(others, everything) if others else FITTED
        errors = [_median_error(own, constants) for constants in (FITTED, everything, without)]
        found.append(LeftOut(source, len(own), *errors))
    return everything, found


def fit(judged: Sequence[Case], start: Efficiencies = FITTED) -> Efficiencies:
    """The constants nearest to their priors and to the published speed-ups of `judged`."""
    if not judged:
        return start
    names = list(PRIOR_SPREADS)
    counts: dict[str, int] = {}
    for case in judged:
        counts[case.source] = counts.get(case.source, 0) + 1
    share = np.array([1.0 / counts[case.source] for case in judged])
    prior = np.log([getattr(FITTED, name) for name in names])
    tie = 1.0 / np.array([PRIOR_SPREADS[name] for name in names]) ** 2
    place = np.log([getattr(start, name) for name in names])
    for _ in range(_ROUNDS):
        errors = _errors(judged, _constants(names, place))
        lean = np.empty((len(judged), len(names)))
        for column in range(len(names)):
            moved = place.copy()
            moved[column] += _STEP
            lean[:, column] = (_errors(judged, _constants(names, moved)) - errors) / _STEP
        weight = share * np.minimum(1.0, _HUBER / np.maximum(np.abs(errors), 1e-9)) / NOISE**2
        curve = (lean * weight[:, None]).T @ lean + np.diag(tie)
        push = (lean * weight[:, None]).T @ errors + tie * (place - prior)
        place = place - np.clip(np.linalg.solve(curve, push), -0.5, 0.5)
    return _constants(names, place)


def _constants(names: Sequence[str], place: Array) -> Efficiencies:
    values = {name: math.exp(value) for name, value in zip(names, place, strict=True)}
    for most in ("occupancy", "lookup_precision", "expert_spread"):
        values[most] = min(values[most], 1.0)
    return replace(FITTED, **values)


def _errors(judged: Sequence[Case], constants: Efficiencies) -> Array:
    return np.array([predict_case(case, constants).log_error or 0.0 for case in judged])


def _median_error(cases: Sequence[Case], constants: Efficiencies) -> float:
    return float(median(np.abs(_errors(cases, constants)).tolist()))
