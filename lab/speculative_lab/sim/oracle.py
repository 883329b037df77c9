"""What could be reached: the best table for the true physics and the true acceptance of the load of the moment.

Used by `experiment` and bench as the mark that regret is measured against. It sees what no controller can: the plant's
step times, each class's acceptance, who has arrived. It remains a table per batch size: not the per-request optimum.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from speculative_lab.sim.drafts import Drafts
from speculative_lab.sim.plant import Plant
from speculative_lab.sim.policies.base import Journal
from speculative_lab.sim.workload import Workload
from speculative_operator.domain.table import KTable
from speculative_operator.physics.acceptance import RunLengths

if TYPE_CHECKING:
    from speculative_lab.sim.deployment import Deployment, StepLog

Array = NDArray[np.float64]

INTERVAL = 5.0
RECENT = 60.0
"""Seconds of arrivals that make up the present mix of an open loop."""
LEAST_REQUESTS = 30
MEMORY = 0.7
"""Weight of the past in the smoothed context and prompt ratio, per look."""


class TableOracle:
    """Sets the best table every few seconds; K may rise and fall with batch size as it likes."""

    name = "oracle"
    interval = INTERVAL

    def __init__(self, plant: Plant, workload: Workload) -> None:
        self.journal = Journal()
        self._plant, self._workload = plant, workload
        self._context, self._prompts = typical_context(workload), typical_prompts(workload)
        self._table: KTable | None = None

    def act(self, deployment: Deployment) -> None:
        for replica in range(deployment.replicas):
            self._look(deployment.steps(replica))
        lengths = true_lengths(self._plant.knobs.ks, self._workload, deployment.now)
        share = present_share(self._workload, deployment.now)
        table = best_table(self._plant, lengths, share, self._context, self._prompts)
        if table != self._table:
            self._table = table
            deployment.set_table(table, delay=0.0)

    def _look(self, log: StepLog) -> None:
        requests, emitted = float(log.batch.sum()), float(log.emitted.sum())
        if requests > 0 and emitted > 0:
            self._context = MEMORY * self._context + (1.0 - MEMORY) * float(log.context.sum()) / requests
            self._prompts = MEMORY * self._prompts + (1.0 - MEMORY) * float(log.prefill.sum()) / emitted
        for k in set(log.k.tolist()):
            steps = float(log.batch[log.k == k].sum())
            self.journal.shares[int(k)] = self.journal.shares.get(int(k), 0.0) + steps


def best_table(plant: Plant, lengths: Array, share: float, context: float, prompts: float) -> KTable:
    """Per batch size the K with most tokens per second; see `goodput`."""
    best = np.argmax(goodput(plant, lengths, share, context, prompts), axis=1)
    return KTable.from_dense([plant.knobs.ks[place] for place in best])


def goodput(plant: Plant, lengths: Array, share: float, context: float, prompts: float) -> Array:
    """Tokens per second and request, [batch 1..max_batch, K of knobs.ks].

    `lengths`: tokens per request-step at each K; `share`: of request-steps that draft; `context` KV tokens per request;
    `prompts` prompt tokens per output token: the faster K, the more prompt tokens fall into each of its steps.
    """
    batch = np.arange(1, plant.knobs.max_batch + 1, dtype=float)[:, None]
    ks = np.array(plant.knobs.ks, dtype=float)[None, :]
    prefill = prompts * batch * lengths[None, :]
    seconds = plant.step_seconds(batch, ks, context, prefill)
    if share < 1.0:
        factor = plant.factors()[np.array(plant.knobs.ks)]
        surplus = plant.decode_seconds(batch * (ks + 1.0)) - plant.decode_seconds(batch * (share * ks + 1.0))
        seconds = seconds - surplus * factor
    return np.asarray(lengths[None, :] / seconds)


def true_lengths(ks: tuple[int, ...], workload: Workload, now: float) -> Array:
    """Tokens per request-step at each K for the mix of the moment, weighted by the output tokens of each class.

    A request at length A takes 1/A steps per token, so the mean over steps is the harmonic mean over tokens. What
    a last step yields beyond the answer's end is lost, which matters for answers of a few tokens.
    """
    weights, factor = present_mix(workload, now), drift_factor(workload, now)
    answer = max(1.0, float(workload.output[_present_rows(workload, now)].mean()) - 1.0)
    classes = [(own, weight) for own, weight in zip(workload.classes, weights, strict=True) if weight > 0]
    inverse = [
        sum(weight * (1.0 + _surplus(own, k, factor) / answer) / _length(own, k, factor) for own, weight in classes)
        for k in ks
    ]
    return 1.0 / np.array(inverse)


@lru_cache(maxsize=4096)
def _length(own: Drafts, k: int, factor: float) -> float:
    return own.length(k, factor)


@lru_cache(maxsize=4096)
def _surplus(own: Drafts, k: int, factor: float) -> float:
    """Tokens of the last step beyond the answer's end: mean excess of a renewal process, (E[X^2] / E[X] - 1) / 2."""
    survival = factor * own.draft_share * RunLengths(own.w, own.p, own.q).survival(k)
    first = 1.0 + float(survival.sum())
    second = 1.0 + float((survival * (2.0 * np.arange(1, k + 1) + 1.0)).sum())
    return (second / first - 1.0) / 2.0


def present_mix(workload: Workload, now: float) -> Array:
    """Share of output tokens by class: of recent arrivals, or of what a closed loop draws from."""
    rows = _present_rows(workload, now)
    tokens = np.bincount(workload.kind[rows], weights=workload.output[rows], minlength=len(workload.classes))
    return np.asarray(tokens / tokens.sum())


def present_share(workload: Workload, now: float) -> float:
    """Share of request-steps that get a draft."""
    shares = np.array([own.draft_share for own in workload.classes])
    return float(present_mix(workload, now) @ shares)


def drift_factor(workload: Workload, now: float) -> float:
    """Share of runs of accepted drafts that still start at `now`."""
    return next((factor for start, factor in reversed(workload.drift) if start <= now), 1.0)


def typical_context(workload: Workload) -> float:
    """KV tokens per decoding request in the mean over its output: the prompt and half the answer."""
    held = (workload.prompt + workload.output / 2.0) * workload.output
    return float(held.sum() / workload.output.sum())


def typical_prompts(workload: Workload) -> float:
    """Prompt tokens per output token."""
    return float(workload.prompt.sum() / workload.output.sum())


def _present_rows(workload: Workload, now: float) -> slice:
    if workload.arrival is not None:
        stop = int(np.searchsorted(workload.arrival, now, side="right"))
        first = int(np.searchsorted(workload.arrival, now - RECENT))
        stop = max(stop, min(LEAST_REQUESTS, len(workload.arrival)))
        return slice(max(0, min(first, stop - LEAST_REQUESTS)), stop)
    pool = next((pool for pool in reversed(workload.pools) if pool.start <= now), None)
    return slice(0, len(workload.kind)) if pool is None else slice(pool.first, pool.stop)
