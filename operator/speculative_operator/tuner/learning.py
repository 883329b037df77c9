"""Turns one believed observation into evidence: step costs, acceptance, traffic.

Called by decide() after every check passed. Replicas run the same pair, so each window of each is one more sample of
the same costs. The order of pods does not matter, nor do their names. A window that overlaps one already learned from
counts by its new part only.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.observation import PodWindow
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.acceptance import (
    AcceptanceModel,
    DraftSample,
    acceptance,
    age,
    draft_sample,
    exact_sample,
    learn_acceptance,
    mean_sample,
    usable_positions,
)
from speculative_operator.tuner.comparisons import learn_comparisons
from speculative_operator.tuner.costs import StepSample, exact_terms, learn_costs, off_terms, step_terms
from speculative_operator.tuner.memory import Memory
from speculative_operator.tuner.prior import Array, acceptance_prior, cost_prior
from speculative_operator.tuner.telemetry import behind
from speculative_operator.tuner.traffic import MOST_CONTEXT, Look, Traffic, bound_claims, learn_traffic

MIN_STEPS = 8.0
"""Fewer steps than this say nothing about the time of one."""
SPREAD = 1.15
"""Within a window the number of scheduled requests stays about this near its mean."""
WINDOW_SECONDS = 5.0
MOST_WINDOWS = 4.0
"""A window weighs its length over WINDOW_SECONDS, and MOST_WINDOWS at most."""
RAMP = 3.0
"""A change of batch size within a window blurs it: noise grows by 0.3 of the log change, over the base noise of 0.1."""
FILL = 5.0
"""Prompts come in lumps: where they are half of a step, noise is 2.7 times as large."""
FEW_DRAFTS = 5.0
"""Weight of the model's acceptance of a position beside the counts of one observation, in drafts."""
SWITCH_SECONDS = 2.0
"""Seconds after a change of the table in which pods may still run the previous one."""


def learn(
    memory: Memory,
    windows: Mapping[str, PodWindow],
    look: Look,
    policy: Policy,
    now: float,
    version: int | None = None,
    others: Collection[str] = (),
) -> Memory:
    """Memory after `windows`, with the table unchanged. `version`: version of the table that pods were last told;
    `others`: pods whose last window stays in memory although this look has none of them."""
    seen = memory.last_windows
    silent = {pod: seen[pod] for pod in others if pod in seen}
    newest = {pod: (window.end, window.batch) for pod, window in windows.items()}
    pods = sorted(windows, key=lambda pod: _content(windows[pod]))
    ordered = list(zip(pods, bound_claims([windows[pod] for pod in pods]), strict=True))
    fresh = [fresh_share(window, seen.get(pod)) for pod, window in ordered]
    elapsed = max(now - memory.updated_at, 0.0) if memory.updated_at is not None else 0.0
    traffic = learn_traffic(memory.traffic, look, [w for _, w in ordered], fresh, policy.knobs.max_batch)
    tables = [_tables(memory, window, version) for _, window in ordered]
    traffic = _learn_share(traffic, ordered, tables, policy)
    steps: list[StepSample] = []
    drafts: list[DraftSample] = []
    for (pod, window), share, run in zip(ordered, fresh, tables, strict=True):
        steps += _step_samples(window, share, seen.get(pod), traffic, policy, run)
        drafted = _draft_sample(window, share, run, policy)
        drafts += [drafted] if drafted is not None else []
    prior = cost_prior(policy.facts, policy.knobs)
    expected = acceptance_prior(policy.facts, policy.knobs, policy.workload)
    evidence = memory.acceptance
    evidence = learn_acceptance(evidence, _sum(drafts), expected, elapsed) if drafts else age(evidence, elapsed)
    return replace(
        memory,
        cells=learn_comparisons(
            memory.cells,
            [window for _, window in ordered],
            fresh,
            _lengths(drafts, acceptance(evidence, expected)),
            memory.traffic.shares.before_first,
            elapsed,
        ),
        costs=learn_costs(memory.costs, tuple(steps), elapsed, prior, policy.knobs),
        acceptance=evidence,
        last=tuple(steps),
        traffic=traffic,
        windows=memory.windows + 1,
        updated_at=now,
        pace=memory.pace.after(elapsed),
        seen=tuple((pod, *last) for pod, last in sorted({**silent, **newest}.items())),
    )


def _content(window: PodWindow) -> tuple[float, ...]:
    figures = (window.start, window.end, window.steps, window.decode_request_steps, window.step_seconds, window.running)
    return (*figures, window.generated_tokens, window.prompt_tokens, window.accepted_tokens or 0.0)


