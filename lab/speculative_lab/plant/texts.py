"""Which drafts a text accepts: a matter of the text and the place in it, not of chance in the run.

Each request has a seed. Whether the token at an index can be foreseen follows from the seed and the index alone, so the
same request meets the same luck under every law, and a draft that failed at K = 2 fails at K = 5, too. Easy and hard
stretches alternate within a text.
"""

from __future__ import annotations

import math

import numpy as np

from speculative_lab.plant import layout as at
from speculative_lab.plant.compiled import compiled
from speculative_lab.plant.types import Floats, Machine

ENTRIES = 16384
"""Of each of the two tables of quantiles in `Machine.quantiles`: logistic first, then normal."""


@compiled
def scrambled(seed: float, index: int) -> np.uint64:
    """64 bits that look random, the same for the same seed and index."""
    value = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(index) * np.uint64(0xD1B54A32D192ED03)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@compiled
def uniform(seed: float, index: int) -> float:
    """A number in [0, 1) that is the same for the same seed and index."""
    return float(scrambled(seed, index) >> np.uint64(40)) / 16777216.0


@compiled
def normal(quantiles: Floats, seed: float, index: int) -> float:
    """The same, normally distributed."""
    return float(quantiles[ENTRIES + int(scrambled(seed, index) >> np.uint64(50))])


@compiled
def stretch(machine: Machine, request: Floats, index: int) -> float:
    """How much easier than the mean, in log-odds, the stretch of text around token `index` is."""
    par = machine.par
    place = (index >> int(par[at.SEGMENT_BITS])) + 1_000_003
    easy = 0.5 if scrambled(request[at.SEED], place + 7_919) & np.uint64(1) else -0.5
    return float(par[at.REGIME]) * easy + float(par[at.SEGMENT_SD]) * normal(machine.quantiles, request[at.SEED], place)


@compiled
def first_odds(machine: Machine, request: Floats, now: float) -> float:
    """Log-odds of the next draft, but for the stretch of text that it lies in."""
    par = machine.par
    base = request[at.SKILL]
    if par[at.SHIFT_AT] <= now < par[at.SHIFT_END]:
        base += par[at.SHIFT_BY]
    base -= par[at.GAP_COST] * request[at.GAPPED] / max(request[at.CONTEXT], 1.0)
    return float(base - par[at.CONTEXT_SLOPE] * np.log2(1.0 + request[at.CONTEXT] / 1024.0))


@compiled
def accepted(machine: Machine, request: Floats, drafts: int, now: float) -> int:
    """How many of `drafts` drafts in a row turn out right."""
    par = machine.par
    begin = int(request[at.MADE])
    base = first_odds(machine, request, now)
    near = stretch(machine, request, begin)
    for j in range(drafts):
        if j and ((begin + j) >> int(par[at.SEGMENT_BITS])) != ((begin + j - 1) >> int(par[at.SEGMENT_BITS])):
            near = stretch(machine, request, begin + j)
        luck = machine.quantiles[int(scrambled(request[at.SEED], begin + j) >> np.uint64(50))]
        if luck >= base + near - par[at.DECAY] * j:
            return j
    return drafts


@compiled
def survivals(machine: Machine, request: Floats, now: float, found: Floats) -> None:
    """Fill in the chance that drafts 1 to j + 1 of a request are accepted, as a perfect speculator would tell it."""
    begin, base, chance = int(request[at.MADE]), first_odds(machine, request, now), 1.0
    for j in range(len(found)):
        odds = base + stretch(machine, request, begin + j) - machine.par[at.DECAY] * j
        chance /= 1.0 + math.exp(-odds)
        found[j] = chance


@compiled
def findable(machine: Machine, request: Floats) -> bool:
    """True where a speculator that looks text up finds a continuation at this place."""
    place = (int(request[at.MADE]) >> int(machine.par[at.SEGMENT_BITS])) + 2_000_003
    return bool(uniform(request[at.SEED], place) < request[at.MATCH])
