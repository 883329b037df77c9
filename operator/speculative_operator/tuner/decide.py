"""One decision: guards first, then learning, then the choice of a table.

Called at each reconcile, and by the laboratory and the accelerator kit: `decide(memory, observation, policy,
now)`. Pure and deterministic. It never raises for whatever was observed, never yields a table outside the knobs, and
leaves the table alone whenever it says `valid=False`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from speculative_operator.domain.decision import Decision, Estimate, Policy, State
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode, OffPolicy
from speculative_operator.domain.table import Actuator, Trial
from speculative_operator.tuner import rollout
from speculative_operator.tuner.acceptance import DEFLATION
from speculative_operator.tuner.allowed import fit
from speculative_operator.tuner.answers import (
    change,
    come_back,
    cut,
    dwelling,
    fall_back,
    keep,
    nothing_to_turn,
    recommend,
    remove_speculator,
    resume_speculator,
    state_of,
    stay_static,
    without,
)
from speculative_operator.tuner.gain import removal_gain
from speculative_operator.tuner.guards import count_slow, guard, proven, to_fall_back, watch_sight
from speculative_operator.tuner.judge import (
    CONFIDENCE,
    Proposal,
    initial_table,
    initial_trials,
    propose,
    tries_first,
)
from speculative_operator.tuner.learning import MIN_STEPS, fresh_share, learn
from speculative_operator.tuner.memory import Memory
from speculative_operator.tuner.outlook import Outlook, incumbent_of, outlook
from speculative_operator.tuner.pace import MARGIN, MEASURED_MARGIN, dwell_seconds
from speculative_operator.tuner.quorum import (
    QUORUM,
    Hold,
    Sight,
    awaiting,
    find_hold,
    has_requests,
    late_pods,
    sight,
    waits,
)
from speculative_operator.tuner.report import acceptance_text, estimate, load_within, name_k
from speculative_operator.tuner.targets import judge, targets_text, watch
from speculative_operator.tuner.telemetry import believable
from speculative_operator.tuner.traffic import Look, bound_claims, pool
from speculative_operator.tuner.trials import MISSING_WORTH, may_try, missing, worth_trying

MIN_EFFECTIVE_DRAFTS = 20.0
"""Drafts, divided by the clustering factor, that a change of table must rest on."""
FAILING = 0.15
"""Tokens that a step gains by its drafts below which the first window decides: K = 0 loses little if that was chance.
"""
FAILING_FACTOR = 3.0
"""Times as many drafts are needed before the first K above 0 where fewer than FAILING of those tried were accepted: the
prior alone must not decide against what was seen."""
PATIENCE = 12
"""Windows after which few drafts have to do: a speculator that hardly ever drafts never gathers enough drafts."""
FREED_MARGIN = 0.003
"""Log speed that a table must bring when a latency target has just allowed a larger K again."""


def first_trials(memory: Memory, policy: Policy) -> tuple[Trial, ...]:
    """What pods try while they still have the table that an object begins with; nothing once the tuner has changed
    anything. Reconcile writes it again where it was lost, so that the first K above 0 rests on drafts that were tried.
    """
    begins = tries_first(policy) and memory.changed_at is None and memory.table == initial_table(policy)
    return initial_trials(policy) if begins else ()


def decide(memory: Memory, observation: Observation, policy: Policy, now: float) -> tuple[Memory, Decision]:
    """The memory to keep, and the decision at `now` (unix seconds, like the times of the windows)."""
    memory = memory.fit_to(policy)
    if memory.removed and (policy.off_policy is not OffPolicy.REMOVE or policy.mode is not Mode.AUTO):
        memory = replace(memory, removed=False, doomed_since=None)
    if policy.mode is not Mode.AUTO and memory.before_outage is not None:
        memory = replace(memory, before_outage=None)
    if policy.mode is Mode.DISABLED or policy.knobs.actuator is Actuator.NONE:
        return memory, nothing_to_turn(memory, policy)
    seen = sight(observation, memory.last_windows, policy.knobs, now)
    hold = find_hold(observation, seen)
    if hold is not None and policy.mode is not Mode.STATIC:
        return _unseen(memory, hold, policy, now)
    if hold is not None:
        return _static(memory, policy, Estimate(), now)
    return _decide_on_figures(memory, seen, observation.table_version, policy, now)


def _unseen(memory: Memory, hold: Hold, policy: Policy, now: float) -> tuple[Memory, Decision]:
    """The decision without figures: hold, and once in a long outage fall back to the proven part of the table."""
    if hold.reason is not Reason.COLLECTING:  # between two scrapes there is no news, good or bad
        memory = watch_sight(replace(memory, slow_windows=0), hold.reason, now)
    if to_fall_back(memory, policy, now):
        running = memory.table
        memory = replace(memory, before_outage=memory.table)
        safe = proven(memory, memory.table, policy, now)
        if safe != running:
            memory = replace(memory, table=safe, previous=running, changed_at=now)
            return fall_back(memory, hold.reason, now - (memory.blind_since or now))
    return memory, keep(State.HOLDING, memory, hold.reason, hold.message, Estimate(), valid=False)


def _decide_on_figures(
    memory: Memory, seen: Sight, version: int | None, policy: Policy, now: float
) -> tuple[Memory, Decision]:
    """The decision on the believed figures of `seen`. `version`: version of the table that pods were last told."""
    seen, late = _without_late(seen, () if memory.removed else late_pods(seen.windows, version))
    windows = {pod: believable(window, policy.knobs) for pod, window in seen.windows.items()}
    memory = awaiting(memory, late, now)
    fresh = [fresh_share(window, memory.last_windows.get(pod)) for pod, window in windows.items()]
    look = pool(list(windows.values()))
    counted = [] if memory.removed else list(zip(bound_claims(list(windows.values())), fresh, strict=True))
    memory = replace(memory, targets=watch(memory.targets, counted, memory.table, policy, now))
    memory = learn(memory, windows, look, policy, now, version, seen.weights.keys())
    compares = may_try(policy, windows)
    if not compares and memory.trials and not first_trials(memory, policy):
        memory = replace(memory, trials=())
    view = outlook(
        policy, memory.costs, memory.acceptance, memory.traffic, memory.last, memory.cells, compares=compares
    )
    found = None if memory.removed else load_within(view, look, memory.table, memory.targets)
    memory, decision = _decide_on_evidence(memory, seen, late, view, look, now)
    if found is None:
        return memory, decision
    return memory, replace(decision, estimate=replace(decision.estimate, load_within_target=found))


def _decide_on_evidence(
    memory: Memory, seen: Sight, late: tuple[str, ...], view: Outlook, look: Look, now: float
) -> tuple[Memory, Decision]:
    """The decision on the evidence in `memory`. `late`: pods that run an older table, where the other pods are too few
    to judge the active one."""
    policy = view.policy
    if policy.mode is Mode.STATIC:
        return _static(memory, policy, estimate(view, look, memory.table), now)
    memory = replace(memory, blind_since=None)
    waiting = _waiting(memory, view, look) or _awaiting(memory, late, now)
    if waiting is not None:
        figures = estimate(view, look, memory.table)
        return memory, keep(State.HOLDING, memory, *waiting, figures, valid=False)
    if not seen.enough:
        return _partial(memory, seen, view, look, now)
    before, memory = memory.before_outage, replace(memory, before_outage=None)
    if before is not None and fit(before, policy) != memory.table:
        return come_back(memory, view, look, fit(before, policy), now)
    if memory.removed:
        return _without_speculator(memory, view, look, now)
    return _tune(memory, view, look, now)


def _without_late(seen: Sight, late: tuple[str, ...]) -> tuple[Sight, tuple[str, ...]]:
    """(`seen` without the pods in `late`, no pods) where the others make a quorum; else (`seen`, `late`)."""
    others = {pod: window for pod, window in seen.windows.items() if pod not in late}
    if not late or not has_requests(others) or seen.share(seen.believable_pods - {*late}) < QUORUM:
        return seen, late
    return replace(seen, windows=others), ()


def _tune(memory: Memory, view: Outlook, look: Look, now: float) -> tuple[Memory, Decision]:
    memory = count_slow(memory, view, look)
    less = guard(memory, view, look)
    if less is not None:
        return cut(memory, view, look, less, now)
    memory = rollout.track_dead_weight(memory, removal_gain(view), rollout.cost(view.policy), now)
    if rollout.to_remove(memory, view, now):
        return remove_speculator(memory, view, look, now)
    return _choice(memory, view, look, now)


def _partial(memory: Memory, seen: Sight, view: Outlook, look: Look, now: float) -> tuple[Memory, Decision]:
    """The decision where too few pods are believed for a new table, but enough for the guard."""
    if not memory.removed:
        memory = count_slow(memory, view, look)
        less = guard(memory, view, look)
        if less is not None:
            return cut(memory, view, look, less, now)
    text = f"{seen.shortage}; the table stays as it is"
    figures = estimate(view, look, memory.table)
    return memory, keep(State.HOLDING, memory, Reason.METRICS_PARTIAL, text, figures, valid=False)


def _choice(memory: Memory, view: Outlook, look: Look, now: float) -> tuple[Memory, Decision]:
    freed, memory = _judge_targets(memory, view, now)
    how = (FREED_MARGIN, 0.0) if freed else (MEASURED_MARGIN if view.compares else MARGIN, CONFIDENCE)
    proposal = propose(view, memory.table, look.loads, *how, memory.targets)
    better = proposal.table != memory.table and proposal.worth > proposal.needed
    if not rollout.free(view.policy):
        memory = rollout.track_worth(memory, better, now)
    if not better:
        if view.compares:
            memory = _trying(memory, view, look, now)
            return memory, _no_change(memory, view, look, proposal)
        return memory, _no_change(memory, view, look, proposal)
    if view.policy.mode is Mode.RECOMMEND:
        return recommend(memory, view, look, proposal)
    wait = "" if freed else _wait(memory, view.policy, proposal.now, now)
    if wait:
        return memory, dwelling(memory, view, look, proposal, wait)
    return change(memory, view, look, proposal, now)


def _judge_targets(memory: Memory, view: Outlook, now: float) -> tuple[bool, Memory]:
    """(True where the latency targets have raised or lifted a limit, memory with the limits that they need now)."""
    old = memory.targets
    if old.asked == (None, None):
        return False, memory
    speed = view.against(incumbent_of(view, memory.table)).mean
    new = judge(old, view, speed, memory.table, now)
    return new.limit != old.limit and new.step is None, replace(memory, targets=new)


def _trying(memory: Memory, view: Outlook, look: Look, now: float) -> Memory:
    """Memory with new trials, where a missing trial is worth a write of the table."""
    if _wait(memory, view.policy, 0.0, now):
        return memory
    if missing(view, memory.table, memory.trials, look.loads, memory.targets) < MISSING_WORTH:
        return memory
    return replace(
        memory, trials=worth_trying(view, memory.table, memory.targets), changed_at=now, pace=memory.pace.spend()
    )


def _without_speculator(memory: Memory, view: Outlook, look: Look, now: float) -> tuple[Memory, Decision]:
    if rollout.to_return(memory, view, now):
        return resume_speculator(memory, view, look, now)
    return memory, without(memory, view, look)


def _static(memory: Memory, policy: Policy, figures: Estimate, now: float) -> tuple[Memory, Decision]:
    wanted = initial_table(policy)
    differs = wanted != memory.table
    if differs:
        memory = replace(memory, table=wanted, previous=memory.table, changed_at=now)
    return memory, stay_static(memory, figures, changed=differs)


def _waiting(memory: Memory, view: Outlook, look: Look) -> tuple[Reason, str] | None:
    """Reason and message why it is too early to decide, or None."""
    k = memory.table.k_at(look.scheduled)
    failing = k in view.ks and k > 0 and view.lengths()[view.ks.index(k)] < 1.0 + FAILING
    if memory.windows <= 1 and not failing:
        return Reason.STARTING, "the first window was seen; a decision needs one more"
    if look.steps < MIN_STEPS:
        return Reason.COLLECTING, f"{look.steps:.0f} steps in the window; {MIN_STEPS:.0f} are needed"
    known, least = _effective_drafts(memory), MIN_EFFECTIVE_DRAFTS
    drafting = memory.table.k_at(look.scheduled) > 0 and look.drafts > 0 and memory.windows < PATIENCE
    trying = _tries_first(memory, view.policy, look) and (view.compares or memory.windows < PATIENCE)
    if trying and known > 0.0 and memory.acceptance.accepted[0] < FAILING * known:
        least *= FAILING_FACTOR
    if (drafting or trying) and known < least:
        needed = least * DEFLATION
        return Reason.COLLECTING, f"{known * DEFLATION:,.0f} drafts remembered; {needed:,.0f} are needed"
    return None


def _effective_drafts(memory: Memory) -> float:
    """Effective drafts remembered."""
    return memory.acceptance.reached[0] if memory.acceptance.reached else 0.0


def _tries_first(memory: Memory, policy: Policy, look: Look) -> bool:
    """True where pods still have the table that an object begins with, and try drafts at the present batch size."""
    covers = any(row.first <= round(look.scheduled) <= row.last for row in memory.trials)
    return covers and bool(first_trials(memory, policy))


def _awaiting(memory: Memory, late: tuple[str, ...], now: float) -> tuple[Reason, str] | None:
    """Reason and message why the active table cannot be judged yet (pods have not taken it), or None."""
    if not late or not waits(memory, now):
        return None
    others = f" and {len(late) - 1} more" if len(late) > 1 else ""
    return Reason.HOLDING, f"{late[0]}{others} has not activated the table yet; the tuner waits for it"


def _wait(memory: Memory, policy: Policy, gain: float, now: float) -> str:
    """Why a better table is not activated yet, as the end of a sentence; empty when nothing holds it."""
    since = now - memory.changed_at if memory.changed_at is not None else math.inf
    remaining = dwell_seconds(policy, gain) - since if since >= 0 else 0.0
    if remaining > 0:
        return f"held for {remaining:.0f} s more after the last change"
    if not rollout.free(policy) and (remaining := rollout.remaining_seconds(memory, now)) > 0:
        return f"held: pods are replaced if this is still so in {remaining:.0f} s"
    return "" if memory.pace.allows(gain) else "held: too many recent changes"


def _no_change(memory: Memory, view: Outlook, look: Look, proposal: Proposal) -> Decision:
    figures = estimate(view, look, memory.table)
    k = memory.table.k_at(look.scheduled)
    active = f"K {name_k(view.policy, k)} at {look.scheduled:.0f} requests"
    if memory.targets.failed is not None:
        reason, message = Reason.TARGET_OUT_OF_REACH, f"{active} is the fastest"
    elif memory.targets.forbids(max(view.ks), look.scheduled):
        reason, message = Reason.SLO, f"{active}: no larger one, for the latency target"
    elif proposal.table != memory.table or proposal.tempting:
        reason = Reason.WITHIN_MARGIN
        message = f"{active}; another table would gain less than the margin"
    else:
        reason = Reason.TUNED
        message = f"{active} is the best found"
    message += acceptance_text(look) + targets_text(memory.targets)
    return keep(state_of(memory.table, look), memory, reason, message, figures)
