"""Worlds whose texts no speculator can guess, on vLLM's V2 runner, and the same worlds without a speculator.

Called by `unguessable`. Where the speculator is left out, a step pays nothing for it but a tax of at most 1 %; where
K = 0 and it is not, its first pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from speculative_lab.plant import layout as at
from speculative_lab.plant.draw import Asked, assemble, draw_plan
from speculative_lab.plant.machines import draw_rig
from speculative_lab.plant.world import Replica, Wish, World
from speculative_operator.domain.spec import Goal, Method

METHODS = (Method.DRAFT_MODEL, Method.EAGLE3, Method.MTP, Method.NGRAM, Method.DFLASH)
MOST_FIRST = 0.05
"""Largest share of first drafts that such texts accept."""
MOST_TAX = 0.01
"""Largest share of a step that pods with a resting speculator pay."""
LAUNCHES = (2e-5, 1.9e-4)
"""Seconds of launching one layer of a draft model, which has no graphs on the V2 runner: bare metal to the virtual
machine of docs/measured.md."""
TURNS_SHARE = 0.4
"""Of the worlds, whose texts can be guessed at first and in the end."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A world for the tuned pods, the same without a speculator, and when its text cannot be guessed."""

    tuned: World
    plain: World
    dead: tuple[float, float]
    """Seconds."""

    @property
    def copy(self) -> World:
        """`plain` with other noise."""
        return replace(self.plain, replicas=tuple(_other_noise(one, 2) for one in self.plain.replicas))


def drawn(seed: int, number: int, seconds: float, skips_prompts: bool = False) -> Pair:
    """World `number` of `seed`, of that length; `skips_prompts`: heads that are left out see no prompts either."""
    rng = np.random.default_rng([seed, number, 28])
    method = METHODS[number % len(METHODS)]
    rig = draw_rig(rng, method)
    rig.par[[at.REGIME, at.LOOKS_UP]] = 0.0  # the V2 runner's lookups fill up what they do not find
    rig.par[at.SEGMENT_SD] = min(rig.par[at.SEGMENT_SD], 0.3)
    if method is Method.DRAFT_MODEL:
        layers = rig.speculator.layers if rig.speculator is not None else 1
        rig.par[at.DRAFT_PASS] += layers * math.exp(rng.uniform(*np.log(LAUNCHES)))
    rig.par[at.SKIPS_PROMPTS] = float(skips_prompts)
    plan = draw_plan(rng, rig)
    first = float(rng.uniform(0.0, MOST_FIRST)) if rng.random() < 0.75 else 1e-5
    skill = math.log(first / (1.0 - first))
    texts = tuple(replace(one, skill=skill, skill_sd=0.2) for one in plan.texts)
    plan = replace(plan, texts=texts, shape="steady" if plan.shape == "step-text" else plan.shape)
    goal = list(Goal)[int(rng.integers(len(Goal)))]
    world = assemble(f"unguessable-{seed}-{number}", rng, rig, plan, Asked(goal, Wish()), seconds).with_skip()
    dead = (0.0, seconds)
    if rng.random() < TURNS_SHARE:
        begin = float(rng.uniform(0.25, 0.45)) * seconds
        dead = begin, begin + float(rng.uniform(0.3, 0.45)) * seconds
    easier = float(rng.uniform(0.3, 2.6)) - skill
    replicas = tuple(_guessable_beside(replica, dead, easier) for replica in world.replicas)
    world = replace(world, replicas=replicas, traits={**world.traits, "first": round(first, 3)})
    tax = float(rng.uniform(0.0, MOST_TAX))
    without = replace(world, replicas=tuple(_other_noise(plain(replica), 1) for replica in replicas))
    return Pair(replace(world, replicas=tuple(_taxed(replica, tax) for replica in replicas)), without, dead)


def _guessable_beside(replica: Replica, dead: tuple[float, float], easier: float) -> Replica:
    """A replica, never away, that counts from its first second, and whose text is `easier` outside `dead`."""
    par, rows = replica.machine.par.copy(), replica.requests.copy()
    par[at.WARM] = 0.0
    if dead[0] > 0.0:
        rows[:, at.SKILL] += easier
        par[[at.SHIFT_AT, at.SHIFT_END, at.SHIFT_BY]] = *dead, -easier
    return replace(replica, machine=replica.machine._replace(par=par), requests=rows, restart=None)


def plain(replica: Replica) -> Replica:
    """The same pod without a speculator: nothing is drafted, and no prompt is passed over a second time."""
    par = replica.machine.par.copy()
    costs = (at.DRAFT_BASE, at.DRAFT_PASS, at.DRAFT_PASS_REQUEST, at.DRAFT_PROMPT, at.SOFT)
    par[list(costs)] = 0.0
    return replace(replica, machine=replica.machine._replace(par=par))


def _taxed(replica: Replica, tax: float) -> Replica:
    return replace(replica, machine=replica.machine._replace(k_quirk=replica.machine.k_quirk * (1.0 + tax)))


def _other_noise(replica: Replica, number: int) -> Replica:
    par = replica.machine.par.copy()
    par[at.NOISE_SEED] += 7919.0 * number
    return replace(replica, machine=replica.machine._replace(par=par))
