"""A world of a deployment that somebody describes, under a recorded load. Called by `speculative simulate`.

Models, accelerator, memory and what the engine can do are given, and how well drafts are foreseen at first. What nobody
knows of such a machine, as how near it comes to its data sheet or which batch sizes are slow on it, is drawn by the
seed, as for random worlds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from speculative_lab.plant import layout as at
from speculative_lab.plant.machines import Rig, draw_rig, machine_of
from speculative_lab.plant.traces import Trace
from speculative_lab.plant.traffic import Lengths, Texts, rows_of
from speculative_lab.plant.world import Replica, Wish, World
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.spec import Method, OffPolicy

STEP_TOKENS = 8192.0
"""Tokens of one step, vLLM's default."""
LUCK = 0.3
"""Standard deviation, in log-odds, of how well these texts suit the speculator."""
TEXTS_SD = 0.5
"""The same between requests."""
DELAYS = (2.0, 4.0, 3.0)
"""Seconds until a table reaches a pod, in turn."""


@dataclass(frozen=True, slots=True)
class Given:
    """What is simulated: a policy whose facts name verifier and accelerator, and its load."""

    policy: Policy
    trace: Trace
    seconds: float
    first_accepted: float
    """Published chance that a first draft is accepted."""
    seed: int = 0
    replicas: int = 1


def world_of(given: Given) -> World:
    """The world; requests go to replicas in turn. Raises ValueError where verifier or accelerator are not known."""
    rng = np.random.default_rng([given.seed, 5])
    rig = _rig(given.policy, rng)
    skill = math.log(given.first_accepted / (1.0 - given.first_accepted)) + LUCK * float(rng.normal())
    trace = given.trace.until(given.seconds)
    rows = rows_of(rng, Texts(Lengths(1, 0), Lengths(1, 0), skill, TEXTS_SD), len(trace))
    rows[:, at.ARRIVE], rows[:, at.PROMPT], rows[:, at.OUT] = trace.arrival, trace.prompt, trace.output
    replicas = []
    for number in range(given.replicas):
        own = rows[number :: given.replicas]
        nobody = np.zeros(0, dtype=np.int64), np.zeros(0)
        replicas.append(Replica(machine_of(rig, rng, given.seconds), own, len(own), *nobody))
    world = World("given", given.seconds, tuple(replicas), given.policy, Wish(), DELAYS, traits={"method": rig.method})
    return world.with_skip() if given.policy.off_policy is OffPolicy.SKIP else world


def _rig(policy: Policy, rng: np.random.Generator) -> Rig:
    facts, knobs = policy.facts, policy.knobs
    if facts.verifier is None or facts.accelerator is None:
        raise ValueError("verifier or accelerator is not known")
    method, top = facts.method or Method.EAGLE3, max(knobs.ks)
    rig = draw_rig(rng, method, facts.verifier, facts.accelerator, facts.accelerators)
    par, sizes = rig.par, tuple(knobs.capture_sizes or rig.sizes)
    par[[at.SEATS, at.CHUNK_BUDGET, at.TOKEN_BUDGET]] = knobs.max_batch, STEP_TOKENS, STEP_TOKENS
    par[[at.PROMPTS_AT_ONCE, at.PROMPTS_ALONE, at.QUEUE_LIMIT]] = knobs.max_batch, 0.0, math.inf
    par[[at.SOFT, at.CEILING]] = knobs.passes_at_zero, sizes[-1] if sizes else 0.0
    if facts.kv_capacity_tokens is not None:
        par[at.KV_CAPACITY] = facts.kv_capacity_tokens
    quirk = np.exp(rng.normal(0.0, 0.015, top + 1))
    return replace(rig, k_quirk=quirk, sizes=sizes, top_k=top)
