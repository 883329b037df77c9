"""The decision surface: the best K for each concurrency and acceptance, as the tuner prices it on priors. For `charts`.

The axis of acceptance is the chance that the first draft token of a step is accepted, because that alone does not
depend on K; the other positions keep their odds relative to it, as they are believed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speculative_operator.domain.decision import Policy
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
    believed: float
    """Acceptance of the first draft as it is believed."""


def surface(policy: Policy, acceptance: ArrayLike = ACCEPTANCE) -> Surface:
    """The surface of a pair whose speculator drafts."""
    view = outlook(policy)
    believed = _conditionals(view)
    shares = np.asarray(acceptance, dtype=float)
    best = [np.argmax(_at(view, believed, float(share)).speed, axis=1) for share in shares]
    return Surface(grid(policy.knobs.max_batch), tuple(shares.tolist()), np.array(view.ks)[best], float(believed[0]))


def _at(view: Outlook, believed: Array, share: float) -> Outlook:
    """`view`, were the first draft accepted with chance `share`."""
    odds = _odds(believed) * _odds(np.array([share])) / _odds(believed[:1])
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
