"""One decision: guards first, then learning, then the choice of a table.

Called by reconcile once per tick, by simulations and by `speculative tune`: `decide(memory, observation, policy, now)`.
Pure and deterministic. It never raises for whatever was observed, never yields a table outside the knobs, and leaves
the table alone whenever it says `valid=False`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from speculative_operator.domain.decision import Decision, Estimate, Policy, State
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.acceptance import DEFLATION, limited
from speculative_operator.tuner.evidence import find_hold
from speculative_operator.tuner.grid import nearest
from speculative_operator.tuner.judge import Proposal, dwell_seconds, least_bad, propose
from speculative_operator.tuner.learning import MIN_STEPS, learn
from speculative_operator.tuner.memory import LONGEST_RETRY_SECONDS, Memory
from speculative_operator.tuner.outlook import Outlook, outlook
from speculative_operator.tuner.report import QUANTILE, acceptance_text, change_text, estimate, measured_at, why
from speculative_operator.tuner.start import initial_table
from speculative_operator.tuner.traffic import Look, pool

MIN_EFFECTIVE_DRAFTS = 50.0
"""Drafts, divided by the clustering factor, that a change of table must rest on: as many as the prior weighs."""
GUARD_SHARE = 0.98
"""Measured goodput below this share of no speculation (lower bound) counts as slow."""
GUARD_WINDOWS = 2
"""Slow observations in a row after which drafts are cut, whatever was changed when."""
RETRY_EVIDENCE = 25.0
"""Effective drafts of the old evidence that a retry of speculation keeps: half the weight of the prior."""


def decide(memory: Memory, observation: Observation, policy: Policy, now: float) -> tuple[Memory, Decision]:
    """The memory to keep and what to do now (`now` in unix seconds, as the windows' times)."""
    memory = memory.fitted(policy)
    if policy.mode is Mode.OFF or policy.knobs.actuator is Actuator.NONE:
        return memory, _nothing_to_turn(memory, policy)
    hold = find_hold(observation, policy.knobs, now)
    if hold is not None and policy.mode is not Mode.STATIC:
        memory = replace(memory, slow_windows=0)
        return memory, _kept(State.HOLDING, memory.table, hold.reason, hold.message, Estimate(), valid=False)
    if hold is not None:
        return _static(memory, policy, Estimate(), now)
    look = pool(list(observation.windows.values()))
    memory = learn(memory, observation.windows, look, policy, now)
    view = _view(memory, policy)
    if policy.mode is Mode.STATIC:
        return _static(memory, policy, estimate(view, look, memory.table), now)
    return _tuned(memory, view, look, policy, now)


def _tuned(memory: Memory, view: Outlook, look: Look, policy: Policy, now: float) -> tuple[Memory, Decision]:
    waiting = _waiting(memory, look)
    if waiting is not None:
        figures = estimate(view, look, memory.table)
        return memory, _kept(State.HOLDING, memory.table, *waiting, figures, valid=False)
    memory = _count_slow(memory, view, look)
    if memory.slow_windows >= GUARD_WINDOWS and policy.knobs.actuator is Actuator.LIVE and policy.mode is Mode.AUTO:
        cut = least_bad(view, memory.table, look.scheduled, _measured(look))
        if cut is not None and cut != memory.table:
            return _cut(memory, view, look, cut, now)
    probing = _retry(memory, policy, look, now)
    if probing is not None:
        memory = probing
        view = _view(memory, policy)
    proposal = propose(view, memory.table, memory.traffic.load, look.scheduled)
    if probing is not None:
        proposal = replace(proposal, table=_gentle(memory.table, proposal.table, view.ks))
    if proposal.table == memory.table or proposal.worth <= proposal.needed:
        return memory, _no_change(memory, view, look, proposal)
    if policy.mode is Mode.RECOMMEND:
        return _recommended(memory, view, look, proposal)
    remaining = _dwell(memory, policy, now)
    if remaining > 0:
        message = f"{_sentence(view, memory.table, proposal, look)}; held {remaining:.0f} s more after the last change"
        figures = estimate(view, look, memory.table, proposal.table)
        return memory, _kept(_state(memory.table, look), memory.table, Reason.DWELLING, message, figures)
    return _changed(memory, view, look, proposal, State.PROBING if probing is not None else None, now)


def _view(memory: Memory, policy: Policy) -> Outlook:
    return outlook(policy, memory.costs, memory.acceptance, memory.traffic)


def _nothing_to_turn(memory: Memory, policy: Policy) -> Decision:
    if policy.mode is Mode.OFF:
        reason, message = Reason.DISABLED, "mode is Off: pods run without a speculator"
    else:
        reason, message = Reason.NO_SPECULATOR, "there is no speculator and no draft-free method: nothing to tune"
    return _kept(State.HARD_OFF, memory.table, reason, message, Estimate())


def _static(memory: Memory, policy: Policy, figures: Estimate, now: float) -> tuple[Memory, Decision]:
    wanted = initial_table(policy)
    changed = wanted != memory.table
    if changed:
        memory = replace(memory, table=wanted, previous=memory.table, changed_at=now)
    state = State.ON if wanted.max_k > 0 else State.SOFT_OFF
    message = f"mode is Static: the table of the spec is in force ({wanted})"
    return memory, Decision(state, wanted, Reason.FIXED, message, valid=True, changed=changed, estimate=figures)


def _waiting(memory: Memory, look: Look) -> tuple[Reason, str] | None:
    """Why it is too early to decide, or None."""
    if memory.windows <= 1:
        return Reason.STARTING, "the first window was seen; a decision needs one more"
    if look.steps < MIN_STEPS:
        return Reason.COLLECTING, f"{look.steps:.0f} steps in the window; {MIN_STEPS:.0f} are needed"
    known = memory.acceptance.reached[0] if memory.acceptance.reached else 0.0
    drafting = memory.table.k_at(look.scheduled) > 0 and look.drafts > 0
    if drafting and known < MIN_EFFECTIVE_DRAFTS:
        needed = MIN_EFFECTIVE_DRAFTS * DEFLATION
        return Reason.COLLECTING, f"{known * DEFLATION:,.0f} drafts remembered; {needed:,.0f} are needed"
    return None


def _measured(look: Look) -> float:
    return -math.log(look.tpot) if look.tpot else -math.inf


def _count_slow(memory: Memory, view: Outlook, look: Look) -> Memory:
    """Counts observations in which drafting lost against the lower bound of no drafting."""
    k = memory.table.k_at(look.scheduled)
    if k == 0 or not measured_at(look, k):
        return replace(memory, slow_windows=0)
    at = np.array([look.batch])
    off = float(view.off_log_speed(at)[0])
    if 0 in view.ks:
        off = float(view.log_speed(at)[0, view.ks.index(0)])
    width = QUANTILE * float(view.costs.deviation(view.costs.shares(view.off_terms(at))[0]))
    slow = _measured(look) < math.log(GUARD_SHARE) + off - width
    return replace(memory, slow_windows=memory.slow_windows + 1 if slow else 0)


def _retry(memory: Memory, policy: Policy, look: Look, now: float) -> Memory | None:
    """Memory with most evidence dropped, when nothing was drafted for so long that it may be out of date."""
    if memory.drafted_at is None or look.drafts > 0 or now - memory.drafted_at < memory.retry_seconds:
        return None
    if policy.mode is not Mode.AUTO or policy.knobs.actuator is not Actuator.LIVE or max(policy.knobs.ks) == 0:
        return None
    faded = limited(memory.acceptance, RETRY_EVIDENCE)
    costs = replace(memory.costs, per_k=tuple((k, 0.0, 0.0) for k, _, _ in memory.costs.per_k))
    later = min(2.0 * memory.retry_seconds, LONGEST_RETRY_SECONDS)
    return replace(memory, acceptance=faded, costs=costs, drafted_at=now, retry_seconds=later)


def _gentle(old: KTable, new: KTable, ks: tuple[int, ...]) -> KTable:
    """`new`, but raised to the smallest K above 0 only: a retry should cost little."""
    least = min((k for k in ks if k > 0), default=0)
    return KTable.from_dense([min(b, max(a, least)) for a, b in zip(old.dense(), new.dense(), strict=True)])


def _dwell(memory: Memory, policy: Policy, now: float) -> float:
    if memory.changed_at is None:
        return 0.0
    since = now - memory.changed_at
    return dwell_seconds(policy) - since if since >= 0 else 0.0


def _sentence(view: Outlook, table: KTable, proposal: Proposal, look: Look) -> str:
    return change_text(view, table, proposal.table, proposal.focus, look)


def _no_change(memory: Memory, view: Outlook, look: Look, proposal: Proposal) -> Decision:
    figures = estimate(view, look, memory.table)
    k = memory.table.k_at(look.scheduled)
    if proposal.table != memory.table or proposal.tempting:
        reason = Reason.WITHIN_MARGIN
        message = f"K {k} at {look.scheduled:.0f} requests; another table would gain less than the margin"
    else:
        reason = Reason.TUNED
        message = f"K {k} at {look.scheduled:.0f} requests is the best found"
    text = message + acceptance_text(look)
    return _kept(_state(memory.table, look), memory.table, reason, text, figures)


def _recommended(memory: Memory, view: Outlook, look: Look, proposal: Proposal) -> tuple[Memory, Decision]:
    new = proposal.table != memory.proposal
    figures = estimate(view, look, memory.table, proposal.table)
    message = f"proposed, not applied: {_sentence(view, memory.table, proposal, look)}"
    memory = replace(memory, proposal=proposal.table)
    state = _state(memory.table, look)
    return memory, Decision(state, proposal.table, Reason.RECOMMENDED, message, True, new, figures)


def _changed(
    memory: Memory, view: Outlook, look: Look, proposal: Proposal, state: State | None, now: float
) -> tuple[Memory, Decision]:
    reason, message = why(view, memory.table, proposal), _sentence(view, memory.table, proposal, look)
    figures = estimate(view, look, memory.table, proposal.table)
    memory = replace(memory, table=proposal.table, previous=memory.table, changed_at=now, slow_windows=0)
    state = state or _state(memory.table, look)
    return memory, Decision(state, memory.table, reason, message, valid=True, changed=True, estimate=figures)


def _cut(memory: Memory, view: Outlook, look: Look, cut: KTable, now: float) -> tuple[Memory, Decision]:
    focus = nearest(look.scheduled, view.policy.knobs.max_batch)
    tpot = 1e3 * (look.tpot or 0.0)
    message = f"measured {tpot:.1f} ms/token; {change_text(view, memory.table, cut, focus, look)}"
    figures = estimate(view, look, memory.table, cut)
    memory = replace(memory, table=cut, previous=memory.table, changed_at=now, slow_windows=0)
    return memory, Decision(_state(cut, look), cut, Reason.GUARD, message, valid=True, changed=True, estimate=figures)


def _state(table: KTable, look: Look) -> State:
    return State.ON if table.k_at(look.scheduled) > 0 else State.SOFT_OFF


def _kept(
    state: State, table: KTable, reason: Reason, message: str, figures: Estimate, *, valid: bool = True
) -> Decision:
    return Decision(state, table, reason, message, valid=valid, changed=False, estimate=figures)
