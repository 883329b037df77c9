"""One believed observation turned into evidence: step costs, acceptance, traffic.

Called by decide() after every check passed. Replicas run the same pair, so each window of each is one more sample of
the same costs. The order of pods does not matter, nor do their names. A window that overlaps one already learned from
counts by its new part only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.observation import PodWindow
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.acceptance import (
    DraftSample,
    aged,
    draft_sample,
    learn_acceptance,
    usable_positions,
)
from speculative_operator.tuner.costs import StepSample, learn_costs, off_terms, step_terms
from speculative_operator.tuner.memory import Memory
from speculative_operator.tuner.prior import acceptance_prior, cost_prior
from speculative_operator.tuner.traffic import MOST_CONTEXT, Look, Traffic, learn_traffic

MIN_STEPS = 8.0
"""Fewer steps than this say nothing about the time of one."""
SPREAD = 1.15
"""Within a window the number of scheduled requests stays about this near its mean."""
WINDOW_SECONDS = 5.0
LEAST_CELL = 0.02
"""Exact cells with a smaller share of the steps are left out."""
MOST_WINDOWS = 4.0
"""A window counts by its length in units of the noise's window, a long one no more than four."""
RAMP = 3.0
"""A change of batch size within a window blurs it: noise grows by 0.3 of the log change, over the base noise of 0.1."""
FILL = 5.0
"""Prompts come in lumps: where they are half of a step, noise is 2.7 times as large."""
SWITCH_SECONDS = 2.0
"""So long after a change of table, pods may still have run the previous one."""


def learn(memory: Memory, windows: Mapping[str, PodWindow], look: Look, policy: Policy, now: float) -> Memory:
    """Memory after `windows`; the table is untouched."""
    seen = {pod: (end, batch) for pod, end, batch in memory.seen}
    ordered = sorted(windows.items(), key=lambda item: _content(item[1]))
    fresh = [_fresh(window, seen.get(pod)) for pod, window in ordered]
    elapsed = max(now - memory.updated_at, 0.0) if memory.updated_at is not None else 0.0
    traffic = learn_traffic(memory.traffic, look, [w for _, w in ordered], fresh, policy.knobs.max_batch)
    traffic = _learn_share(traffic, look, memory, ordered, policy)
    steps: list[StepSample] = []
    drafts: list[DraftSample] = []
    for (pod, window), share in zip(ordered, fresh, strict=True):
        tables = _tables(memory, window)
        steps += _step_samples(window, share, seen.get(pod), traffic, policy)
        drafted = _draft_sample(window, share, tables, policy)
        drafts += [drafted] if drafted is not None else []
    prior = cost_prior(policy.facts, policy.knobs)
    expected = acceptance_prior(policy.facts, policy.knobs, policy.workload)
    evidence = memory.acceptance
    evidence = learn_acceptance(evidence, _sum(drafts), expected, elapsed) if drafts else aged(evidence, elapsed)
    return replace(
        memory,
        costs=learn_costs(memory.costs, tuple(steps), elapsed, prior, policy.knobs),
        acceptance=evidence,
        last=tuple(steps),
        traffic=traffic,
        windows=memory.windows + 1,
        updated_at=now,
        pace=memory.pace.after(elapsed),
        seen=tuple((pod, window.end, window.batch) for pod, window in sorted(windows.items())),
        drafted_at=now if look.drafts > 0 or memory.drafted_at is None else memory.drafted_at,
    )


def _content(window: PodWindow) -> tuple[float, ...]:
    figures = (window.start, window.end, window.steps, window.decode_request_steps, window.step_seconds, window.running)
    return (*figures, window.generated_tokens, window.prompt_tokens, window.accepted_tokens or 0.0)


def _fresh(window: PodWindow, before: tuple[float, float] | None) -> float:
    if before is None:
        return 1.0
    return min(max((window.end - max(window.start, before[0])) / window.seconds, 0.0), 1.0)


def _tables(memory: Memory, window: PodWindow) -> tuple[KTable, ...]:
    """Tables that the pod may have run within the window."""
    changed = memory.changed_at
    recent = changed is not None and window.start < changed + SWITCH_SECONDS
    return (memory.table, memory.previous) if recent and memory.previous is not None else (memory.table,)


