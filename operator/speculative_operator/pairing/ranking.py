"""What a row of the catalogue is worth to one object before anything is measured: the order in which `auto` picks.

Called by `engines.pairs`, which knows the engine's tables; `catalogue` sorts by the result. What can be turned down
while it serves comes first, because an expectation may be wrong and a constant K then loses at every load; published
acceptance comes before none; then decides the speed that physics expect, as in `plan`:

    gain = mean over LOADS of log(AL(K) T_off / T(K)),   K: the best of each load where it follows the load, else one

AL is what is published for the method and the workload, scaled to the row's own published acceptance length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Method, Workload
from speculative_operator.domain.table import Actuator, KnobSpace
from speculative_operator.pairing.catalogue_rows import Entry
from speculative_operator.physics.acceptance import prior_survival
from speculative_operator.physics.catalog import find_accelerator, find_model
from speculative_operator.physics.step_costs import estimated_costs, method_of, published_costs
from speculative_operator.physics.step_time import plain_seconds, step_seconds

LOADS = np.array([1.0, 4.0, 16.0, 64.0])  # requests in one step: a new object has shown no load of its own
CONTEXT, PROMPT_RATIO = 1000.0, 1.0  # tokens of a request, and prompt tokens for each output token, as in `plan`
STAND_INS = "Qwen/Qwen3-8B", "H100-SXM"
"""Shapes that order speculators beside a verifier, or on an accelerator, that nothing knows. No figure is told then."""
ASSUMED_K = 3  # of a published acceptance length whose source does not tell it
_STEERED = {Actuator.LIVE: 0, Actuator.TABLE: 1}
_TOLD = ("K follows the load", "K by load, changed by a rollout", "one K for every load, changed by a rollout")


@dataclass(frozen=True, slots=True)
class Worth:
    """What one row is expected to bring."""

    steered: int
    """How K follows the load: 0 live, 1 by a table of the engine, 2 not at all."""
    known: bool
    """True where an acceptance length was published, and at which K."""
    percent: float
    """Expected gain over no speculator, mean over LOADS, rounded so that the order does not hang on the arithmetic."""
    told: bool = True
    """False where a stand-in was priced: the figure then orders, and is not told."""

    @property
    def order(self) -> tuple[int, bool, float]:
        return self.steered, not self.known, -self.percent

    def __str__(self) -> str:
        expected = f", {self.percent:+.0f} % expected over 1 to {LOADS[-1]:g} requests" if self.told else ""
        return f"{_TOLD[self.steered]}{expected}{'' if self.known else ', no acceptance published at a known K'}"


def worth_of(entry: Entry, facts: PairFacts, knobs: KnobSpace, workload: Workload) -> Worth:
    """What `entry` is worth to an object with these facts and tables."""
    model, device = STAND_INS
    verifier, accelerator = facts.verifier or find_model(model), facts.accelerator or find_accelerator(device)
    priced = replace(facts, verifier=verifier, accelerator=accelerator)
    costs = published_costs(priced) or estimated_costs(priced, knobs)
    assert costs is not None, "the stand-ins are in the catalogue of shapes"
    ks, loads = np.array(sorted(knobs.ks)), LOADS[knobs.max_batch >= LOADS]
    survival = _survival(entry, method_of(priced, knobs), workload, int(ks[-1]))
    lengths = 1.0 + np.concatenate(([0.0], np.cumsum(survival)))[ks]
    prompts = PROMPT_RATIO * loads[:, None]
    seconds = step_seconds(costs, knobs, loads[:, None], ks[None, :], CONTEXT, prompts * lengths[None, :])
    gains = np.log(lengths / seconds) + np.log(plain_seconds(costs, loads, CONTEXT, PROMPT_RATIO * loads))[:, None]
    steered = _STEERED.get(knobs.actuator, 2)
    gain = gains.mean(axis=0).max() if steered == len(_STEERED) else gains.max(axis=1).mean()
    known = entry.acceptance_length is not None and bool(entry.acceptance_k or entry.k)
    return Worth(steered, known, round(100.0 * float(np.expm1(gain)), 1), told=priced == facts)


def _survival(entry: Entry, method: Method, workload: Workload, most: int) -> NDArray[np.float64]:
    """`S_1..S_most` of the method on the workload, each to the power that takes mixed text, on which acceptance is
    mostly published, to the row's acceptance length."""
    usual = prior_survival(method, workload, most)
    if entry.acceptance_length is None:
        return usual
    mixed = prior_survival(method, Workload.MIXED, entry.acceptance_k or entry.k or ASSUMED_K)
    low, high = 0.05, 20.0
    for _ in range(40):
        power = float(np.sqrt(low * high))
        short = 1.0 + float((mixed**power).sum()) < entry.acceptance_length
        low, high = (low, power) if short else (power, high)
    return np.asarray(usual**low)