def fresh_share(window: PodWindow, before: tuple[float, float] | None) -> float:
    """Share of `window` that is newer than the pod's previous window, which ended at `before[0]`; 1 without one."""
    if before is None:
        return 1.0
    return min(max((window.end - max(window.start, before[0])) / window.seconds, 0.0), 1.0)


def _tables(memory: Memory, window: PodWindow, version: int | None) -> tuple[KTable, ...]:
    """Tables that the pod may have run within `window`; empty where they are not known."""
    if behind(window, version):
        return (memory.previous,) if memory.previous is not None and window.table_version == (version or 0) - 1 else ()
    changed = memory.changed_at
    recent = changed is not None and window.start < changed + SWITCH_SECONDS
    return (memory.table, memory.previous) if recent and memory.previous is not None else (memory.table,)


def _step_samples(
    window: PodWindow,
    fresh: float,
    before: tuple[float, float] | None,
    traffic: Traffic,
    policy: Policy,
    tables: tuple[KTable, ...],
) -> list[StepSample]:
    """Equations of step costs from `window`: one of its mean, or one of each cell where the engine exports cells."""
    period = window.step_period
    if period is None or fresh <= 0 or window.steps * fresh < MIN_STEPS or window.preemptions > 0:
        return []
    blur = math.log(max(window.batch, 1.0) / max(before[1], 1.0)) if before is not None else 0.0
    length = min(fresh * window.seconds / WINDOW_SECONDS, MOST_WINDOWS)
    context = min(window.mean_context or traffic.context, MOST_CONTEXT)
    if window.cells and window.draft_tokens is not None:
        return _cell_samples(window, length, context, policy, tables)
    load = (context, window.prefill_per_step)
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
    """One equation: `share` of the request-steps drafted `k` tokens on average, the others none. `load`: tokens of
    context, and prompt tokens per step; `k` is None for a pod without a speculator."""
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


def _cell_samples(
    window: PodWindow, length: float, context: float, policy: Policy, tables: tuple[KTable, ...]
) -> list[StepSample]:
    """An equation for each cell; together they weigh as much as one window. A cell's batch and prompts are exact, so a
    moving load does not blur it, but an error of the model's form is the same in all cells.

    Cells of K = 0 are left out where the table drafts: in such steps prompts ran alone, or a request's first token.
    """
    knobs, costs = policy.knobs, cost_prior(policy.facts, policy.knobs).costs
    decoding = _decoding_by_draft(window) if not knobs.draft_free else (_decoding(window),) * 2
    share, asked = 1.0, _mean_requested_k(window, ()) or 0.0
    if knobs.draft_free and asked > 0.0:
        share = min((window.mean_k or 0.0) / asked, 1.0)
    whole = math.fsum(cell.steps for cell in window.cells)
    cells = [cell for cell in window.cells if cell.steps >= MIN_STEPS]
    cells = [cell for cell in cells if cell.k > 0 or any(_holds(table, 0, cell.batch) for table in tables)]
    if not cells:
        return []
    batch, steps, prefill, ks = np.array([(cell.batch, cell.steps, cell.prefill_tokens, cell.k) for cell in cells]).T
    b, k = batch * np.where(ks > 0, decoding[1], decoding[0]), ks * share
    terms = exact_terms(costs, knobs, b, k, np.asarray(context), prefill / steps)
    weights = length * steps / whole / (1.0 + (FILL * terms[:, -1] / terms.sum(axis=1)) ** 2)
    rows = zip(cells, terms.tolist(), weights.tolist(), (b * (1.0 + k)).tolist(), strict=True)
    return [
        StepSample(tuple(row), cell.seconds / cell.steps, weight, tokens, float(cell.k))
        for cell, row, weight, tokens in rows
    ]


def _holds(table: KTable, k: int, batch: float) -> bool:
    """True where `table` may give K = `k` to a step of about `batch` scheduled requests."""
    return any(band.k == k and band.last >= batch / SPREAD and band.first <= batch * SPREAD + 1 for band in table)


