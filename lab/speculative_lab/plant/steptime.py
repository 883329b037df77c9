"""What a step takes on the plant's machines.

Written without the tuner's step time: weights and arithmetic overlap with a knee that is drawn, arithmetic goes in
tiles, captured sizes pad, more than the largest runs eagerly, the host works beside or after the device, drafts make
attention dearer, and every K and every size has a quirk of its own.
"""

from __future__ import annotations

import math

import numpy as np

from speculative_lab.plant import layout as at
from speculative_lab.plant.compiled import compiled
from speculative_lab.plant.texts import normal, uniform
from speculative_lab.plant.types import Floats, Machine

W_DECODING = 0
W_VERIFIED = 1
"""Tokens of decoding requests: one each and their drafts."""
W_CONTEXT = 2
W_PROMPT = 3
W_PROMPT_CONTEXT = 4
W_PROMPTS = 5
W_K = 6
"""Longest draft that is verified."""
W_EMIT = 7
"""Requests that emit, and are drafted for."""
W_DRAFT = 8
"""K that is drafted for the next step; OFF where the speculator may be left out."""
OFF = -1
WORK = 9


@compiled
def linear_seconds(machine: Machine, work: Floats) -> float:
    """Weights and their arithmetic over all tokens of the step."""
    par = machine.par
    tokens = work[W_VERIFIED] + work[W_PROMPT]
    extra = 0.0
    if work[W_PROMPT] > 0:
        extra = par[at.MIXED_SECONDS]
    if tokens <= par[at.CEILING]:
        size = float(machine.sizes[np.searchsorted(machine.sizes, int(tokens))])
    else:
        size = math.ceil(tokens / par[at.TILE]) * par[at.TILE]
        if work[W_PROMPT] == 0:
            extra = par[at.EAGER_SECONDS]
    touched = tokens / (tokens + par[at.EXPERT_HALF])
    read = par[at.DENSE_SECONDS] + par[at.EXPERT_SECONDS] * touched
    reckoned = par[at.TOKEN_SECONDS] * size
    place = min(int(8.0 * math.log2(max(size, 1.0))), len(machine.size_quirk) - 1)
    both = (read ** par[at.KNEE] + reckoned ** par[at.KNEE]) ** (1.0 / par[at.KNEE])
    return float(both * machine.size_quirk[place] + extra)


@compiled
def attention_seconds(par: Floats, work: Floats) -> float:
    """Contexts read for decoding requests, more with drafts, and the prompts' own."""
    drafts = work[W_VERIFIED] - work[W_DECODING]
    mean = drafts / work[W_DECODING] if work[W_DECODING] else 0.0
    own = par[at.CONTEXT_SECONDS] * work[W_CONTEXT] * (1.0 + par[at.CONTEXT_PER_DRAFT] * mean)
    return float(own + par[at.REQUEST_SECONDS] * work[W_DECODING] + par[at.PROMPT_CONTEXT] * work[W_PROMPT_CONTEXT])


@compiled
def rests(par: Floats, work: Floats) -> bool:
    """Whether the speculator is left out: it was asked for, and no prompt needs it and no draft is verified."""
    needed = work[W_PROMPT] > 0 and par[at.CATCHES_UP] == 0 and par[at.SKIPS_PROMPTS] == 0
    return bool(work[W_DRAFT] < 0 and not needed and work[W_K] == 0)


@compiled
def catching_seconds(par: Floats, tokens: float) -> float:
    """The speculator's pass over what it has missed."""
    return float(par[at.DRAFT_BASE] + par[at.DRAFT_PASS] + par[at.DRAFT_PROMPT] * tokens) if tokens > 0 else 0.0


@compiled
def draft_seconds(par: Floats, work: Floats) -> float:
    """The speculator's work for the next step, and its share of the prompts."""
    if work[W_EMIT] + work[W_PROMPTS] == 0 or rests(par, work):
        return 0.0
    k = work[W_DRAFT] if work[W_DRAFT] > 0 else par[at.SOFT]
    one = par[at.DRAFT_PASS] + par[at.DRAFT_PASS_REQUEST] * work[W_EMIT]
    prompts = par[at.DRAFT_PROMPT] * work[W_PROMPT]
    if k == 0:
        return float(prompts)
    if par[at.DRAFT_BLOCK] > 0:
        one = par[at.DRAFT_PASS] + par[at.DRAFT_PASS_REQUEST] * work[W_EMIT] * (0.6 + 0.1 * k)
        k = 1.0
    return float(par[at.DRAFT_BASE] + one * k + prompts)


@compiled
def noise(machine: Machine, now: Floats) -> float:
    """Factor of this step: jitter that persists, rare long steps, a neighbour's spells."""
    par = machine.par
    now[at.STEP] += 1.0
    index = int(now[at.STEP])
    fresh = normal(machine.quantiles, par[at.NOISE_SEED], index)
    keep = par[at.PERSISTENCE]
    now[at.DRIFT] = keep * now[at.DRIFT] + math.sqrt(1.0 - keep * keep) * fresh
    factor = math.exp(par[at.NOISE] * now[at.DRIFT])
    if uniform(par[at.NOISE_SEED] + 1.0, index) < par[at.TAIL_SHARE]:
        factor *= 1.0 + par[at.TAIL_SIZE] * (max(uniform(par[at.NOISE_SEED] + 2.0, index), 0.02) ** -0.5 - 1.0)
    spell = min(int(now[at.NOW] / par[at.SPELL_SECONDS]), len(machine.spells) - 1)
    return factor * float(machine.spells[spell])


@compiled
def quiet_seconds(machine: Machine, work: Floats) -> float:
    """Seconds of one step on a machine without noise."""
    par = machine.par
    device = linear_seconds(machine, work) + attention_seconds(par, work)
    device *= machine.k_quirk[int(work[W_K])]
    device += draft_seconds(par, work)
    host = par[at.HOST_SECONDS] + par[at.HOST_REQUEST] * (work[W_EMIT] + work[W_PROMPTS])
    return float(max(device, host) + (1.0 - par[at.HOST_HIDDEN]) * min(device, host))


@compiled
def step_seconds(machine: Machine, work: Floats, now: Floats) -> float:
    """Wall seconds of one step."""
    par = machine.par
    seconds = quiet_seconds(machine, work) * noise(machine, now)
    if uniform(par[at.NOISE_SEED] + 3.0, int(now[at.STEP])) < par[at.STALL_SHARE]:
        seconds += par[at.STALL_SECONDS]
    return float(seconds)
