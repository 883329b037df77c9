"""Writes the figures and sentences of a decision.

Called by decide().
"""

from __future__ import annotations

import math

from speculative_operator.domain.decision import Estimate, Policy
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.gain import gain_of, removal_gain
from speculative_operator.tuner.grid import choices, edges, grid
from speculative_operator.tuner.judge import Proposal
from speculative_operator.tuner.outlook import INFEASIBLE, SAME_K, Outlook, incumbent_of
from speculative_operator.tuner.targets import Targets
from speculative_operator.tuner.traffic import Look

MUCH = 0.2
"""Share of requests' time before the first token from which a change mentions it."""
FURTHEST_LOAD = 2.0
"""Largest load of a prediction, in multiples of the measured load: beyond it the P99 cannot be told."""


def estimate(view: Outlook, look: Look, table: KTable, proposed: KTable | None = None) -> Estimate:
    """The figures of a decision at the measured load, for the active `table` and the `proposed` one."""
    gain, removal = gain_of(view, table, look.mix), removal_gain(view)
    proposal = gain_of(view, proposed, look.mix) if proposed is not None else None
    return Estimate(
        gain_percent=gain.percent if gain is not None else None,
        gain_basis=gain.basis if gain is not None else None,
        proposed_gain_percent=proposal.percent if proposal is not None else None,
        acceptance_rate=look.acceptance_rate,
        acceptance_length=look.acceptance_length,
        concurrency=look.scheduled,
        k=float(table.k_at(look.scheduled)),
        tpot_seconds=look.tpot,
        tpot_off_seconds=look.tpot * math.exp(gain.mid) if look.tpot is not None and gain is not None else None,
        tokens_per_second=look.tokens_per_second,
        removal_gain_percent=removal.percent if removal is not None else None,
        replicas=look.replicas,
    )


def measured_speed(view: Outlook, look: Look, k: int) -> float | None:
    """Log speed measured at `k`, or None where the pods ran something else.

    Prompts come in lumps, so the time per token of one window says as much about its prompts as about K. What counts is
    how the window compares with the prediction for its own prompts, put beside the prediction for the usual ones.
    """
    gained = look.tokens_per_step
    if k not in view.ks or gained is None or look.mean_k is None or abs(look.mean_k - k) >= SAME_K:
        return None
    earned = math.log(max(gained, 1e-3)) - math.log(float(view.drafts.length[k]))
    return view.at(look.batch, k) + earned - view.surprise(k)


def load_within(view: Outlook, look: Look, table: KTable, targets: Targets) -> float | None:
    """Scheduled requests up to which a replica with `table` keeps the TPOT target, at most `FURTHEST_LOAD` times the
    measured load; None where no TPOT target is set, no P99 was measured since the last change of K, or no load keeps
    the target, so that more replicas would not help.

    Autoscalers use it; no decision on K does. The measured P99 is carried to another load by the ratio of predicted
    times per token, so that an error which is the same at both loads cancels out.
    """
    asked, worst = targets.asked[0], targets.tails[0].high
    k = table.k_at(targets.load)
    if asked is None or not math.isfinite(worst) or k not in view.ks:
        return None
    # The histogram covers the last minutes, and so does `targets.load`.
    here, most = view.at(targets.load, k), FURTHEST_LOAD * max(look.scheduled, targets.load, 1.0)
    if here <= INFEASIBLE / 2:
        return None
    slack, found = math.log(asked / worst), None
    for row, (load, chosen) in enumerate(zip(view.points, choices(table, view.policy.knobs.max_batch), strict=True)):
        speed = float(view.speed[row, view.ks.index(chosen)]) if chosen in view.ks else INFEASIBLE
        if load > most or speed <= INFEASIBLE / 2 or here - speed > slack:
            break
        found = float(load)
    return found


