"""Random worlds: one per number and seed, drawn from broad ranges. The same seed and number give the same world."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from speculative_lab.plant import layout as at
from speculative_lab.plant import steptime as st
from speculative_lab.plant.machines import ACCELERATORS, MODELS, Rig, draw_rig, machine_of
from speculative_lab.plant.traffic import Lengths, Texts, Traffic, requests
from speculative_lab.plant.types import Floats
from speculative_lab.plant.world import Replica, Wish, World
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Goal, Method, Mode, Objective, Workload
from speculative_operator.domain.table import Actuator, KnobSpace

WISHES = (("none", 0.4), ("loose", 0.15), ("attainable", 0.25), ("unattainable", 0.2))


@dataclass(frozen=True, slots=True)
class Plan:
    """Traffic of a world before it is spread over replicas."""

    texts: tuple[Texts, ...]
    concurrent: float
    """Requests at once in each replica, at the peak."""
    open_share: float
    shape: str = "steady"
    """steady, diurnal, step, bursts."""
    lump: float = 1.0
    think: float = 0.0
    turns: float = 1.0
    shares: tuple[float, ...] = ()
    """Load of each replica, 1 in the mean; none: drawn, and a replica may restart."""


def world(seed: int, number: int, seconds: float) -> World:
    """Random world `number` of `seed`, of that length."""
    rng = np.random.default_rng([seed, number])
    rig = draw_rig(rng)
    plan = draw_plan(rng, rig)
    goal = list(Goal)[int(rng.integers(len(Goal)))]
    kinds = [kind for kind, _ in WISHES]
    wish = Wish(str(rng.choice(kinds, p=[share for _, share in WISHES])), str(rng.choice(["tpot", "tpot", "ttft"])))
    wish = replace(wish, factor=float(rng.uniform(*FACTORS[wish.kind])))
    return assemble(f"random-{seed}-{number}", rng, rig, plan, Asked(goal, wish), seconds)


FACTORS = {"none": (1.0, 1.0), "loose": (2.0, 4.0), "attainable": (1.03, 1.2), "unattainable": (0.4, 0.85)}
"""Target as a share of the best P99 that a constant K reaches."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user wants."""

    goal: Goal
    wish: Wish


def assemble(name: str, rng: np.random.Generator, rig: Rig, plan: Plan, asked: Asked, seconds: float) -> World:
    """A world of a rig and a plan of traffic."""
    goal, wish = asked.goal, asked.wish
    replicas = []
    for share in plan.shares or unequal(rng):
        machine = machine_of(rig, rng, seconds)
        if plan.shape == "step-text":
            machine.par[at.SHIFT_AT] = seconds / 2
            machine.par[at.SHIFT_BY] = -2.0 if plan.texts[0].skill > 0.5 else 2.0
        traffic = traffic_of(rig, plan, share, seconds)
        rows, opened, users, returns = requests(rng, traffic, seconds)
        replicas.append(Replica(machine, rows, opened, users, returns))
    if not plan.shares and rng.random() < 0.12:
        began = float(rng.uniform(0.3, 0.7)) * seconds
        replicas[0] = replace(replicas[0], restart=(began, began + float(rng.uniform(40, 120))))
    policy = Policy(
        mode=Mode.AUTO,
        knobs=knobs_of(rig),
        objective=Objective(goal=goal),
        workload=_workload(rng),
        facts=facts_of(rng, rig),
    )
    changes = (seconds / 2,) if plan.shape == "step-text" or (plan.shape == "step" and plan.open_share > 0) else ()
    traits: dict[str, object] = {
        "method": rig.method.value,
        "model": rig.model.name,
        "accelerator": f"{rig.count}x{rig.accelerator.name}",
        "dead": rig.dead,
        "goal": goal.value,
        "wish": f"{wish.kind} {wish.of}" if wish.kind != "none" else "none",
        "concurrent": round(plan.concurrent, 1),
        "open": round(plan.open_share, 2),
        "shape": plan.shape,
        "lump": round(plan.lump, 1),
        "prompt": round(plan.texts[0].prompt.mean),
        "answer": round(plan.texts[0].answer.mean),
        "replicas": len(replicas),
        "facts": "none" if policy.facts.verifier is None else "names",
    }
    delays = tuple(float(d) for d in rng.uniform(1, 5, 16))
    return World(name, seconds, tuple(replicas), policy, wish, delays, changes, traits)


def unequal(rng: np.random.Generator) -> tuple[float, ...]:
    """Shares of load of one to three replicas, 1 in the mean."""
    count = int(rng.choice([1, 1, 2, 3]))
    shares = rng.dirichlet(np.full(count, 6.0)) * count
    return tuple(float(share) for share in np.clip(shares, 0.25, None))


