"""True acceptance of the workload classes that scenarios draw requests from, as literal figures. Used by `scenarios`.

Fits of two-geometric run lengths to published profiles; sources as in physics/data/acceptance.csv: SpecDecode-Bench's
replays of Llama-3.1-8B for heads and look-up, Gemma-4-31B with DFlash for block drafters, acceptance lengths behind the
published speed-ups of Qwen3-8B for draft models. Written out, so that the judge stays when the tuner's priors move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from speculative_lab.sim.drafts import LOOKUP_SHARE, MIX, Drafts, dead
from speculative_operator.domain.spec import Method, Workload

KINDS = (Workload.CODE, Workload.STRUCTURED, Workload.CHAT, Workload.SUMMARIZATION, Workload.CREATIVE)
"""Order of the classes; behind them comes one whose drafts are never accepted."""
MIXED = (*(dict(MIX).get(kind, 0.0) for kind in KINDS), 0.0)
NEVER = (*(0.0 for _ in KINDS), 1.0)

_TRUTH: Mapping[Method, tuple[tuple[float, float, float], ...]] = {
    Method.EAGLE3: (
        (0.588, 0.787, 0.535), (0.828, 0.654, 0.617), (0.136, 0.842, 0.544), (0.025, 0.920, 0.607),
        (0.216, 0.680, 0.446),
    ),
    Method.DFLASH: (
        (0.396, 0.855, 0.822), (0.792, 0.700, 0.554), (0.187, 0.730, 0.708), (0.833, 0.621, 0.606),
        (0.212, 0.725, 0.711),
    ),
    Method.DRAFT_MODEL: (
        (0.045, 0.827, 0.819), (0.383, 0.822, 0.786), (0.125, 0.680, 0.662), (0.945, 0.744, 0.724),
        (0.351, 0.592, 0.562),
    ),
    Method.NGRAM: (
        (0.247, 0.917, 0.052), (0.257, 0.786, 0.044), (0.173, 0.817, 0.057), (0.257, 0.786, 0.044),
        (0.227, 0.640, 0.035),
    ),
}  # fmt: skip
"""w, p, q of each class."""
_LARGEST_SHIFT = 0.3


def classes(method: Method, rng: np.random.Generator | None = None) -> tuple[Drafts, ...]:
    """Drafts of `KINDS`, then the class of no acceptance. With `rng` the log-odds of each are off by up to 0.3."""
    share = LOOKUP_SHARE if method is Method.NGRAM else 1.0
    found = [Drafts(*figures, draft_share=share) for figures in _TRUTH[method]]
    if rng is not None:
        found = [_shifted(own, rng.uniform(-_LARGEST_SHIFT, _LARGEST_SHIFT)) for own in found]
    return (*found, dead())


def _shifted(own: Drafts, shift: float) -> Drafts:
    p, q = (float(chance[0]) for chance in own.for_effects([shift / own.spread]))
    return replace(own, p=p, q=q)
