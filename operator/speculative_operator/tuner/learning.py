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
    NEAR,
    WHOLE,
    DraftSample,
    draft_sample,
    learn_acceptance,
    usable_positions,
)
from speculative_operator.tuner.costs import StepSample, learn_costs, off_terms, step_terms
from speculative_operator.tuner.memory import FIRST_RETRY_SECONDS, Memory
from speculative_operator.tuner.prior import Array, cost_prior
from speculative_operator.tuner.traffic import MOST_CONTEXT, Look, Traffic, learn_traffic

MIN_STEPS = 30.0
"""Fewer steps than this say nothing about the time of one."""
RAMP = 3.0
"""A change of batch size within a window blurs it: noise grows by 0.3 of the log change, over the base noise of 0.1."""
SWITCH_SECONDS = 30.0
"""So long after a change of table, pods may still have run the previous one."""
PURE = 0.97
"""Share of request-steps with drafts above which all had them (below 1 - 0.97: none)."""
SETTLED_SECONDS = 600.0
"""Drafting for this long without a change means that speculation pays again: retries start anew."""


def learn(memory: Memory, windows: Mapping[str, PodWindow], look: Look, policy: Policy, now: float) -> Memory:
    """Memory after `windows`; the table is untouched."""
    seen = {pod: (end, batch) for pod, end, batch in memory.seen}
    ordered = sorted(windows.items(), key=lambda item: _content(item[1]))
    fresh = [_fresh(window, seen.get(pod)) for pod, window in ordered]
    elapsed = now - memory.updated_at if memory.updated_at is not None else 0.0
    tables = _tables(memory, now)
    traffic = learn_traffic(memory.traffic, look, [w for _, w in ordered], fresh, policy.knobs.max_batch)
    traffic = _learn_share(traffic, look, tables, policy)
    steps = [
        sample
        for (pod, window), share in zip(ordered, fresh, strict=True)
        if (sample := _step_sample(window, share, seen.get(pod), traffic, tables, policy)) is not None
    ]
    drafts = [
        drafted
        for (_, window), share in zip(ordered, fresh, strict=True)
        if (drafted := _draft_sample(window, share, tables, policy)) is not None
    ]
    evidence = memory.acceptance
    if drafts:
        evidence = learn_acceptance(evidence, _sum(drafts), max(policy.knobs.ks))
    prior = cost_prior(policy.facts, policy.knobs)
    drafting = look.drafts > 0 or memory.drafted_at is None
    settled = memory.changed_at is None or now - memory.changed_at > SETTLED_SECONDS
    return replace(
        memory,
        costs=learn_costs(memory.costs, tuple(steps), elapsed, prior, policy.knobs),
        acceptance=evidence,
        traffic=traffic,
        windows=memory.windows + 1,
        updated_at=now,
        seen=tuple((pod, window.end, window.batch) for pod, window in sorted(windows.items())),
        drafted_at=now if drafting else memory.drafted_at,
        retry_seconds=FIRST_RETRY_SECONDS if drafting and settled else memory.retry_seconds,
    )


def _content(window: PodWindow) -> tuple[float, ...]:
    figures = (window.start, window.end, window.steps, window.decode_request_steps, window.step_seconds, window.running)
    return (*figures, window.generated_tokens, window.prompt_tokens, window.accepted_tokens or 0.0)


def _fresh(window: PodWindow, before: tuple[float, float] | None) -> float:
    if before is None:
        return 1.0
    return min(max((window.end - max(window.start, before[0])) / window.seconds, 0.0), 1.0)


def _tables(memory: Memory, now: float) -> tuple[KTable, ...]:
    recent = memory.changed_at is not None and now - memory.changed_at < SWITCH_SECONDS
    return (memory.table, memory.previous) if recent and memory.previous is not None else (memory.table,)


def _step_sample(
    window: PodWindow,
    fresh: float,
    before: tuple[float, float] | None,
    traffic: Traffic,
    tables: tuple[KTable, ...],
    policy: Policy,
) -> StepSample | None:
    period = window.step_period
    if period is None or fresh <= 0 or window.steps * fresh < MIN_STEPS or window.preemptions > 0:
        return None
    blur = math.log(max(window.batch, 1.0) / max(before[1], 1.0)) if before is not None else 0.0
    terms, k = _window_terms(window, traffic, tables, policy)
    return StepSample(tuple(terms.tolist()), period, fresh / (1.0 + (RAMP * blur) ** 2), k)


def _window_terms(
    window: PodWindow, traffic: Traffic, tables: tuple[KTable, ...], policy: Policy
) -> tuple[Array, int | None]:
    """(prior seconds of each term, the one K of all steps or None)."""
    knobs, costs = policy.knobs, cost_prior(policy.facts, policy.knobs).costs
    b, prefill = window.batch, window.prefill_per_step
    context = min(window.mean_context or traffic.context, MOST_CONTEXT)
    if window.drafts is None or window.draft_tokens is None:
        return off_terms(costs, b, context, prefill), None
    if knobs.draft_free:
        drafted = window.draft_tokens / window.decode_request_steps
        return step_terms(costs, knobs, b, drafted, context, prefill), _one_k(window, tables)
    share = min(window.drafts / window.decode_request_steps, 1.0)
    mean = window.draft_tokens / window.drafts if window.drafts else 0.0
    mixed = step_terms(costs, knobs, b, np.array([mean, 0.0]), context, prefill)
    terms = share * mixed[0] + (1.0 - share) * mixed[1]
    if share < 1.0 - PURE:
        return terms, 0
    pure = share > PURE and abs(mean - round(mean)) <= WHOLE
    return terms, round(mean) if pure else None


def _draft_sample(window: PodWindow, fresh: float, tables: tuple[KTable, ...], policy: Policy) -> DraftSample | None:
    if not window.drafts or not window.draft_tokens or fresh <= 0:
        return None
    if policy.knobs.draft_free:
        k = _one_k(window, tables)
        if not k:
            return None
        drafts, certain, share = window.decode_request_steps, k, 0.0
    else:
        mean = window.draft_tokens / window.drafts
        drafts = window.drafts
        certain, share = usable_positions(mean, window.scheduled, tables)
    sample = draft_sample(drafts, window.accepted_per_position, certain, share)
    return DraftSample(
        tuple(fresh * value for value in sample.reached),
        tuple(fresh * value for value in sample.accepted),
        fresh * sample.drafts,
    )


def _one_k(window: PodWindow, tables: tuple[KTable, ...]) -> int | None:
    low, high = window.scheduled / NEAR, window.scheduled * NEAR + 1
    ks = {band.k for table in tables for band in table if band.last >= low and band.first <= high}
    return ks.pop() if len(ks) == 1 else None


def _learn_share(traffic: Traffic, look: Look, tables: tuple[KTable, ...], policy: Policy) -> Traffic:
    k = tables[0].k_at(look.scheduled)
    if not policy.knobs.draft_free or look.mean_k is None or k < 1 or len(tables) > 1:
        return traffic
    seen = min(max(look.mean_k / k, 0.01), 1.0)
    return replace(traffic, draft_share=traffic.draft_share + 0.2 * (seen - traffic.draft_share))


def _sum(samples: list[DraftSample]) -> DraftSample:
    size = max(len(sample.reached) for sample in samples)

    def total(rows: list[tuple[float, ...]]) -> tuple[float, ...]:
        return tuple(math.fsum(row[j] for row in rows if j < len(row)) for j in range(size))

    return DraftSample(
        total([sample.reached for sample in samples]),
        total([sample.accepted for sample in samples]),
        math.fsum(sample.drafts for sample in samples),
    )
