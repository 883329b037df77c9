"""The decision surface: the best K for each concurrency and acceptance, as the tuner prices it.

Used by the report of the demo, which draws it and puts what was observed on it, and by `charts`. The axis of
acceptance is the chance that the first draft token of a step is accepted, because that alone does not depend on K;
the other positions keep their odds relative to it, as they are believed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.observation import PodWindow
from speculative_operator.tuner import Memory
from speculative_operator.tuner.grid import grid
from speculative_operator.tuner.outlook import Outlook, outlook

Array = NDArray[np.float64]

ACCEPTANCE: tuple[float, ...] = tuple(share / 100 for share in range(2, 100, 4))
"""Chance that the first draft is accepted, at which the surface is computed."""
_SUREST = 0.999
_UNLIKELIEST = 1e-4


@dataclass(frozen=True)
class Surface:
    """Best K over concurrency and acceptance."""

    concurrency: tuple[int, ...]
    """Decoding requests of one replica."""
    acceptance: tuple[float, ...]
    """Chance that the first draft of a step is accepted."""
    ks: NDArray[np.int64]
    """Best K, [acceptance, concurrency]."""
    gain_percent: Array
    """Tokens per second of that K over pods without a speculator, [acceptance, concurrency]."""
    believed: float
    """Acceptance of the first draft as it is believed now."""


def surface(policy: Policy, memory: Memory | None = None, acceptance: ArrayLike = ACCEPTANCE) -> Surface:
    """The surface with what `memory` holds of costs and traffic; None: on priors alone."""
    view = outlook(policy)
    if memory is not None:
        view = outlook(policy, memory.costs, memory.acceptance, memory.traffic)
    shares = np.asarray(acceptance, dtype=float)
    speeds = [_at(view, float(share)).speed for share in shares]
    best = np.array([np.argmax(speed, axis=1) for speed in speeds])
    gains = np.array([speed.max(axis=1) for speed in speeds]) - view.off_speed[None, :]
    return Surface(
        concurrency=grid(policy.knobs.max_batch),
        acceptance=tuple(shares.tolist()),
        ks=np.array(view.ks)[best],
        gain_percent=np.asarray(100.0 * np.expm1(gains)),
        believed=float(_conditionals(view)[0]) if len(view.drafts.length) > 1 else 0.0,
    )


def first_accepted(window: PodWindow) -> float | None:
    """Where a window lies on the axis of acceptance; None when nothing was drafted in it."""
    if not window.drafts or not window.accepted_per_position:
        return None
    return min(1.0, window.accepted_per_position[0] / window.drafts)


def _at(view: Outlook, share: float) -> Outlook:
    """`view`, were the first draft accepted with chance `share`."""
    believed = _conditionals(view)
    if not len(believed):
        return view
    wanted = _odds(np.array([share])) / _odds(believed[:1])
    odds = _odds(believed) * wanted
    length = 1.0 + np.concatenate(([0.0], np.cumsum(np.cumprod(odds / (1.0 + odds)))))
    return replace(view, drafts=replace(view.drafts, length=length))


def _conditionals(view: Outlook) -> Array:
    """a_1..a_max from the acceptance length of each K."""
    survival = np.diff(np.asarray(view.drafts.length, dtype=float))
    before = np.concatenate(([1.0], survival[:-1]))
    return np.clip(survival / np.maximum(before, _UNLIKELIEST), _UNLIKELIEST, _SUREST)


def _odds(chance: Array) -> Array:
    bounded = np.clip(chance, _UNLIKELIEST, _SUREST)
    return np.asarray(bounded / (1.0 - bounded))