def _step_samples(
    window: PodWindow, fresh: float, before: tuple[float, float] | None, traffic: Traffic, policy: Policy
) -> list[StepSample]:
    """What a window tells of step costs: its mean, or each cell where the engine exports them."""
    period = window.step_period
    if period is None or fresh <= 0 or window.steps * fresh < MIN_STEPS or window.preemptions > 0:
        return []
    blur = math.log(max(window.batch, 1.0) / max(before[1], 1.0)) if before is not None else 0.0
    length = min(fresh * window.seconds / WINDOW_SECONDS, MOST_WINDOWS)
    context = min(window.mean_context or traffic.context, MOST_CONTEXT)
    load = (context, window.prefill_per_step)
    if window.cells and window.draft_tokens is not None:
        whole = math.fsum(cell.steps for cell in window.cells)
        return [
            _sample(policy, cell.batch, float(cell.k), 1.0, load, cell.seconds / cell.steps)
            for cell in window.cells
            if cell.steps >= MIN_STEPS and cell.seconds > 0 and cell.steps >= LEAST_CELL * whole
        ]
    share = min((window.drafts or 0.0) / window.decode_request_steps, 1.0)
    k = None if window.draft_tokens is None else window.draft_tokens / window.drafts if window.drafts else 0.0
    if policy.knobs.draft_free and k is not None:
        share, k = 1.0, window.mean_k
    sample = _sample(policy, window.batch, k, share, load, period)
    filled = sample.terms[-1] / math.fsum(sample.terms)
    return [replace(sample, weight=length / (1.0 + (RAMP * blur) ** 2 + (FILL * filled) ** 2))]


def _sample(
    policy: Policy, batch: float, k: float | None, share: float, load: tuple[float, float], seconds: float
) -> StepSample:
    """One equation: `share` of the request-steps drafted `k` tokens on average, the others none. `load` is context and
    prefill tokens a step; `k` is None for a pod without speculator."""
    knobs, costs = policy.knobs, cost_prior(policy.facts, policy.knobs).costs
    b, c, p = np.asarray(batch), np.asarray(load[0]), np.asarray(load[1])
    if k is None:
        return StepSample(tuple(off_terms(costs, b, c, p).tolist()), seconds, 1.0, batch, None)
    # Between two whole K, because costs jump from K = 0 to 1; drafts looked up are rare enough to be a mean.
    ends = np.array([0.0, k, k] if knobs.draft_free else [0.0, math.floor(k), math.ceil(k)])
    none, low, high = step_terms(costs, knobs, b, ends, c, p)
    drafted = low + (k - ends[1]) * (high - low)
    terms = share * drafted + (1.0 - share) * none
    return StepSample(tuple(terms.tolist()), seconds, 1.0, batch * (1.0 + share * k), k, share)


def _draft_sample(window: PodWindow, fresh: float, tables: tuple[KTable, ...], policy: Policy) -> DraftSample | None:
    if not window.drafts or not window.draft_tokens or fresh <= 0:
        return None
    if policy.knobs.draft_free:
        # Every request-step counts as a draft, also one that finds nothing in the text: that is what a step earns.
        k = tables[0].k_at(window.scheduled)
        drafts, certain, share, mean = window.decode_request_steps, _least_k(window, tables), 0.0, float(k)
    else:
        mean = window.draft_tokens / window.drafts
        drafts = window.drafts
        certain, share = usable_positions(mean, window.scheduled, tables)
    sample = draft_sample(drafts, window.accepted_per_position, certain, share, mean)
    return DraftSample(
        tuple(fresh * value for value in sample.reached),
        tuple(fresh * value for value in sample.accepted),
        fresh * sample.drafts,
        mean,
    )


def _least_k(window: PodWindow, tables: tuple[KTable, ...]) -> int:
    """The smallest K above 0 that the window's steps may have had."""
    low, high = window.scheduled / SPREAD, window.scheduled * SPREAD + 1
    ks = {band.k for table in tables for band in table if band.k and band.last >= low and band.first <= high}
    return min(ks, default=0)


def _learn_share(
    traffic: Traffic, look: Look, memory: Memory, windows: list[tuple[str, PodWindow]], policy: Policy
) -> Traffic:
    k = memory.table.k_at(look.scheduled)
    settled = all(len(_tables(memory, window)) == 1 for _, window in windows)
    if not policy.knobs.draft_free or look.mean_k is None or k < 1 or not settled:
        return traffic
    seen = min(max(look.mean_k / k, 0.01), 1.0)
    return replace(traffic, draft_share=traffic.draft_share + 0.2 * (seen - traffic.draft_share))


def _sum(samples: list[DraftSample]) -> DraftSample:
    size = max(len(sample.reached) for sample in samples)
    drafts = math.fsum(sample.drafts for sample in samples)

    def total(rows: list[tuple[float, ...]]) -> tuple[float, ...]:
        return tuple(math.fsum(row[j] for row in rows if j < len(row)) for j in range(size))

    return DraftSample(
        total([sample.reached for sample in samples]),
        total([sample.accepted for sample in samples]),
        drafts,
        math.fsum(sample.drafts * sample.mean_k for sample in samples) / drafts if drafts > 0 else 0.0,
    )
