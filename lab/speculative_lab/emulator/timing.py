"""Seconds of one engine step, from the cost model. Called by `core` once per step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from speculative_lab.emulator.batch import Floats, Ints
from speculative_lab.emulator.config import EngineConfig
from speculative_lab.emulator.errors import ConfigError
from speculative_lab.emulator.shapes import Shapes
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.table import KnobSpace
from speculative_operator.physics.step_costs import StepCosts, calibrated_costs, costs_with_verifier, roofline
from speculative_operator.physics.step_time import pad, plain_seconds, step_parts

REJECTION_SHARE = 0.024
"""Of a step, vLLM's rejection sampler where nothing was drafted: 0.52 of 21.6 ms, measured with 16 requests on a CPU.
Where drafts are made, `speculative_overhead` holds it."""


@dataclass(frozen=True)
class StepTimer:
    """Prices steps; the noise is lognormal with mean 1."""

    costs: StepCosts
    knobs: KnobSpace
    speculates: bool
    noise: float
    """Coefficient of variation."""
    always_rejects: bool = False
    """Whether steps without drafts take the rejection sampler too."""
    slower: float = 0.0
    """Share by which steps take longer than they should."""

    @cached_property
    def ungraphed(self) -> KnobSpace:
        """The knobs without graphs: sizes and ceiling are applied to what a step really decodes."""
        return replace(self.knobs, capture_ceiling_tokens=None, capture_sizes=())

    @cached_property
    def mixed_costs(self) -> StepCosts:
        """Costs of a step with prompt tokens: vLLM runs those by piecewise graphs in every pod, so that the pods which
        have no others lose nothing."""
        return replace(self.costs, graph_tax=0.0)

    def seconds(
        self, batch: int, k: int, verified: int, context: float, prefill: int, *, drafter: bool = True
    ) -> float:
        """Noise-free seconds of a step.

        `batch` decoding requests with `context` tokens each verify `verified` draft tokens together, `prefill` prompt
        tokens are computed, and `k` tokens per request are drafted for the next step. What is decoded runs as the next
        captured size, or eagerly above the largest. `verified` differs from batch x k where K just changed, where a
        look-up found no match, and with adaptive verification. `drafter`: False where its pass is left out.
        """
        return float(self.curve(batch, k, np.asarray(verified), context, prefill, drafter=drafter))

    def curve(
        self, batch: int, k: int, verified: Ints, context: float, prefill: int, *, drafter: bool = True
    ) -> Floats:
        """`seconds` of steps that differ in their verified draft tokens."""
        if not self.speculates:
            return np.asarray(plain_seconds(self.costs, batch, context, prefill, self.knobs))
        costs, decoded = self.mixed_costs if prefill else self.costs, batch + verified
        further = pad(self.knobs, np.asarray(decoded, dtype=float)) - batch * (k + 1)
        fixed, tokens, attended, drafting, filled = step_parts(costs, self.ungraphed, batch, k, context, prefill)
        verifier = fixed + tokens + attended + costs.per_token * further
        eager = decoded > (self.knobs.capture_ceiling_tokens or 0)
        verifier = np.where(eager, np.maximum(verifier, costs.eager_floor), verifier)
        if self.always_rejects and not k:
            verifier = verifier * (1.0 + REJECTION_SHARE)
        return np.asarray(verifier + (filled + drafting if drafter else costs.per_token * prefill))

    def pass_seconds(self, tokens: int, held: int) -> float:
        """Noise-free seconds of a pass of the drafter alone over `tokens`, of requests that hold `held`."""
        costs = self.costs
        return costs.draft_fixed + costs.draft_per_token * tokens + costs.draft_per_kv_token * held

    def noisy(self, seconds: float, rng: np.random.Generator) -> float:
        """What a step of `seconds` takes, with lognormal noise."""
        seconds *= 1.0 + self.slower
        if self.noise <= 0:
            return seconds
        sigma = math.sqrt(math.log1p(self.noise**2))
        return seconds * math.exp(sigma * rng.standard_normal() - sigma * sigma / 2)


def step_timer(config: EngineConfig, noise: float, slower: float = 0.0) -> StepTimer:
    """The timer of an engine: published calibration where the pair has one, else the roofline of its shapes."""
    shapes, knobs = config.shapes, config.knobs()
    facts = PairFacts(shapes.verifier, shapes.speculator, shapes.accelerator, shapes.tensor_parallel_size)
    costs = roofline(facts, knobs)
    if costs is None:
        raise ConfigError("the shapes of model and accelerator do not suffice to price a step")
    speculates = config.speculative is not None
    return StepTimer(_pinned(costs, shapes), knobs, speculates, noise, config.always_rejects, slower)


def _pinned(prior: StepCosts, shapes: Shapes) -> StepCosts:
    """The prior, with what publications pin: the whole pair, or the verifier alone, on one accelerator at 16 bits."""
    verifier, accelerator = shapes.verifier, shapes.accelerator
    if shapes.tensor_parallel_size > 1 or verifier.bytes_per_parameter != 2.0 or verifier.kv_bytes_per_value != 2.0:
        return prior
    pair = calibrated_costs(verifier.name, shapes.speculator.name, accelerator.name) if shapes.speculator else None
    if pair is not None:
        return pair
    alone = costs_with_verifier(verifier.name, accelerator.name)
    if alone is None:
        return prior
    return replace(prior, fixed=alone.fixed, per_token=alone.per_token, per_kv_token=alone.per_kv_token)
