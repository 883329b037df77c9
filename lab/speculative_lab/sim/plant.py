"""The truth of one simulated deployment: what its steps cost and what its memory holds. The tuner never sees it.

Called by `deployment` (which tabulates it for the kernel), by scenarios, and by oracles through `Plant.step_seconds`.

    T(b, K, c, p) = [fixed + tax + per_token * n' + knee + stairs + eager] + per_token * p + per_kv_token * b * c
                  + experts(n + p) + drafting(b, K, c, p)               n = b (K + 1), n' = n padded to a captured size

all of it times `k_factor[K]` and, at K = 0 with the drafter loaded, `zero_factor`. The coefficients are those of
`physics.step_time`; knee, stairs, the price of leaving the captured graphs and the factors are shapes that the tuner's
model lacks. Padding, knee, stairs and graphs look at decoded tokens alone: T stays linear in the prompt tokens of a
step (but for experts), so that its mean over steps is T at the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speculative_lab.sim.drafts import Drafts
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.table import KnobSpace, KTable
from speculative_operator.physics.draft_costs import kv_tokens
from speculative_operator.physics.step_costs import StepCosts, calibrated_costs, costs_with_verifier, roofline
from speculative_operator.physics.step_time import pays_graph_tax, step_parts

__all__ = ["Drafts", "Plant", "perturbed", "plant_for"]

Array = NDArray[np.float64]

DEFAULT_KV_TOKENS = 400_000
"""KV capacity of a plant whose facts do not tell memory: about that of an 8B model on 80 GB."""


@dataclass(frozen=True, slots=True)
class Plant:
    """Physics and capacity of every replica of a deployment."""

    costs: StepCosts
    knobs: KnobSpace
    """Kind of drafter, K that occur, `max_batch` = max_num_seqs, capture sizes and ceiling."""
    kv_tokens: int
    """KV capacity in tokens with the drafter loaded."""
    kv_tokens_without: int
    """The same without drafter."""
    block_size: int = 16
    max_batched_tokens: int = 8192
    """Tokens that one step takes at most, decoded and prompt together."""
    noise: float = 0.05
    """Coefficient of variation of a step's time, lognormal with mean 1."""
    neighbour_factor: float = 1.0
    neighbour_share: float = 0.0
    """Every step takes this factor longer for this share of the time: another tenant of the accelerator is at work."""
    neighbour_seconds: float = 20.0
    """Length of the spells in which it is, or is not: each drawn alone, the same for every policy."""
    eager_seconds: float = 0.0
    """Extra time of a step that decodes more tokens than the capture ceiling."""
    knee_tokens: float = math.inf
    knee_factor: float = 1.0
    """Decoded tokens beyond `knee_tokens` cost `per_token` times this."""
    stairs: tuple[tuple[int, float], ...] = ()
    """(decoded tokens, extra seconds): each adds from that size on."""
    k_factor: tuple[float, ...] = ()
    """Step time of K multiplied, index = K; missing = 1."""
    zero_factor: float = 1.0
    """Step time at K = 0 with the drafter loaded multiplied: above 1 where the dynamic path is slow."""
    restart_seconds: float = 150.0
    """From the end of a replica until it serves again."""

    @property
    def max_k(self) -> int:
        """Largest K that the engine was started for; larger ones in a table count as this."""
        return max(self.knobs.ks, default=0)

    def step_seconds(self, b: ArrayLike, k: ArrayLike, context: ArrayLike, prefill: ArrayLike) -> Array:
        """Expected seconds of a step with the drafter loaded; arguments broadcast.

        `b` requests decode with `k` drafts (whole numbers) and `context` KV tokens each; `prefill` prompt tokens.
        """
        batch, drafts, kv, prompt = (np.asarray(value, dtype=float) for value in (b, k, context, prefill))
        tokens = batch * (drafts + 1.0)
        verifier = self.decode_seconds(tokens) + self._prefill_and_context(tokens, batch * kv, prompt)
        drafting = step_parts(self.costs, self._unpadded(), batch, drafts, kv, 0.0)[3] + self._draft_prefill(
            drafts, prompt
        )
        return np.asarray((verifier + drafting) * self.factors()[np.clip(drafts.astype(int), 0, self.max_k)])

    def plain_seconds(self, b: ArrayLike, context: ArrayLike, prefill: ArrayLike) -> Array:
        """Expected seconds of a step of a replica without drafter; arguments as above."""
        batch, kv, prompt = (np.asarray(value, dtype=float) for value in (b, context, prefill))
        return np.asarray(
            self.decode_seconds(batch, drafter=False) + self._prefill_and_context(batch, batch * kv, prompt)
        )

    def decode_seconds(self, tokens: ArrayLike, *, drafter: bool = True) -> Array:
        """The part of a step that depends on decoded tokens alone, fixed time included; experts apart."""
        n, costs = np.asarray(tokens, dtype=float), self.costs
        padded = self._padded(n)
        seconds = costs.fixed + costs.per_token * padded
        seconds = seconds + costs.per_token * (self.knee_factor - 1.0) * np.maximum(padded - self.knee_tokens, 0.0)
        for size, extra in self.stairs:
            seconds = seconds + np.where(n >= size, extra, 0.0)
        if self.knobs.capture_ceiling_tokens is not None:
            seconds = seconds + np.where(n > self.knobs.capture_ceiling_tokens, self.eager_seconds, 0.0)
        if drafter and pays_graph_tax(self.knobs):
            seconds = seconds + costs.graph_tax
        return np.asarray(seconds)

    def factors(self) -> Array:
        """Factor on the whole step at K = 0..max_k."""
        found = np.ones(self.max_k + 1)
        known = self.k_factor[: self.max_k + 1]
        found[: len(known)] = known
        found[0] *= self.zero_factor
        return found

    def dense(self, table: KTable) -> list[int]:
        """K at 0..max_batch scheduled requests as the engine takes it: stretched to `max_batch`, cut to `max_k`."""
        ks = table.resize(self.knobs.max_batch).dense()
        return [min(k, self.max_k) for k in (ks[0], *ks)]

    def rows(self, table: KTable) -> list[tuple[int, int, int]]:
        """The same as rows (first, last, K)."""
        return [(band.first, band.last, band.k) for band in KTable.from_dense(self.dense(table)[1:])]

    def drafting(self) -> tuple[Array, Array, Array]:
        """Seconds of drafting: by [b, K], by [K] per KV token of the decoding requests, by [K] per prompt token."""
        ks = np.arange(self.max_k + 1)
        batch = np.arange(self.knobs.max_batch + 1)[:, None]
        base = step_parts(self.costs, self._unpadded(), batch, ks, 0.0, 0.0)[3]
        one = step_parts(self.costs, self._unpadded(), 1, ks, 1.0, 0.0)[3] - base[1]
        return np.asarray(base), np.asarray(one), self._draft_prefill(ks, 1.0)

    def _prefill_and_context(self, tokens: Array, kv: Array, prefill: Array) -> Array:
        costs = self.costs
        seconds = costs.per_token * prefill + costs.per_kv_token * kv
        if costs.expert_fixed:
            seconds = seconds + costs.expert_fixed * (1.0 - (1.0 - costs.expert_reach) ** (tokens + prefill))
        return np.asarray(seconds)

    def _draft_prefill(self, drafts: ArrayLike, prefill: ArrayLike) -> Array:
        """What the drafter adds for prompt tokens, at one decoding request."""
        prompt = np.asarray(prefill, dtype=float)
        dense = replace(self.costs, expert_fixed=0.0, per_token=0.0)
        with_, without = (step_parts(dense, self._unpadded(), 1.0, drafts, 0.0, p) for p in (1.0, 0.0))
        return np.asarray((sum(with_[3:]) - sum(without[3:])) * prompt)

    def _unpadded(self) -> KnobSpace:
        return replace(self.knobs, capture_sizes=(), capture_ceiling_tokens=None)

    def _padded(self, tokens: Array) -> Array:
        """The next captured size; as it is above the largest one."""
        sizes = np.array(self.knobs.capture_sizes, dtype=float)
        if not sizes.size:
            return tokens
        place = np.searchsorted(sizes, tokens)
        return np.where((place < sizes.size) & (tokens > 0), sizes[np.minimum(place, sizes.size - 1)], tokens)


