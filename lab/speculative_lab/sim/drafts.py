"""How many drafts of a workload class are accepted: run lengths, spread over requests. Called by `workload`, `plant`.

A run is the number of drafts in a row that the verifier would accept. A step at K takes min(K, what is left of the
run); when all K are accepted the run goes on after those K + 1 tokens, else the next one starts (`physics.acceptance`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speculative_operator.domain.spec import Method, Workload
from speculative_operator.physics.acceptance import LONGEST, RunLengths, fit_run_lengths, prior_survival

Array = NDArray[np.float64]

MIX: tuple[tuple[Workload, float], ...] = (
    (Workload.CODE, 0.35),
    (Workload.STRUCTURED, 0.20),
    (Workload.CHAT, 0.30),
    (Workload.SUMMARIZATION, 0.15),
)
"""Shares of the classes in a mixed load."""
LOOKUP_SHARE = 0.42
"""Share of request-steps in which a look-up in the text drafts at all: vLLM 0.32.0, n-gram K = 4 (749 of 1787)."""
_LOOKUPS = frozenset({Method.NGRAM, Method.NGRAM_GPU, Method.SUFFIX})
_BINS = 64


@dataclass(frozen=True, slots=True)
class Drafts:
    """Acceptance of one workload class: P(L = l) = w (1-p) p^l + (1-w) (1-q) q^l."""

    w: float
    p: float
    q: float
    spread: float = 0.3
    """Standard deviation of a request's effect on the log-odds of p and q."""
    draft_share: float = 1.0
    """Share of request-steps that get a draft (below 1 for look-up methods)."""

    def for_effects(self, effects: ArrayLike) -> tuple[Array, Array]:
        """p and q of requests with these standard normal effects."""
        shift = self.spread * np.asarray(effects, dtype=float)
        return _shifted(self.p, shift), _shifted(self.q, shift)

    def length(self, k: int, factor: float = 1.0) -> float:
        """Expected tokens per request-step at constant K, over requests of equal output length.

        `factor` is the drift: share of runs that start at all. Truncation at the last token is left out.
        """
        if k < 1:
            return 1.0
        normal = NormalDist()
        long, short = self.for_effects([normal.inv_cdf((place + 0.5) / _BINS) for place in range(_BINS)])
        tokens = factor * (self.w / (1.0 - long) + (1.0 - self.w) / (1.0 - short)) + (1.0 - factor)
        pieces = factor * (self.w / (1.0 - long ** (k + 1)) + (1.0 - self.w) / (1.0 - short ** (k + 1))) + 1.0 - factor
        lengths = 1.0 + self.draft_share * (tokens / pieces - 1.0)
        return float(1.0 / np.mean(1.0 / lengths))


def drafts_from(survival: ArrayLike, *, share: float = 1.0, spread: float = 0.3) -> Drafts:
    """Drafts whose survival at K = len(survival) is the given one per request-step.

    Where only a `share` of request-steps has a draft, what is accepted is packed into those.
    """
    runs: RunLengths = fit_run_lengths(np.minimum(np.asarray(survival, dtype=float) / share, 1.0))
    return Drafts(runs.w, runs.p, runs.q, spread, share)


def published(method: Method, workload: Workload) -> Drafts:
    """Drafts fitted to the published profile of a class: `physics/data/acceptance.csv` names the source of each.

    Block drafters: Gemma-4-31B with DFlash, K = 8 (vLLM blog, 2026-05-28). EAGLE family and n-gram: Llama-3.1-8B,
    greedy replay at K = 10 (SpecDecode-Bench per-token data).
    """
    share = LOOKUP_SHARE if method in _LOOKUPS else 1.0
    return drafts_from(prior_survival(method, workload, 8), share=share)


def published_mix(method: Method) -> tuple[tuple[Drafts, ...], tuple[float, ...]]:
    """Classes and shares of `MIX` for a method."""
    return tuple(published(method, workload) for workload, _ in MIX), tuple(share for _, share in MIX)


def dead(spread: float = 0.0) -> Drafts:
    """A drafter whose drafts are never accepted."""
    return Drafts(0.0, 0.0, 0.0, spread)


def draws(classes: Sequence[Drafts], kind: NDArray[np.int64], effects: Array) -> Array:
    """Columns SHARE, MIX, LONG, SHORT of `layout` for requests of these classes and standard normal effects."""
    found = np.empty((len(kind), 4))
    for index, own in enumerate(classes):
        rows = kind == index
        long, short = own.for_effects(effects[rows])
        found[rows, 0], found[rows, 1] = own.draft_share, own.w
        found[rows, 2], found[rows, 3] = _inverse_log(long), _inverse_log(short)
    return found


def _shifted(chance: float, shift: Array) -> Array:
    if chance <= 0.0:
        return np.zeros_like(shift)
    odds = chance / max(1.0 - chance, 1e-12) * np.exp(shift)
    return np.minimum(odds / (1.0 + odds), LONGEST)


def _inverse_log(chance: Array) -> Array:
    """1 / ln p, 0 for p = 0."""
    safe = np.where(chance > 0.0, chance, 0.5)
    return np.where(chance > 0.0, 1.0 / np.log(safe), 0.0)
