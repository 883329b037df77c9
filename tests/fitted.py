"""The data sets to which `physics.step_costs` was fitted, and the speed-ups that its costs predict for them.

Called by tests, which hold the costs to the published speed-ups and the emulator to the acceptance lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speculative_operator.domain.table import Actuator, KnobSpace
from speculative_operator.physics.step_costs import StepCosts
from speculative_operator.physics.step_time import plain_seconds, step_seconds


@dataclass(frozen=True, slots=True)
class FittedWorkload:
    """Inputs of the fit for one data set: mean lengths in tokens (assumed, not published) and the fitted AL(3)."""

    prompt: float
    output: float
    acceptance_length: float


FITTED_WORKLOADS = {
    "GSM8K": FittedWorkload(prompt=100, output=300, acceptance_length=3.08),
    "CNN": FittedWorkload(prompt=900, output=120, acceptance_length=2.78),
    "ShareGPT": FittedWorkload(prompt=220, output=200, acceptance_length=2.43),
    "InstructCoder": FittedWorkload(prompt=300, output=300, acceptance_length=3.18),
}


def end_to_end_speedup(
    costs: StepCosts, batch: ArrayLike, k: int, acceptance_length: float, workload: FittedWorkload
) -> NDArray[np.float64]:
    """Output tokens per second of constant `k` over a pod without speculator, `batch` requests always running.

    Every request brings its prompt once, so a step that yields g tokens per request prefills b g prompt/output tokens:
    the faster run prefills more in each step. Context is the prompt and half the output.
    """
    knobs = KnobSpace(actuator=Actuator.RESTART, ks=(k,), max_batch=int(np.max(batch)))
    b = np.asarray(batch, dtype=float)
    context = workload.prompt + workload.output / 2.0
    share = b * workload.prompt / workload.output
    off = plain_seconds(costs, b, context, share)
    on = step_seconds(costs, knobs, b, k, context, share * acceptance_length)
    return np.asarray(acceptance_length * off / on)
