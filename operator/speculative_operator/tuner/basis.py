"""The coordinates in which step costs are learned: factors on the prior's terms, and local corrections of its form.

Called by costs. log T = log(sum_i terms_i exp(theta_i)) + u(n) + v_K: five factors say that the hardware is faster or
slower than thought; u, piecewise linear in log2 of the verified tokens n, takes up knees and steps that a linear sum
does not have; v_K takes up what is peculiar to one K (an unfortunate kernel, a broken dynamic path).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speculative_operator.domain.knobs import KnobSpace

Array = NDArray[np.float64]

TERMS = ("fixed", "tokens", "context", "drafting", "prefill")
"""The parts of a step whose size is learned, each by one factor on its prior."""
KNOT_SD = 0.05
"""Log standard deviation of the correction at one size: what capture staircases and tile sizes bring."""
K_SD = 0.08
"""Log standard deviation of the correction of one K."""


@dataclass(frozen=True)
class Basis:
    """Columns of the regression: TERMS, then a knot at each power of two of verified tokens, then one for each K."""

    ks: tuple[int, ...]
    knots: int

    @property
    def size(self) -> int:
        return len(TERMS) + self.knots + len(self.ks)

    def prior_precision(self, terms: Array) -> Array:
        """Prior precision of all columns, [size, size]; `terms` is the precision of the TERMS."""
        precision = np.zeros((self.size, self.size))
        first = len(TERMS)
        precision[:first, :first] = terms
        rest = np.r_[np.full(self.knots, KNOT_SD**-2), np.full(len(self.ks), K_SD**-2)]
        precision[range(first, self.size), range(first, self.size)] = rest
        return precision

    def local(self, tokens: ArrayLike, k: ArrayLike | None) -> Array:
        """Columns after TERMS, [..., knots + ks], of steps that verify `tokens` at mean K `k`.

        A mean K between two K counts as a share of each. `k` has the shape of `tokens`; None: no column of a K is set.
        """
        place = np.clip(np.log2(np.maximum(np.asarray(tokens, dtype=float), 1.0)), 0.0, self.knots - 1.0)
        out = np.zeros((*place.shape, self.knots + len(self.ks)))
        out[..., : self.knots] = np.maximum(1.0 - np.abs(place[..., None] - np.arange(self.knots)), 0.0)
        if k is not None:
            mean = np.asarray(k, dtype=float)[..., None]
            out[..., self.knots :] = np.maximum(1.0 - np.abs(mean - np.array(self.ks, dtype=float)), 0.0)
        return out


@lru_cache(maxsize=256)
def basis_of(knobs: KnobSpace) -> Basis:
    """The basis that covers every table that `knobs` allow."""
    ks = tuple(sorted(set(knobs.ks))) or (0,)
    most = knobs.max_batch * (ks[-1] + 1)
    return Basis(ks, math.ceil(math.log2(max(most, 2))) + 1)
