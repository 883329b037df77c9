"""Builds decisions with their messages, and the memory that follows from each. Called by decide()."""

from __future__ import annotations

from dataclasses import replace

from speculative_operator.domain.decision import Decision, Estimate, Policy, State
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.grid import nearest
from speculative_operator.tuner.judge import Proposal
from speculative_operator.tuner.memory import Memory
from speculative_operator.tuner.outlook import Outlook
from speculative_operator.tuner.report import acceptance_text, change_text, estimate, why
from speculative_operator.tuner.targets import targets_text
from speculative_operator.tuner.traffic import Look
from speculative_operator.tuner.trials import worth_trying


def state_of(table: KTable, look: Look) -> State:
    """The state of speculation: `ON` where `table` drafts at the load of `look`, else `OFF`."""
    return State.ON if table.k_at(look.scheduled) > 0 else State.OFF


def keep(
    state: State,
    memory: Memory,
    reason: Reason,
    message: str,
    figures: Estimate,
    *,
    valid: bool = True,
    changed: bool = False,
) -> Decision:
    """The decision for the table of `memory`; `changed` is True where pods have to get it."""
    return Decision(
        state, memory.table, reason, message, valid=valid, changed=changed, estimate=figures, trials=memory.trials,
        removed=memory.removed,
    )  # fmt: skip


def nothing_to_turn(memory: Memory, policy: Policy) -> Decision:
    """The decision where no speculator exists or mode is Disabled: pods run without one."""
    if policy.mode is Mode.DISABLED:
        message = "mode is Disabled: pods run without a speculator"
        return keep(State.REMOVED, memory, Reason.DISABLED, message, Estimate())
    message = "there is no speculator and no draft-free method: nothing to tune"
    return keep(State.REMOVED, memory, Reason.NO_SPECULATOR, message, Estimate())


def stay_static(memory: Memory, figures: Estimate, *, changed: bool) -> Decision:
    """The decision in mode Static: the table of the spec is active."""
    state = State.ON if memory.table.max_k > 0 else State.OFF
    message = f"mode is Static: the table of the spec is active ({memory.table})"
    return keep(state, memory, Reason.FIXED, message, figures, changed=changed)


def recommend(memory: Memory, view: Outlook, look: Look, proposal: Proposal) -> tuple[Memory, Decision]:
    """The decision in mode Recommend: the proposal is reported and not applied; memory keeps it."""
    new = proposal.table != memory.proposal
    figures = estimate(view, look, memory.table, proposal.table)
    message = f"proposed, not applied: {_sentence(view, memory.table, proposal, look)}"
    memory = replace(memory, proposal=proposal.table)
    state = state_of(memory.table, look)
    return memory, Decision(state, proposal.table, Reason.RECOMMENDED, message, True, new, figures)


def dwelling(memory: Memory, view: Outlook, look: Look, proposal: Proposal, wait: str) -> Decision:
    """The decision to keep the table although `proposal` is better; `wait` says what the change waits for."""
    message = f"{_sentence(view, memory.table, proposal, look)}; {wait}"
    figures = estimate(view, look, memory.table, proposal.table)
    return keep(state_of(memory.table, look), memory, Reason.RECENTLY_CHANGED, message, figures)


def change(memory: Memory, view: Outlook, look: Look, proposal: Proposal, now: float) -> tuple[Memory, Decision]:
    """The decision to change to the table of `proposal`, and memory after it."""
    reason = why(view, memory.table, proposal, memory.targets, now)
    message = _sentence(view, memory.table, proposal, look) + targets_text(memory.targets)
    figures = estimate(view, look, memory.table, proposal.table)
    differs = proposal.table != memory.table
    memory = replace(
        memory,
        table=proposal.table,
        previous=memory.table,
        changed_at=now,
        slow_windows=0,
        pace=memory.pace.spend(),
        wanted_since=None,
        trials=worth_trying(view, proposal.table, memory.targets) if view.compares else (),
    )
    state = state_of(memory.table, look)
    return memory, Decision(
        state, memory.table, reason, message, valid=True, changed=differs, estimate=figures, trials=memory.trials
    )


def cut(memory: Memory, view: Outlook, look: Look, less: KTable, now: float) -> tuple[Memory, Decision]:
    """The decision of the guard to change to `less`, the table with fewer drafts, at once; and memory after it."""
    focus = nearest(look.scheduled, view.policy.knobs.max_batch)
    tpot = 1e3 * (look.tpot or 0.0)
    message = f"measured {tpot:.1f} ms/token; {change_text(view, memory.table, less, focus, look)}"
    figures = estimate(view, look, memory.table, less)
    pace = memory.pace.spend()
    memory = replace(memory, table=less, previous=memory.table, changed_at=now, slow_windows=0, pace=pace, trials=())
    return memory, Decision(state_of(less, look), less, Reason.GUARD, message, True, True, figures)


def fall_back(memory: Memory, why: Reason, seconds: float) -> tuple[Memory, Decision]:
    """The decision in a long outage to change to the table of `memory`, which holds proven K only."""
    message = (
        f"no valid metrics for {seconds / 60.0:.0f} minutes ({why.value}): at each load K falls to one that was shown "
        "to pay, or to 0, until there are metrics again"
    )
    return memory, keep(State.HOLDING, memory, Reason.METRICS_LOST, message, Estimate(), changed=True)


def come_back(memory: Memory, view: Outlook, look: Look, before: KTable, now: float) -> tuple[Memory, Decision]:
    """The decision after an outage to change back to `before`, the table from before it; and memory after it."""
    figures = estimate(view, look, memory.table, before)
    memory = replace(memory, table=before, previous=memory.table, changed_at=now, slow_windows=0, trials=())
    message = f"metrics are back{acceptance_text(look)}: the previous table is active again"
    return memory, keep(state_of(before, look), memory, Reason.METRICS_BACK, message, figures, changed=True)


def remove_speculator(memory: Memory, view: Outlook, look: Look, now: float) -> tuple[Memory, Decision]:
    """The decision to replace the pods by pods without a speculator, and memory after it."""
    figures = estimate(view, look, memory.table)
    gain = figures.removal_gain_percent
    told = f" {gain.mid:+.0f} % ({gain.low:+.0f} to {gain.high:+.0f} %)" if gain is not None else " faster"
    message = (
        f"pods without the speculator are expected to serve{told} at the loads of the last hour, "
        f"whatever K{acceptance_text(look)}"
    )
    memory = replace(memory, removed=True, removed_at=now, doomed_since=None, changed_at=now)
    return memory, keep(State.REMOVED, memory, Reason.DEAD_WEIGHT, message, figures, changed=True)


def without(memory: Memory, view: Outlook, look: Look) -> Decision:
    """The decision to let pods go on without a speculator."""
    figures = estimate(view, look, memory.table)
    message = f"no speculator at {look.scheduled:.0f} requests: by earlier measurements it would not pay"
    return keep(State.REMOVED, memory, Reason.DEAD_WEIGHT, message, figures)


def resume_speculator(memory: Memory, view: Outlook, look: Look, now: float) -> tuple[Memory, Decision]:
    """The decision to replace the pods by pods with their speculator, and memory after it."""
    figures = estimate(view, look, memory.table)
    memory = replace(memory, removed=False, removed_at=now, changed_at=now)
    message = f"at {look.scheduled:.0f} requests the speculator is expected to pay again by earlier measurements"
    return memory, keep(state_of(memory.table, look), memory, Reason.RESUMED, message, figures, changed=True)


def _sentence(view: Outlook, table: KTable, proposal: Proposal, look: Look) -> str:
    return change_text(view, table, proposal.table, proposal.focus, look)
