"""A small plant and loads for the tests of the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from speculative_lab.sim.drafts import Drafts
from speculative_lab.sim.plant import Plant
from speculative_lab.sim.workload import Lengths, Phase, Workload, closed_loop, open_loop
from speculative_operator.domain.table import Actuator, KnobSpace
from speculative_operator.physics.step_costs import StepCosts

COSTS = StepCosts(
    fixed=6e-3,
    per_token=20e-6,
    per_kv_token=40e-9,
    draft_fixed=0.7e-3,
    draft_per_token=1e-6,
    draft_per_kv_token=1e-9,
    speculative_overhead=1.2e-3,
    graph_tax=0.3e-3,
)
PROMPT = Lengths(300.0, 0.5)
OUTPUT = Lengths(200.0, 0.5)
CODE = Drafts(0.8, 0.85, 0.3, spread=0.0)


def knobs(**changes: Any) -> KnobSpace:
    return KnobSpace(**{"actuator": Actuator.LIVE, "ks": (0, 1, 2, 3, 5), "max_batch": 64, **changes})


def plant(**changes: Any) -> Plant:
    """64 seats, K up to 5, KV for 100k tokens, without noise."""
    fixed = {"costs": COSTS, "knobs": knobs(), "kv_tokens": 100_000, "kv_tokens_without": 120_000, "noise": 0.0}
    return Plant(**{**fixed, **changes})


def steady(
    requests: int | Sequence[tuple[float, int]],
    *,
    drafts: Drafts = CODE,
    prompt: Lengths = PROMPT,
    output: Lengths = OUTPUT,
    **more: Any,
) -> Workload:
    """A closed loop of one class."""
    course = ((0.0, requests),) if isinstance(requests, int) else requests
    return closed_loop(course, (drafts,), (Phase(0.0, (1.0,), prompt, output),), np.random.default_rng(7), **more)


def arriving(
    rate: float | Sequence[tuple[float, float]],
    seconds: float,
    *,
    drafts: Drafts = CODE,
    prompt: Lengths = PROMPT,
    output: Lengths = OUTPUT,
) -> Workload:
    """An open loop of one class."""
    course = ((0.0, float(rate)),) if isinstance(rate, int | float) else tuple(rate)
    return open_loop(course, seconds, (drafts,), (Phase(0.0, (1.0,), prompt, output),), np.random.default_rng(8))
