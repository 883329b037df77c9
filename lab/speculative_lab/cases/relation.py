"""Acceptance rate -> throughput, as a serving simulator published it, and the assumptions that give the same.

Called by `prediction` (rows whose load is an acceptance rate), the documentation's plot and the tests. Pure arithmetic.

Published (a vendor's simulated chart): acceptance of 50 / 70 / 85 / 95 % gives 1.22 / 1.41 / 1.56 / 1.67 times the
throughput end to end, prefill included, where decoding gains at most 3.0 / 2.5 / 2.0 times for structured text / code /
language. With independent acceptance a, K drafts and a draft pass that costs the share c of a verification step,

    decode gain = min((1 - a^(K+1)) / (1 - a) / (1 + K c), cap)        end to end = 1 / (1 - d + d / decode gain)

comes within 0.6 % of all four at K = 3, c = 0.11, d = 0.62: an EAGLE-like drafter (a pass of one is 12 % of a step of
Llama-3.1-8B on H100) for requests that spend 38 % of their time on prefill and on what drafts do not shorten. The
limit at a = 1, 4 / 1.33 = 3.0, is the cap published for structured text.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

DRAFTS = 3
DRAFT_COST = 0.11
DECODE_SHARE = 0.62
CAPS = {"structured": 3.0, "code": 2.5, "language": 2.0}
PUBLISHED = ((0.50, 1.22), (0.70, 1.41), (0.85, 1.56), (0.95, 1.67))


def decode_gain(
    acceptance: ArrayLike, k: int = DRAFTS, draft_cost: float = DRAFT_COST, cap: float = CAPS["structured"]
) -> NDArray[np.float64]:
    """Gain of decoding alone at a batch that does not saturate the accelerator; `acceptance` in [0, 1]."""
    chance = np.clip(np.asarray(acceptance, dtype=float), 0.0, 1.0)
    length = sum(chance**j for j in range(k + 1))
    return np.asarray(np.minimum(length / (1.0 + k * draft_cost), cap))


def end_to_end_gain(
    acceptance: float,
    k: int = DRAFTS,
    draft_cost: float = DRAFT_COST,
    decode_share: float = DECODE_SHARE,
    cap: float = CAPS["structured"],
) -> float:
    """Gain of whole requests of which `decode_share` of the time without drafts is decoding (Amdahl)."""
    return float(1.0 / (1.0 - decode_share + decode_share / decode_gain(acceptance, k, draft_cost, cap)))


def curves(points: int = 51) -> dict[str, NDArray[np.float64]]:
    """Numbers to plot: "acceptance" 0..1, and the end-to-end gain under each cap, by class of text."""
    acceptance = np.linspace(0.0, 1.0, points)
    found = {"acceptance": acceptance}
    for name, cap in CAPS.items():
        found[name] = np.array([end_to_end_gain(float(chance), cap=cap) for chance in acceptance])
    return found
