"""Predicts acceptance: before any measurement, and at one K from what was measured at another.

Called by the tuner (prior of its posteriors, which are over conditionals; posteriors across K), the emulator, the
laboratory, and `pairing` for what published figures promise. `S_j` is the probability that draft token j is accepted,
given that a draft was made; non-increasing in j. Profiles and their sources: data/acceptance.csv.

After a full accept the next step starts in a good run. A run is the number L of drafts in a row that the verifier
would accept. Steps cut a run into pieces of K + 1 tokens, so that survival of position j depends on K:
`S_j(K) = (E[floor(L/(K+1))] + P(L mod (K+1) >= j)) / E[floor(L/(K+1)) + 1]`.
For runs that are a mixture of two geometrics, `P(L = l) = w (1-p) p^l + (1-w) (1-q) q^l`, this is again such a mixture,

    S_j(K) = v p^j + (1 - v) q^j,        v / (1 - v) = w / (1 - w) * (1 - q^(K+1)) / (1 - p^(K+1)),

which makes the fit a least-squares problem with one linear unknown. Against greedy replays of Llama-3.1-8B at K = 1..10
(SpecDecode-Bench per-token data) acceptance lengths from K = 3 or 5 are off by 0.1 % on average (largest 0.4 %) for
n-gram and 1.4 % (6.7 %) for EAGLE; taking survival over unchanged is off by 6.1 % (39 %) and 1.9 % (7.4 %).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speculative_operator.domain.spec import Method, Workload
from speculative_operator.physics.catalog import rows

Array = NDArray[np.float64]

POSITION_SHRINK = 0.95
"""Beyond the known positions the chance to survive one more position falls by 5 % a position."""
LONGEST = 0.995
"""Largest chance that a run goes on: 200 drafts in a row. Keeps the mean run finite when every draft was accepted."""
_ALIKE = 1e-3
"""Weight of a difference of p and q: of all pairs that one or two positions allow, the most alike are taken."""
_COARSE = 25
_PLACES = np.linspace(0.0, 1.0, _COARSE)
_ROUNDS = 2
_DIAGONAL = np.eye(3)
_MOST = np.array([LONGEST, LONGEST, 1.0])
_FAMILIES = {
    Method.NGRAM: "ngram",
    Method.NGRAM_GPU: "ngram",
    Method.SUFFIX: "ngram",
    Method.DRAFT_MODEL: "draft_model",
    Method.EAGLE: "eagle",
    Method.EAGLE3: "eagle",
    Method.MTP: "eagle",
    Method.MEDUSA: "eagle",
    Method.DFLASH: "block",
    Method.DSPARK: "block",
}


def prior_survival(method: Method, workload: Workload, k: int) -> Array:
    """Expected `S_1..S_k` of `method` on `workload`; an array of length k (empty for k < 1)."""
    return extend(np.array(_profiles()[_FAMILIES[method], workload]), k)


def extend(survival: Array, k: int) -> Array:
    """`survival` cut to k positions, or continued with the last conditional, shrunk by 5 % a position."""
    known = list(survival[: max(k, 0)])
    before = known[-2] if len(known) > 1 else 1.0
    conditional = known[-1] / before if known and before > 0 else 0.0
    while len(known) < k:
        conditional *= POSITION_SHRINK
        known.append((known[-1] if known else 1.0) * conditional)
    return np.array(known, dtype=float)


def conditionals(survival: Array) -> Array:
    """`a_1..a_k` of `S_1..S_k`: the chance of draft j, given that all before it were accepted."""
    before = np.concatenate(([1.0], np.maximum(survival[:-1], 1e-12)))
    return np.asarray(survival / before)


def expected_tokens(survival: ArrayLike, k: int) -> float:
    """Acceptance length at K = k: 1 + S_1 + ... + S_k tokens per verification, the verifier's own token included."""
    return 1.0 + float(np.sum(np.asarray(survival, dtype=float)[: max(k, 0)]))


@dataclass(frozen=True, slots=True)
class RunLengths:
    """Share `w` of runs that go on with chance `p` at each draft; the others go on with chance `q`. p >= q."""

    w: float
    p: float
    q: float

    def survival(self, k: int) -> Array:
        """`S_1..S_k` of a speculator that always drafts k tokens; empty for k < 1."""
        share = _share_of_steps(self.w, self.p, self.q, k)
        positions = np.arange(1, max(k, 0) + 1)
        return np.asarray(share * self.p**positions + (1.0 - share) * self.q**positions)

    def length(self, k: int) -> float:
        """Acceptance length at K = k: tokens per verification, the verifier's own included; 1 for k < 1."""
        return 1.0 + float(self.survival(k).sum())