def why(view: Outlook, old: KTable, proposal: Proposal, targets: Targets, now: float) -> Reason:
    """The reason for `proposal`: a latency target, more drafts, fewer at this load, or fewer at every load."""
    max_batch = view.policy.knobs.max_batch
    point = grid(max_batch)[proposal.focus]
    lowered = proposal.table.k_at(point) <= old.k_at(point)
    if targets.forbids(old.k_at(point), point):
        return Reason.SLO
    if targets.failed is not None and targets.failed.at == now:
        return Reason.TARGET_OUT_OF_REACH
    if not lowered:
        return Reason.FASTER
    return Reason.LOW_ACCEPTANCE if proposal.table.k_at(1) < old.k_at(1) else Reason.HIGH_CONCURRENCY


def change_text(view: Outlook, old: KTable, new: KTable, focus: int, look: Look) -> str:
    """One sentence: what changes where, what it should bring, and what was measured for it."""
    max_batch = view.policy.knobs.max_batch
    before, after = choices(old, max_batch), choices(new, max_batch)
    first, last = _span(before, after, focus, max_batch)
    change = " -> ".join(name_k(view.policy, k) for k in (before[focus], after[focus]))
    text = f"K {change} {_where(first, last, max_batch)}"
    point, ks = float(view.points[focus]), (before[focus], after[focus])
    if not set(ks) <= set(view.ks) or min(view.speed[focus, view.ks.index(k)] for k in ks) <= INFEASIBLE / 2:
        return f"{text}: K {before[focus]} leaves the captured graphs{acceptance_text(look)}"
    gain = float(view.against(incumbent_of(view, old)).mean[focus, view.ks.index(after[focus])])
    text += f": {100.0 * math.expm1(gain):+.0f} % speed expected at {_requests(point)}"
    return text + _side_by_side(view, point, *ks) + _before_first(view) + acceptance_text(look)


def _side_by_side(view: Outlook, load: float, old: int, new: int) -> str:
    """What blocks of steps showed of these K near the load, as the end of a sentence; empty where none compared
    them."""
    near = [cell for cell in view.near(load) if {cell.k, cell.against} == {old, new}]
    if not near:
        return ""
    cell = max(near, key=lambda one: one.blocks)
    sides = {cell.k: (cell.rate, cell.steps), cell.against: (cell.beside_rate, cell.beside_steps)}
    figures = [
        f"K {name_k(view.policy, k)} {sides[k][0]:.3g} tokens/s per request over {sides[k][1]:,.0f} steps"
        for k in (new, old)
    ]
    return f"; side by side {', '.join(figures)}"


def name_k(policy: Policy, k: int) -> str:
    """K as text for a sentence; "0 (off)" where K = 0 leaves the speculator out."""
    return "0 (off)" if k == 0 and policy.skips else str(k)


def _before_first(view: Outlook) -> str:
    """The share of requests' time before their first token, as the end of a sentence; empty where it is small."""
    share = view.traffic.shares.before_first
    return f"; requests spend {100.0 * share:.0f} % of their time before their first token" if share >= MUCH else ""


def acceptance_text(look: Look) -> str:
    """The acceptance a decision rests on, as the end of a sentence."""
    if look.acceptance_length is None:
        return ""
    return f"; acceptance length {look.acceptance_length:.2f} over {look.drafts:,.0f} drafts"


def _span(before: tuple[int, ...], after: tuple[int, ...], focus: int, max_batch: int) -> tuple[int, int]:
    """(first, last) batch size around `focus` in which the same K replaces the same K."""
    change, low, high = (before[focus], after[focus]), focus, focus
    while low > 0 and (before[low - 1], after[low - 1]) == change:
        low -= 1
    while high + 1 < len(before) and (before[high + 1], after[high + 1]) == change:
        high += 1
    bounds = edges(max_batch)
    return bounds[low][0], bounds[high][1]


def _where(first: int, last: int, max_batch: int) -> str:
    if first == 1 and last == max_batch:
        return "at every load"
    if last == max_batch:
        return f"above {_requests(first - 1)}"
    return f"at {first}-{last} requests" if first < last else f"at {_requests(first)}"


def _requests(count: float) -> str:
    return f"{count:.0f} request{'' if round(count) == 1 else 's'}"
