"""Adaptive verification as vLLM 0.32 does it: which drafts of a step the verifier computes (pure). Called by `core`.

vLLM weighs all drafts of a step by the chance that they are accepted, with a cost curve that it measured at its start,
and verifies the likeliest ones, as many as give the most tokens per second. A draft that is left out ends the run of
its request as a rejected one would, and scheduler and metrics count it like one. Source: vLLM 0.32
v1/worker/gpu/spec_decode/adaptive_verification.py.
"""

from __future__ import annotations

import numpy as np

from speculative_lab.emulator.batch import Floats, Ints


def verified_drafts(survival: Floats, drafts: Ints, sampling: int, seconds: Floats) -> Ints:
    """Of `drafts[i]` drafts of request i, the number that is verified.

    `survival[i, j]`: the chance that drafts 1 to j + 1 of request i are accepted; `sampling`: requests that get a token
    of the verifier's own; `seconds[n]`: seconds of the step with n verified drafts, up to the sum of `drafts` at least.
    """
    chances = np.where(np.arange(survival.shape[1]) < drafts[:, None], survival, -np.inf).ravel()
    likeliest = np.argsort(-chances, kind="stable")[: int(drafts.sum())]
    tokens = sampling + np.concatenate(([0.0], np.cumsum(chances[likeliest])))
    best = int(np.argmax(tokens / seconds[: len(tokens)]))
    return np.bincount(likeliest[:best] // survival.shape[1], minlength=len(drafts)).astype(np.int64)