def fit_run_lengths(survival: ArrayLike) -> RunLengths:
    """Run lengths whose survival at K = len(survival) is nearest to `survival` by least squares.

    `survival` is `S_1..S_K`, K >= 1 (ValueError when empty), each in [0, 1]. A single position or a hazard that does
    not fall gives one geometric. Takes about 0.3 ms.
    """
    seen = np.clip(np.asarray(survival, dtype=float), 0.0, 1.0)
    if seen.ndim != 1 or not seen.size:
        raise ValueError("survival must be a list of at least one position")
    long, short, share = _search(seen)
    w = _share_of_runs(share, long, short, seen.size)
    return RunLengths(w, long, short)


def _search(seen: Array) -> tuple[float, float, float]:
    """(p, q, share of p in the survival seen): the best cell of a grid over p >= q, polished by Newton's method."""
    values, powers = _grid(seen.size)
    weight = 1.0 / seen.size
    row, column, share = _best(seen, weight, values, powers)
    place = np.array([values[row], values[column], share])
    positions = np.arange(1.0, seen.size + 1.0)
    scale = math.sqrt(weight)
    damping, error, push, curve = 1e-3, *_slope(place, seen, scale, positions)
    for _ in range(_ROUNDS):
        step = np.linalg.solve(curve + damping * _DIAGONAL, push)
        trial = np.minimum(np.maximum(place - step, 0.0), _MOST)
        trial_error, trial_push, trial_curve = _slope(trial, seen, scale, positions)
        if trial_error < error:
            place, error, push, curve = trial, trial_error, trial_push, trial_curve
            damping *= 0.1
        else:
            damping *= 10.0
    long, short, share = (float(value) for value in place)
    return (long, short, share) if long >= short else (short, long, 1.0 - share)


def _slope(place: Array, seen: Array, scale: float, positions: Array) -> tuple[float, Array, Array]:
    """Mean squared error at (p, q, share), its gradient and Gauss-Newton curvature (both halved)."""
    long, short, share = place
    above, below = long ** (positions - 1), short ** (positions - 1)
    miss = np.append((share * above * long + (1.0 - share) * below * short - seen) * scale, _ALIKE * (long - short))
    lean = np.zeros((3, seen.size + 1))
    lean[0, :-1] = share * positions * above * scale
    lean[1, :-1] = (1.0 - share) * positions * below * scale
    lean[2, :-1] = (above * long - below * short) * scale
    lean[0, -1], lean[1, -1] = _ALIKE, -_ALIKE
    return float(miss @ miss), lean @ miss, lean @ lean.T


def _best(seen: Array, weight: float, values: Array, powers: Array) -> tuple[int, int, float]:
    """(row of p, column of q, share of p) of the best cell of the grid by least squares; with p and q given, the share
    is linear: error = |S - q^j - v (p^j - q^j)|^2."""
    heavy = powers * weight
    pairs = heavy @ powers.T
    square = pairs.diagonal()
    long_square, short_square = square[:, None], square[None, :]
    towards = heavy @ seen
    to_long, to_short = towards[:, None], towards[None, :]
    spread = long_square - 2.0 * pairs + short_square
    along = to_long - to_short - pairs + short_square
    share = np.minimum(np.maximum(along / np.maximum(spread, 1e-12), 0.0), 1.0)
    error = short_square - 2.0 * to_short + share * (share * spread - 2.0 * along)
    gap = values[:, None] - values[None, :]
    error += (_ALIKE * gap) ** 2
    error[gap < 0.0] = np.inf
    row, column = divmod(int(np.argmin(error)), values.size)
    return row, column, float(share[row, column])


def _share_of_steps(w: float, p: float, q: float, k: int) -> float:
    """Share of the long runs' steps among all steps at K = k: a long run is cut into more pieces."""
    long, short = w / (1.0 - p ** (max(k, 0) + 1)), (1.0 - w) / (1.0 - q ** (max(k, 0) + 1))
    return long / (long + short)


def _share_of_runs(share: float, p: float, q: float, k: int) -> float:
    """The inverse of `_share_of_steps`: share of runs from share of steps."""
    long, short = share * (1.0 - p ** (k + 1)), (1.0 - share) * (1.0 - q ** (k + 1))
    return long / (long + short)


@cache
def _grid(positions: int) -> tuple[Array, Array]:
    values = _chances(_PLACES)
    return values, _powers(values, positions)


def _chances(places: Array) -> Array:
    """Chances at places 0..1 of the search: denser near 1, where a little more makes runs much longer."""
    return np.asarray(LONGEST * (1.0 - (1.0 - places) ** 2))


def _powers(values: Array, positions: int) -> Array:
    return np.asarray(np.multiply.accumulate(np.repeat(values[:, None], positions, axis=1), axis=1))


@cache
def _profiles() -> dict[tuple[str, Workload], tuple[float, ...]]:
    return {
        (row["family"], Workload(row["workload"])): tuple(float(row[f"s{j}"]) for j in range(1, 9))
        for row in rows("acceptance")
    }