def draw_plan(rng: np.random.Generator, rig: Rig) -> Plan:
    """Traffic that suits a rig."""
    answer = float(np.exp(rng.uniform(math.log(20), math.log(600))))
    ratio = float(np.exp(rng.uniform(math.log(0.2), math.log(60))))
    prompt = min(max(answer * ratio, 20.0), 8000.0)
    skill = -6.0 if rig.dead else float(rng.uniform(-0.8, 2.6)) + (0.8 if rig.method.draft_free else 0.0)
    texts = [
        Texts(
            Lengths(prompt, float(rng.uniform(0.2, 1.2)), bool(rng.random() < 0.2)),
            Lengths(answer, float(rng.uniform(0.2, 1.0)), bool(rng.random() < 0.2)),
            skill,
            float(rng.uniform(0.1, 1.1)),
            float(rng.uniform(0.05, 0.8)),
        )
    ]
    if rng.random() < 0.25:
        other = float(rng.uniform(-0.8, 2.6)) if not rig.dead else -6.0
        longer = Lengths(prompt * float(rng.uniform(0.3, 3.0)), 0.6)
        texts.append(replace(texts[0], skill=other, prompt=longer))
    concurrent = float(np.exp(rng.uniform(0, math.log(256))))
    return Plan(
        tuple(texts),
        min(concurrent, 1.1 * rig.par[at.SEATS]),
        float(rng.choice([0.0, 1.0, 1.0, 0.5])),
        str(rng.choice(["steady", "steady", "diurnal", "step", "step-text", "bursts"])),
        float(rng.choice([1.0, 1.0, 3.0, 10.0])),
        float(rng.choice([0.0, 2.0, 15.0])),
        float(rng.choice([1.0, 1.0, 4.0])),
    )


def token_seconds(rig: Rig, batch: float, context: float, k: int, skill: float) -> float:
    """Seconds per token and request at a steady load, roughly, for how many requests to send."""
    rng = np.random.default_rng(0)
    machine = machine_of(rig, rng, 60.0)
    work = np.zeros(st.WORK)
    work[[st.W_DECODING, st.W_VERIFIED, st.W_CONTEXT]] = batch, batch * (k + 1), batch * context
    work[[st.W_K, st.W_EMIT, st.W_DRAFT]] = k, batch, k
    seconds = st.linear_seconds(machine, work) + st.attention_seconds(rig.par, work) + st.draft_seconds(rig.par, work)
    chance = 1 / (1 + math.exp(-skill))
    tokens = sum(chance**j for j in range(k + 1))
    return float(seconds + rig.par[at.HOST_SECONDS]) / tokens


def traffic_of(rig: Rig, plan: Plan, share: float, seconds: float) -> Traffic:
    """What comes to one replica. Open loops are held below what it can serve by a middling K."""
    texts = plan.texts[0]
    context = texts.prompt.mean + texts.answer.mean / 2
    batch = max(plan.concurrent * share, 0.5)
    room = rig.par[at.KV_CAPACITY] / (context + texts.answer.mean)
    batch = min(batch, 0.85 * rig.par[at.SEATS], max(room * 0.8, 1.0))
    pace = min(token_seconds(rig, max(batch, 1.0), context, k, texts.skill) for k in (0, 2))
    prompt = texts.prompt.mean * rig.par[at.TOKEN_SECONDS] * 1.3
    prompt += texts.prompt.mean**2 / 2 * rig.par[at.PROMPT_CONTEXT]
    rate = batch / (texts.answer.mean * pace + prompt * batch)
    rate = min(rate, 0.6 / prompt)
    users = round((1 - plan.open_share) * batch * (1 + plan.think / (texts.answer.mean * pace + prompt)))
    users = min(users, 600)
    if plan.open_share == 0.0:
        users = max(users, 1)
    fastest = token_seconds(rig, 1.0, context, 0, 0.0) / (rig.top_k + 1)
    rates = _over_time(plan.shape, int(seconds)) * rate * plan.open_share * 0.92
    return Traffic(plan.texts, rates, plan.lump, users, plan.think, plan.turns, fastest)


def _over_time(shape: str, seconds: int) -> Floats:
    moments = np.arange(seconds)
    if shape == "diurnal":
        return np.asarray(0.55 - 0.45 * np.cos(2 * np.pi * moments / seconds))
    if shape == "step":
        return np.where(moments < seconds / 2, 0.2, 0.95)
    if shape == "bursts":
        return np.where(moments % 180 < 45, 0.95, 0.1)
    return np.ones(seconds)


def knobs_of(rig: Rig) -> KnobSpace:
    """What the engine's adapter would say of it."""
    return KnobSpace(
        actuator=Actuator.LIVE,
        ks=tuple(range(rig.top_k + 1)),
        max_batch=int(rig.par[at.SEATS]),
        capture_ceiling_tokens=rig.sizes[-1] if rig.sizes else None,
        capture_sizes=rig.sizes,
        passes_at_zero=float(rig.par[at.SOFT]),
        drafts_blocks=rig.method is Method.DFLASH,
        draft_free=rig.method.draft_free,
        full_graphs=True,
    )


def facts_of(rng: np.random.Generator, rig: Rig) -> PairFacts:
    """Names as in reality: right, next to right, or none."""
    luck = rng.random()
    if luck < 0.2:
        return PairFacts()
    verifier, accelerator = rig.model, rig.accelerator
    if luck < 0.35:
        others = [m for m in MODELS if bool(m.experts) == bool(rig.model.experts)]
        verifier = min(others, key=lambda m: abs(math.log(m.parameters / rig.model.parameters * 1.4)))
    if luck > 0.85:
        accelerator = min(
            ACCELERATORS, key=lambda a: abs(math.log(a.memory_bandwidth / rig.accelerator.memory_bandwidth * 1.3))
        )
    return PairFacts(
        verifier=verifier,
        speculator=rig.speculator if rng.random() < 0.8 else None,
        accelerator=accelerator,
        accelerators=rig.count,
        kv_capacity_tokens=int(rig.par[at.KV_CAPACITY]),
        method=rig.method,
    )


def _workload(rng: np.random.Generator) -> Workload:
    kinds = list(Workload)
    return Workload.MIXED if rng.random() < 0.5 else kinds[int(rng.integers(len(kinds)))]
