"""Predicts acceptance: survival of each draft position before any measurement, and tokens per step from it.

Called by the tuner (prior of its posteriors, which are over conditionals) and the emulator (its acceptance). `S_j` is
the probability that draft token j is accepted, given that a draft was made; non-increasing in j. Profiles and their
sources: data/acceptance.csv.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speculative_operator.domain.spec import Method, Workload
from speculative_operator.physics.catalog import rows

POSITION_SHRINK = 0.95
"""Beyond the known positions the chance to survive one more position falls by 5 % a position."""

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


def prior_survival(method: Method, workload: Workload, k: int) -> NDArray[np.float64]:
    """Expected `S_1..S_k` of `method` on `workload`; an array of length k (empty for k < 1)."""
    return extend(np.array(_profiles()[_FAMILIES[method], workload]), k)


def extend(survival: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """`survival` cut to k positions, or continued with the last conditional, shrunk by 5 % a position."""
    known = list(survival[: max(k, 0)])
    before = known[-2] if len(known) > 1 else 1.0
    conditional = known[-1] / before if known and before > 0 else 0.0
    while len(known) < k:
        conditional *= POSITION_SHRINK
        known.append((known[-1] if known else 1.0) * conditional)
    return np.array(known, dtype=float)


def conditionals(survival: NDArray[np.float64]) -> NDArray[np.float64]:
    """`a_1..a_k` of `S_1..S_k`: the chance of draft j, given that all before it were accepted."""
    before = np.concatenate(([1.0], np.maximum(survival[:-1], 1e-12)))
    return np.asarray(survival / before)


def expected_tokens(survival: ArrayLike, k: int) -> float:
    """Acceptance length at K = k: 1 + S_1 + ... + S_k tokens per verification, the verifier's own token included."""
    return 1.0 + float(np.sum(np.asarray(survival, dtype=float)[: max(k, 0)]))


@cache
def _profiles() -> dict[tuple[str, Workload], tuple[float, ...]]:
    return {
        (row["family"], Workload(row["workload"])): tuple(float(row[f"s{j}"]) for j in range(1, 9))
        for row in rows("acceptance")
    }
