"""Caps by request judged by the project's cost model: what they win or lose on an accelerator, by traffic and load.

`python -m payloadbench.caps_model` prints the tables of docs/decisions/0007-per-request-caps.md. Requests accept each
draft with a probability of their own; the payload's own rule (`speculative_requests`) runs over 250 verifications of
each. Both sides may choose the K that is best for them: the best table with caps is compared to the best without.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Method
from speculative_operator.domain.table import Actuator, KnobSpace
from speculative_operator.payload import speculative_requests as rule
from speculative_operator.physics.catalog import find_accelerator, find_model
from speculative_operator.physics.step_costs import StepCosts, roofline
from speculative_operator.physics.step_time import step_parts

Array = NDArray[np.float64]

BATCHES = (1, 8, 16, 32, 64, 128, 256)
KS = (0, 1, 2, 3, 5, 7)
STEPS = 250
CONTEXT = 800.0
PREFILL_PER_REQUEST = 2.0
USELESS = (0.03, 0.1)
"""Acceptance of drafts that hardly ever hit, and its spread in log-odds."""
TRAFFIC: Mapping[str, tuple[tuple[float, float, float], ...]] = {
    "alike, 0.7": ((1.0, 0.7, 0.4),),
    "half 0.75, half 0.45": ((0.5, 0.75, 0.4), (0.5, 0.45, 0.4)),
    "a tenth useless": ((0.9, 0.75, 0.4), (0.1, *USELESS)),
    "a quarter useless": ((0.75, 0.75, 0.4), (0.25, *USELESS)),
    "half useless": ((0.5, 0.75, 0.4), (0.5, *USELESS)),
    "four fifths useless": ((0.2, 0.8, 0.4), (0.8, *USELESS)),
}
"""Share, acceptance of a draft, spread of it in log-odds."""


@dataclass(frozen=True, slots=True)
class Yield:
    """Per request and step: tokens emitted and drafts verified."""

    tokens: float
    verified: float


def acceptances(mixture: Sequence[tuple[float, float, float]], count: int, rng: np.random.Generator) -> Array:
    """Probability that a draft is accepted, for `count` requests."""
    parts = []
    for share, mean, spread in mixture:
        odds = np.log(mean / (1 - mean)) + spread * rng.standard_normal(round(count * share))
        parts.append(1.0 / (1.0 + np.exp(-odds)))
    return np.concatenate(parts)


def uncapped(chances: Array, k: int) -> Yield:
    """Everything that the table asks for is verified: 1 + p + ... + p^k tokens."""
    return Yield(float(np.mean(sum(chances**place for place in range(k + 1)))), float(k))


def capped(chances: Array, k: int, rng: np.random.Generator) -> Yield:
    """The rule of `speculative_requests`, which is learned anew by each request."""
    count = len(chances)
    accepted, examined = np.full(count, rule.PRIOR), np.ones(count)
    withheld, skipped = np.zeros(count, dtype=bool), np.zeros(count)
    tokens = verified = 0.0
    for _ in range(STEPS):
        skipped = np.where(withheld, skipped + 1, 0)
        probe = withheld & (skipped >= rule.PROBE_EVERY)
        skipped[probe] = 0
        given = np.where(withheld, np.where(probe, 1, 0), k)
        hits = np.minimum(rng.geometric(1.0 - chances) - 1, given)
        busy = given > 0
        accepted += np.where(busy, rule.WEIGHT * (hits - accepted), 0.0)
        examined += np.where(busy, rule.WEIGHT * (np.minimum(hits + 1, given) - examined), 0.0)
        withheld = np.where(busy, accepted < np.where(withheld, rule.HIGH, rule.LOW) * examined, withheld)
        tokens += float(hits.sum()) + count
        verified += float(given.sum())
    return Yield(tokens / (STEPS * count), verified / (STEPS * count))


def throughput(costs: StepCosts, knobs: KnobSpace, batch: int, k: int, gained: Yield) -> float:
    """Tokens per second of `batch` requests. Drafting is paid for in full: only verification shrinks."""
    prefill = PREFILL_PER_REQUEST * batch
    fixed, _, attended, drafting, filled = (
        float(part) for part in step_parts(costs, knobs, batch, k, CONTEXT, prefill)
    )
    spared = batch * (k - gained.verified) * (costs.draft_per_token if k else 0.0)
    decoded = costs.per_token * batch * (1.0 + gained.verified)
    return batch * gained.tokens / (fixed + decoded + attended + drafting - spared + filled)


def gain(costs: StepCosts, knobs: KnobSpace, batch: int, free: Mapping[int, Yield], cut: Mapping[int, Yield]) -> float:
    """Best throughput with caps over best throughput without, less one. Below the rule's least batch they are equal."""
    if batch < rule.LEAST_BATCH:
        return 0.0
    without = max(throughput(costs, knobs, batch, k, gained) for k, gained in free.items())
    return max(throughput(costs, knobs, batch, k, gained) for k, gained in cut.items()) / without - 1.0


def pair(method: Method, speculator: str | None) -> tuple[StepCosts, KnobSpace]:
    """Costs of Qwen3-8B on an H100 with a drafter whose passes follow K, steps not padded to graphs."""
    verifier, accelerator = find_model("Qwen/Qwen3-8B"), find_accelerator("H100-SXM")
    assert verifier is not None
    assert accelerator is not None
    facts = PairFacts(
        verifier=verifier,
        speculator=find_model(speculator) if speculator else None,
        accelerator=accelerator,
        accelerators=1,
        method=method,
    )
    knobs = KnobSpace(
        actuator=Actuator.LIVE, ks=KS, max_batch=max(BATCHES), passes_at_zero=1.0, draft_free=method.draft_free
    )
    costs = roofline(facts, knobs)
    assert costs is not None
    return costs, knobs


def main() -> int:
    for title, method, speculator in (
        ("EAGLE-3", Method.EAGLE3, None),
        ("a 0.6B draft model", Method.DRAFT_MODEL, "Qwen/Qwen3-0.6B"),
        ("n-gram", Method.NGRAM, None),
    ):
        costs, knobs = pair(method, speculator)
        print(f"\nQwen3-8B on an H100 with {title}, gain in % by batch:\n")
        print("| Traffic | " + " | ".join(map(str, BATCHES)) + " |")
        print("|---" * (1 + len(BATCHES)) + "|")
        for name, mixture in TRAFFIC.items():
            rng = np.random.default_rng(0)
            chances = acceptances(mixture, 2000, rng)
            free = {k: uncapped(chances, k) for k in KS}
            cut = {k: capped(chances, k, rng) if k else uncapped(chances, 0) for k in KS}
            gains = [100 * gain(costs, knobs, batch, free, cut) for batch in BATCHES]
            print(f"| {name} | " + " | ".join(f"{value:+.1f}" for value in gains) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
