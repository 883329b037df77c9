"""The fixed worlds: the only ones on which a constant of the law may be chosen. At most thirty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from speculative_lab.plant import layout as at
from speculative_lab.plant.draw import Asked, Plan, assemble
from speculative_lab.plant.machines import MODELS, Rig, draw_rig
from speculative_lab.plant.traffic import Lengths, Texts
from speculative_lab.plant.world import Wish, World
from speculative_operator.domain.spec import Goal, Method

BY_NAME = {model.name: model for model in MODELS}
CHAT = Texts(Lengths(400, 0.8), Lengths(250, 0.7), 0.8, 0.6, 0.3)
LONG_PROMPTS = Texts(Lengths(3000, 0.5), Lengths(60, 0.6), 1.0, 0.6, 0.5)
"""Fifty times as long as their answers."""

NOTHING = Asked(Goal.GOODPUT, Wish())


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one of them is made, always from the same seed."""

    name: str
    method: Method
    model: str
    plan: Plan
    asked: Asked = NOTHING
    change: Callable[[Rig], None] = lambda rig: None


def _long_prompts() -> list[Recipe]:
    """Open loop, long prompts, lumps; each goal with no target, a loose, a good and an impossible one."""
    wishes = (
        Wish(),
        Wish("loose", "tpot", 3.0),
        Wish("attainable", "ttft", 1.1),
        Wish("unattainable", "tpot", 0.6),
    )
    methods = (Method.EAGLE3, Method.DRAFT_MODEL, Method.MTP, Method.NGRAM)
    models = ("llama-3.1-8b", "qwen2.5-32b", "qwen3-30b-a3b", "llama-3.3-70b-fp8")
    found = []
    for i, goal in enumerate(Goal):
        for j, wish in enumerate(wishes):
            ratio = (20.0, 50.0, 100.0)[(i + j) % 3]
            texts = replace(LONG_PROMPTS, prompt=Lengths(60 * ratio, 0.5))
            plan = Plan((texts,), (4.0, 12.0, 40.0)[(i + 2 * j) % 3], 1.0, "steady", (3.0, 8.0)[j % 2], shares=(1.0,))
            name = f"long-prompts-{goal.value.lower()}-{wish.kind}"
            found.append(Recipe(name, methods[(i + j) % 4], models[(i + 3 * j) % 4], plan, Asked(goal, wish)))
    return found


def _no_graphs_above(rig: Rig) -> None:
    rig.par[at.CEILING] = float(rig.sizes[-1]) if rig.sizes else 0.0
    rig.par[at.EAGER_SECONDS] = 0.05


def _mispriced(rig: Rig) -> None:
    rig.k_quirk[3] *= 1.12


def _plans() -> list[Recipe]:
    at_ten = Plan((CHAT,), 10.0, 0.0, "step-text", shares=(1.0,))
    ten_open = Plan((CHAT,), 10.0, 1.0, "step", shares=(1.0,))
    many = Plan((CHAT,), 120.0, 0.0, shares=(1.0,))
    turns = Plan((replace(CHAT, prompt=Lengths(1500, 0.6)),), 24.0, 0.0, think=5.0, turns=8.0, shares=(1.0,))
    dead = Plan((replace(CHAT, skill=-6.0),), 12.0, 0.0, shares=(1.0,))
    ngram = Plan((replace(CHAT, skill=2.0, match=0.3),), 8.0, 0.5, "bursts", shares=(1.0,))
    unequal = Plan((CHAT,), 16.0, 1.0, "diurnal", shares=(0.3, 1.7))
    rest = Plan((CHAT,), 4.0, 0.0, shares=(1.0,))
    return [
        Recipe("step-text-10", Method.EAGLE3, "llama-3.1-8b", at_ten),
        Recipe("step-text-10-block", Method.DFLASH, "qwen2.5-14b", at_ten),
        Recipe("step-load-10", Method.EAGLE3, "qwen2.5-32b", ten_open),
        Recipe("rest-4", Method.EAGLE3, "llama-3.1-8b", rest),
        Recipe("rest-32", Method.MTP, "qwen2.5-32b", replace(rest, concurrent=32.0)),
        Recipe("experts-120", Method.EAGLE3, "qwen3-30b-a3b", many),
        Recipe("cliff-120", Method.EAGLE3, "llama-3.1-8b", many, change=_no_graphs_above),
        Recipe("mispriced-k3", Method.DRAFT_MODEL, "llama-3.3-70b", rest, change=_mispriced),
        Recipe("growing-chats", Method.EAGLE3, "qwen2.5-14b", turns),
        Recipe("dead-speculator", Method.DRAFT_MODEL, "qwen2.5-32b", dead),
        Recipe("lookup-bursts", Method.NGRAM, "llama-3.1-8b", ngram),
        Recipe("unequal-replicas", Method.DRAFT_MODEL, "llama-3.1-8b", unequal),
    ]


RECIPES = (*_long_prompts(), *_plans())


def named(number: int, seconds: float) -> World:
    """The fixed world of that number."""
    recipe = RECIPES[number]
    rng = np.random.default_rng([12, number])
    rig = draw_rig(rng, recipe.method, BY_NAME[recipe.model])
    recipe.change(rig)
    return assemble(recipe.name, rng, rig, recipe.plan, recipe.asked, seconds)
