"""Names of controllers -> how to make one for a plant. Called by bench and command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from speculative_lab.sim.oracle import TableOracle, typical_context
from speculative_lab.sim.plant import Plant
from speculative_lab.sim.policies import fixed
from speculative_lab.sim.policies.bandit import Bandit
from speculative_lab.sim.policies.base import Controller, InEngine
from speculative_lab.sim.policies.gate import Gated
from speculative_lab.sim.policies.goodput import SmartSpec, VllmAdaptive, fitted_seconds
from speculative_lab.sim.policies.thresholds import AutoSpec, RuleOfThumb, SglangAdaptive
from speculative_lab.sim.policies.width import WidthSearch
from speculative_lab.sim.workload import Workload

Maker = Callable[[Plant, Workload, int], Controller]
"""(plant, workload, seed) -> controller"""

PACE = 0.1
"""Simulated seconds between looks of a law inside the engine: 5 to 15 steps, about the pace at which they update."""
SLOW_PACE = 0.5
"""The same for laws that move every 50 steps or more."""


def _smartspec(plant: Plant, workload: Workload, seed: int) -> Controller:
    knobs = plant.knobs
    seconds = fitted_seconds(
        lambda batch, k, context: plant.step_seconds(batch, k, context, 0.0),
        typical_context(workload), knobs.max_batch, knobs.ks,
    )  # fmt: skip
    return InEngine("smartspec", SmartSpec(knobs.ks, knobs.max_batch, seconds), knobs, PACE)


RIVALS: Mapping[str, Maker] = {
    "cutoff16": lambda plant, *_: fixed.cutoff(16, plant.knobs),
    "cutoff32": lambda plant, *_: fixed.cutoff(32, plant.knobs),
    "cutoff64": lambda plant, *_: fixed.cutoff(64, plant.knobs),
    "rule_of_thumb": lambda plant, *_: InEngine("rule_of_thumb", RuleOfThumb(plant.knobs.ks), plant.knobs, SLOW_PACE),
    "sglang_adaptive": lambda plant, *_: InEngine("sglang_adaptive", SglangAdaptive(plant.knobs.ks), plant.knobs, PACE),
    "autospec": lambda plant, *_: InEngine("autospec", AutoSpec(plant.knobs.ks), plant.knobs, PACE),
    "trtllm_schedule": lambda plant, *_: fixed.schedule(plant.knobs),
    "trtllm_auto": lambda plant, *_: fixed.auto(plant.knobs),
    "trtllm_gate": lambda plant, *_: Gated(plant.knobs),
    "smartspec": _smartspec,
    "vllm_adaptive": lambda plant, _, seed: InEngine(
        "vllm_adaptive", VllmAdaptive(plant.knobs.ks, np.random.default_rng([seed, 2])), plant.knobs, PACE
    ),
    "bandit": lambda plant, *_: InEngine("bandit", Bandit(plant.knobs.ks), plant.knobs, SLOW_PACE),
    "width_search": lambda plant, *_: InEngine("width_search", WidthSearch(plant.knobs.ks), plant.knobs, PACE),
}
"""Everything that somebody else built or advises, by its own law."""


def references(plant: Plant) -> dict[str, Maker]:
    """The marks: `oracle`, `off` (drafter kept) and `static_<K>` for each K above 0."""
    made: dict[str, Maker] = {"oracle": lambda plant, workload, _: TableOracle(plant, workload)}
    for k in plant.knobs.ks:
        made[f"static_{k}" if k else "off"] = lambda plant, *_, k=k: fixed.constant(k, plant.knobs)
    return made
