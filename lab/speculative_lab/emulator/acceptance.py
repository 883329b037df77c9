"""How many drafts of a step are accepted: survival per workload class, K and request tendency (pure).

Called by `core`. A request carries a random effect, its tendency: one shift of the log-odds of every conditional
acceptance, from equally likely bins. The shifted profiles are centred so that the mean over drafts (not over requests:
a request with poor acceptance takes more steps) is the class's published survival.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from speculative_lab.emulator.batch import Ints
from speculative_lab.emulator.drafting import Drafting
from speculative_lab.emulator.speculative import Speculative
from speculative_operator.domain.spec import Method, Workload
from speculative_operator.physics.acceptance import prior_survival

Floats: TypeAlias = NDArray[np.float64]

TENDENCIES = 32
"""Bins of the random effect, each of probability 1/32."""
WORKLOADS = tuple(Workload)
"""Row of each class in the tables."""
MATCHED_FIRST = 0.6
"""First-position acceptance of look-up drafts, given that the text had a match: the published survival is per step, so
its first position divided by this is the share of steps that draft at all (a guess; 0.4 was seen on a tiny model)."""
GAP_COST = 0.7
"""Log-odds that a draft loses where the drafter has seen nothing of a request, a part of it in proportion: a trained
EAGLE-3 head accepted 0.20 instead of 0.25 of its drafts after 180 tokens that it had not seen, 0.34 instead of 0.35
after 60."""
_CERTAIN = 1e-6


class AcceptanceTable:
    """Survival by (workload, tendency, K, position), filled for a class when it is first asked for."""

    def __init__(self, max_k: int, survival: Callable[[Workload], Floats], spread: float, looks_up: bool) -> None:
        """`survival(workload)` gives S_1..S_max_k per step; `spread` is the standard deviation of the random effect.

        `looks_up`: drafts only where the text matches, so survival is split into a share of drafted steps and the rest.
        """
        self._max_k = max_k
        self._survival = survival
        self._shifts = _shifts(spread)
        self._looks_up = looks_up
        self._table = np.zeros((len(WORKLOADS), TENDENCIES, max_k + 1, max_k))
        self._share = np.ones(len(WORKLOADS))
        self._filled: set[int] = set()

    def prepare(self, workload: int) -> None:
        """Fill the class's rows; call before its first request is admitted."""
        if workload in self._filled or not self._max_k:
            return
        survival = np.asarray(self._survival(WORKLOADS[workload]), dtype=float)
        if self._looks_up:
            self._share[workload] = min(max(survival[0] / MATCHED_FIRST, survival[0]), 1.0)
            survival = survival / max(self._share[workload], _CERTAIN)
        for k in range(1, self._max_k + 1):
            self._table[workload, :, k, :k] = centred(survival[:k], self._shifts)
        self._filled.add(workload)

    def survival(self, workload: Ints, tendency: Ints, drafts: Ints, unseen: Floats | None = None) -> Floats:
        """Survival by position of each request that drafted `drafts` >= 1 tokens (arrays of one length).

        `unseen`: the share of its context that the drafter has missed.
        """
        rows = self._table[workload, tendency, drafts]
        return with_gaps(rows, unseen) if unseen is not None and unseen.any() else rows

    def drafted(self, workload: Ints, k: int, rng: np.random.Generator) -> Ints:
        """Draft tokens that each request gets at K = k: k, or 0 where a look-up finds no match."""
        if not self._looks_up or k == 0:
            return np.full(len(workload), k, dtype=np.int64)
        return np.where(rng.random(len(workload)) < self._share[workload], k, 0).astype(np.int64)


def accepted(survival: Floats, rng: np.random.Generator) -> Ints:
    """Accepted drafts of each request, drawn from its survival by position."""
    uniform = rng.random(len(survival))
    return np.asarray((uniform[:, None] < survival).sum(axis=1), dtype=np.int64)


def acceptance_table(speculative: Speculative | None, drafting: Drafting | None, spread: float) -> AcceptanceTable:
    """The table of an engine: the published prior of its method."""
    if speculative is None or drafting is None:
        return AcceptanceTable(0, lambda _: np.zeros(0), 0.0, False)
    method = Method(speculative.method)
    return AcceptanceTable(
        speculative.k,
        lambda workload: prior_survival(method, workload, speculative.k),
        spread,
        not drafting.always_drafts,
    )


def with_gaps(survival: Floats, unseen: Floats) -> Floats:
    """Survival of requests, an array (requests, K), of whose contexts the drafter has missed these shares."""
    before = np.concatenate((np.ones((len(survival), 1)), survival[:, :-1]), axis=1)
    accepted = np.divide(survival, before, out=np.zeros_like(survival), where=before > 0)
    odds = np.exp(-GAP_COST * unseen)[:, None] * accepted
    return np.asarray(np.cumprod(odds / (odds + 1.0 - accepted), axis=1))


def centred(survival: Floats, shifts: Floats) -> Floats:
    """Survival of each tendency: an array (tendencies, K) whose mean over drafts is `survival`.

    Drafts are weighted by 1 / acceptance length, which is how many steps a request of that tendency needs.
    """
    weights = np.full(len(shifts), 1.0 / len(shifts))
    profile = np.tile(survival, (len(shifts), 1))
    if not shifts.any():
        return profile
    for _ in range(8):
        profile = _profile(survival, shifts, weights)
        steps = 1.0 / (1.0 + profile.sum(axis=1))
        weights = steps / steps.sum()
    return profile


def _profile(survival: Floats, shifts: Floats, weights: Floats) -> Floats:
    profile = np.empty((len(shifts), len(survival)))
    before = np.ones(len(shifts))
    previous = 1.0
    for position, target in enumerate(survival):
        ratio = target / previous if previous > 0 else 0.0
        certain = not _CERTAIN < ratio < 1 - _CERTAIN
        before = before * (ratio if certain else _solve(target, before, shifts, weights))
        profile[:, position] = before
        previous = target
    return profile


def _solve(target: float, before: Floats, shifts: Floats, weights: Floats) -> Floats:
    """Conditionals sigmoid(c + shift) with c such that the weighted survival is `target` (bisection)."""
    low, high = -20.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        if float(np.dot(weights, before / (1.0 + np.exp(-middle - shifts)))) < target:
            low = middle
        else:
            high = middle
    return np.asarray(1.0 / (1.0 + np.exp(-(low + high) / 2 - shifts)))


def _shifts(spread: float) -> Floats:
    if spread <= 0:
        return np.zeros(TENDENCIES)
    normal = NormalDist(0.0, spread)
    middles: Sequence[float] = [(index + 0.5) / TENDENCIES for index in range(TENDENCIES)]
    return np.array([normal.inv_cdf(middle) for middle in middles])
