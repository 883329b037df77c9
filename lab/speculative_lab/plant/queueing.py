"""How requests come, wait, are admitted and have their prompts computed."""

from __future__ import annotations

import math

from speculative_lab.plant import layout as at
from speculative_lab.plant.compiled import compiled
from speculative_lab.plant.types import Machine, State


@compiled
def next_arrival(state: State, opened: int) -> float:
    """When the next request comes; infinite when none does. `opened` is the number that come by themselves."""
    soonest = float(state.now[at.DUE])
    row = int(state.now[at.OPEN])
    if row < opened:
        soonest = min(soonest, float(state.req[row, at.ARRIVE]))
    return soonest


@compiled
def send_home(state: State, row: int) -> None:
    """Let the user of `row` think, and then ask the next question."""
    if state.req[row, at.NEXT] < 0:
        return
    user = int(state.req[row, at.USER])
    state.current[user] = int(state.req[row, at.NEXT])
    state.due[user] = state.now[at.NOW] + state.req[row, at.THINK]
    state.now[at.DUE] = min(state.now[at.DUE], state.due[user])


@compiled
def enqueue(machine: Machine, state: State, row: int, came: float) -> None:
    """Put a request at the end of the queue, or reject it."""
    now, req = state.now, state.req
    req[row, at.CAME] = came
    state.counters[at.CAME_IN] += 1
    if now[at.TAIL] - now[at.HEAD] >= machine.par[at.QUEUE_LIMIT]:
        req[row, at.ENDED] = -2.0
        state.counters[at.REJECTED] += 1
        send_home(state, row)
        return
    req[row, at.LEFT] = req[row, at.PROMPT]
    req[row, at.CONTEXT] = req[row, at.PRIOR]
    state.queue[int(now[at.TAIL]) % len(state.queue)] = row
    now[at.TAIL] += 1
    if now[at.NOW] >= machine.par[at.WARM]:
        minute = min(int(now[at.NOW] / 60.0), len(state.minutes) - 1)
        state.minutes[minute, at.M_RESIDENCE] += now[at.NOW] - max(came, machine.par[at.WARM])


@compiled
def take_arrivals(machine: Machine, state: State, opened: int) -> None:
    """Queue all that came until now."""
    now = state.now
    while now[at.OPEN] < opened and state.req[int(now[at.OPEN]), at.ARRIVE] <= now[at.NOW]:
        row = int(now[at.OPEN])
        now[at.OPEN] += 1
        enqueue(machine, state, row, float(state.req[row, at.ARRIVE]))
    if now[at.DUE] > now[at.NOW]:
        return
    for user in range(len(state.due)):
        if state.due[user] <= now[at.NOW]:
            came = float(state.due[user])
            state.due[user] = math.inf
            enqueue(machine, state, int(state.current[user]), came)
    soonest = math.inf
    for user in range(len(state.due)):
        soonest = min(soonest, state.due[user])
    now[at.DUE] = soonest


@compiled
def preempt(state: State) -> None:
    """Send the request that was admitted last back to the head of the queue; its context is to be computed anew."""
    now, req = state.now, state.req
    now[at.RUNNING] -= 1
    row = state.running[int(now[at.RUNNING])]
    now[at.KV] -= req[row, at.CONTEXT] + req[row, at.LEFT]
    req[row, at.LEFT] += req[row, at.CONTEXT]
    req[row, at.CONTEXT] = 0.0
    req[row, at.DRAFTED] = 0.0
    req[row, at.DRAFT_K] = 0.0
    req[row, at.GAPPED] = 0.0
    now[at.HEAD] -= 1
    state.queue[int(now[at.HEAD]) % len(state.queue)] = row
    state.counters[at.PREEMPTED] += 1


@compiled
def admit(machine: Machine, state: State) -> None:
    """First come, first served, while seats and memory last."""
    par, now, req = machine.par, state.now, state.req
    room = par[at.KV_CAPACITY]
    preempted = False
    while now[at.RUNNING] > 1 and now[at.KV] + 16.0 * now[at.RUNNING] > room:
        preempt(state)
        preempted = True
    while not preempted and now[at.RUNNING] < par[at.SEATS] and now[at.HEAD] < now[at.TAIL]:
        row = state.queue[int(now[at.HEAD]) % len(state.queue)]
        need = req[row, at.CONTEXT] + req[row, at.LEFT]
        if now[at.RUNNING] > 0 and now[at.KV] + need + min(req[row, at.OUT], 256.0) + 16.0 * now[at.RUNNING] > room:
            return
        now[at.HEAD] += 1
        now[at.KV] += need
        state.running[int(now[at.RUNNING])] = row
        now[at.RUNNING] += 1


@compiled
def plan_prompts(machine: Machine, state: State, taken: float) -> float:
    """Share the step's prompt tokens out, and return their number. `taken`: tokens that decoding requests have."""
    par, now, req = machine.par, state.now, state.req
    budget = min(par[at.CHUNK_BUDGET], par[at.TOKEN_BUDGET] - taken)
    planned, prompts = 0.0, 0.0
    for seat in range(int(now[at.RUNNING])):
        row = state.running[seat]
        left = req[row, at.LEFT]
        req[row, at.CHUNK] = 0.0
        if left <= 0 or budget <= 0 or prompts >= par[at.PROMPTS_AT_ONCE]:
            continue
        chunk = min(left, budget)
        req[row, at.CHUNK] = chunk
        if req[row, at.SCHEDULED] < 0:
            req[row, at.SCHEDULED] = now[at.NOW]
        budget -= chunk
        planned += chunk
        prompts += 1.0
    return planned