def _draft_sample(window: PodWindow, fresh: float, tables: tuple[KTable, ...], policy: Policy) -> DraftSample | None:
    if not window.drafts or not window.draft_tokens or fresh <= 0:
        return None
    accepted = window.accepted_per_position
    if policy.knobs.draft_free:
        # Every request-step counts as a draft, also one that finds nothing in the text: that is what a step earns.
        drafts, mean, positions = (
            window.decode_request_steps,
            _mean_requested_k(window, tables),
            _requests_per_position(window),
        )
        if mean is None:
            return None
        certain, share = _least_k(window, tables), 0.0
    else:
        drafts, mean, positions = window.drafts, window.draft_tokens / window.drafts, window.drafted_per_position
        certain, share = usable_positions(mean, window.load, tables) if tables else (0, 0.0)
    if positions:
        sample = exact_sample(positions, accepted, mean)
    elif accepted or window.accepted_tokens is None:
        sample = draft_sample(drafts, accepted, certain, share, mean)
    else:
        expected = acceptance_prior(policy.facts, policy.knobs, policy.workload)
        sample = mean_sample(drafts, window.accepted_tokens, mean, expected)
    return DraftSample(
        tuple(fresh * value for value in sample.reached),
        tuple(fresh * value for value in sample.accepted),
        fresh * sample.drafts,
        mean,
    )


def _decoding(window: PodWindow) -> float:
    """Share of the request-steps in the window's cells that decoded; 1 without cells."""
    requests = math.fsum(cell.requests for cell in window.cells)
    return min(window.decode_request_steps / requests, 1.0) if requests > 0 else 1.0


def _decoding_by_draft(window: PodWindow) -> tuple[float, float]:
    """Shares of the request-steps that decoded, in cells without drafts and in cells with drafts. A decoding request in
    the latter verifies a first draft."""
    if not window.drafted_per_position:
        return (_decoding(window),) * 2
    drafts = min(window.drafted_per_position[0], window.decode_request_steps)
    requests = [math.fsum(cell.requests for cell in window.cells if (cell.k > 0) is some) for some in (False, True)]
    counts = (window.decode_request_steps - drafts, drafts)
    none, some = (min(count / of, 1.0) if of > 0 else 1.0 for count, of in zip(counts, requests, strict=True))
    return none, some


def _mean_requested_k(window: PodWindow, tables: tuple[KTable, ...]) -> float | None:
    """Mean K that the window's request-steps asked for; None where neither cells nor `tables` tell it."""
    if window.cells:
        requests = math.fsum(cell.requests for cell in window.cells)
        return math.fsum(cell.k * cell.requests for cell in window.cells) / requests if requests > 0 else None
    return float(tables[0].k_at(window.load)) if tables else None


def _requests_per_position(window: PodWindow) -> tuple[float, ...]:
    """Request-steps that asked for a draft at each position; empty for a window without cells."""
    if not window.cells:
        return ()
    decoding = _decoding(window)
    positions = range(1, len(window.accepted_per_position) + 1)
    return tuple(decoding * math.fsum(cell.requests for cell in window.cells if cell.k >= j) for j in positions)


def _least_k(window: PodWindow, tables: tuple[KTable, ...]) -> int:
    """The smallest K above 0 that the window's steps may have had; 0 where no table drafts at its load."""
    low, high = window.load / SPREAD, window.load * SPREAD + 1
    ks = {band.k for table in tables for band in table if band.k and band.last >= low and band.first <= high}
    return min(ks, default=0)


def _learn_share(
    traffic: Traffic, windows: list[tuple[str, PodWindow]], tables: list[tuple[KTable, ...]], policy: Policy
) -> Traffic:
    """`traffic` with the share of the asked draft tokens that lookups found; unchanged where a model drafts."""
    if not policy.knobs.draft_free:
        return traffic
    asked = drafted = 0.0
    for (_, window), run in zip(windows, tables, strict=True):
        if window.decode_request_steps <= 0:
            continue
        k = _mean_requested_k(window, run) if window.cells or len(run) == 1 else None
        if k is None or window.draft_tokens is None:
            return traffic
        asked += k * window.decode_request_steps
        drafted += window.draft_tokens
    if asked <= 0:
        return traffic
    seen = min(max(drafted / asked, 0.01), 1.0)
    return replace(traffic, draft_share=traffic.draft_share + 0.2 * (seen - traffic.draft_share))


def _lengths(samples: list[DraftSample], model: AcceptanceModel) -> Array:
    """Tokens per step for every K from the counts of `samples` at each position; from `model` at the other
    positions."""
    seen = _sum(samples) if samples else DraftSample((), (), 0.0)
    size = len(model.survival)
    before = np.r_[1.0, model.survival[:-1]]
    expected = model.survival / np.maximum(before, 1e-9)
    reached, accepted = (np.zeros(size) for _ in range(2))
    known = min(size, len(seen.reached))
    reached[:known], accepted[:known] = seen.reached[:known], seen.accepted[:known]
    survival = np.cumprod((accepted + FEW_DRAFTS * expected) / (reached + FEW_DRAFTS))
    plain = 1.0 + np.r_[0.0, np.cumsum(survival)]
    return np.asarray(plain * model.length / (1.0 + np.r_[0.0, np.cumsum(model.survival)]))


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