def plant_for(facts: PairFacts, knobs: KnobSpace, **changes: Any) -> Plant:
    """The plant that published calibration, else the roofline, gives for a pair; `changes` are fields of Plant.

    Raises ValueError when verifier or accelerator is unknown and `costs` is not among the changes, and when the weights
    do not fit.
    """
    costs = changes.pop("costs", None) or _costs(facts, knobs)
    held, without = (kv_tokens(facts, with_speculator=loaded) for loaded in (True, False))
    if held == 0 and "kv_tokens" not in changes:
        raise ValueError(
            "the weights of verifier and speculator leave no memory for requests: take a larger accelerator"
        )
    told = {"kv_tokens": DEFAULT_KV_TOKENS if held is None else held}
    told["kv_tokens_without"] = told["kv_tokens"] if without is None else without
    return Plant(**{"costs": costs, "knobs": knobs, **told, **changes})


def perturbed(plant: Plant, rng: np.random.Generator, amount: float = 0.3) -> Plant:
    """A plant whose every coefficient is off by up to `amount` (uniform in log), with shapes that no model foresees.

    Adds a knee in the cost of a token, one or two stairs, and one K whose steps take 8-12 % longer. Same generator
    state, same plant.
    """
    costs = replace(
        plant.costs, **{f.name: _shaken(getattr(plant.costs, f.name), f.name, rng, amount) for f in fields(plant.costs)}
    )
    reach = plant.knobs.max_batch * (plant.max_k + 1)
    step = float(plant.decode_seconds(reach / 8.0))
    stairs = tuple(
        sorted(
            (int(size), float(step * rng.uniform(0.03, 0.08)))
            for size in reach * rng.uniform(0.05, 0.6, int(rng.integers(1, 3)))
        )
    )
    factors = plant.factors()
    factors[0] /= plant.zero_factor
    live = [k for k in plant.knobs.ks if k > 0]
    if live:
        factors[int(rng.choice(live))] *= rng.uniform(1.08, 1.12)
    return replace(
        plant,
        costs=costs,
        eager_seconds=plant.eager_seconds * _factor(rng, amount),
        knee_tokens=float(reach * rng.uniform(0.15, 0.5)),
        knee_factor=float(rng.uniform(1.2, 1.6)),
        stairs=(*plant.stairs, *stairs),
        k_factor=tuple(float(factor) for factor in factors),
        zero_factor=1.0 + (plant.zero_factor - 1.0) * _factor(rng, amount),
    )


def _costs(facts: PairFacts, knobs: KnobSpace) -> StepCosts:
    verifier, accelerator = facts.verifier, facts.accelerator
    prior = roofline(facts, knobs)
    if prior is None or verifier is None or accelerator is None:
        raise ValueError("verifier and accelerator must be known, or costs given: nothing else prices a step")
    if facts.accelerators > 1 or verifier.bytes_per_parameter != 2.0 or verifier.kv_bytes_per_value != 2.0:
        return prior
    pair = calibrated_costs(verifier.name, facts.speculator.name, accelerator.name) if facts.speculator else None
    alone = costs_with_verifier(verifier.name, accelerator.name)
    if pair is not None or alone is None:
        return pair or prior
    return replace(prior, fixed=alone.fixed, per_token=alone.per_token, per_kv_token=alone.per_kv_token)


def _shaken(value: Any, name: str, rng: np.random.Generator, amount: float) -> Any:
    factor = _factor(rng, amount)
    if not isinstance(value, float):
        return value
    return min(value * factor, 1.0) if name == "expert_reach" else value * factor


def _factor(rng: np.random.Generator, amount: float) -> float:
    return float(np.exp(rng.uniform(-1.0, 1.0) * math.log1p(amount)))
