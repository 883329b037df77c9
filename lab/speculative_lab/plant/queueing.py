"""How requests come, wait, are admitted and have their prompts computed."""

from __future__ import annotations

import math

from speculative_lab.plant.compiled import compiled
from speculative_lab.plant.layout import (
    ARRIVE,
    CAME,
    CAME_IN,
    CHUNK,
    CHUNK_BUDGET,
    CONTEXT,
    DRAFT_K,
    DRAFTED,
    DUE,
    ENDED,
    GAPPED,
    HEAD,
    KV,
    KV_CAPACITY,
    LEFT,
    M_RESIDENCE,
    NEXT,
    NOW,
    OPEN,
    OUT,
    PREEMPTED,
    PRIOR,
    PROMPT,
    PROMPTS_AT_ONCE,
    QUEUE_LIMIT,
    REJECTED,
    RUNNING,
    SCHEDULED,
    SEATS,
    TAIL,
    THINK,
    TOKEN_BUDGET,
    USER,
    WARM,
)
from speculative_lab.plant.types import Machine, State


@compiled
def next_arrival(state: State, opened: int) -> float:
    """When the next request comes; infinite when none does. `opened` is the number that come by themselves."""
    soonest = float(state.now[DUE])
    row = int(state.now[OPEN])
    if row < opened:
        soonest = min(soonest, float(state.req[row, ARRIVE]))
    return soonest


@compiled
def send_home(state: State, row: int) -> None:
    """Let the user of `row` think, and then ask the next question."""
    if state.req[row, NEXT] < 0:
        return
    user = int(state.req[row, USER])
    state.current[user] = int(state.req[row, NEXT])
    state.due[user] = state.now[NOW] + state.req[row, THINK]
    state.now[DUE] = min(state.now[DUE], state.due[user])


@compiled
def enqueue(machine: Machine, state: State, row: int, came: float) -> None:
    """Put a request at the end of the queue, or reject it."""
    now, req = state.now, state.req
    req[row, CAME] = came
    state.counters[CAME_IN] += 1
    if now[TAIL] - now[HEAD] >= machine.par[QUEUE_LIMIT]:
        req[row, ENDED] = -2.0
        state.counters[REJECTED] += 1
        send_home(state, row)
        return
    req[row, LEFT] = req[row, PROMPT]
    req[row, CONTEXT] = req[row, PRIOR]
    state.queue[int(now[TAIL]) % len(state.queue)] = row
    now[TAIL] += 1
    if now[NOW] >= machine.par[WARM]:
        minute = min(int(now[NOW] / 60.0), len(state.minutes) - 1)
        state.minutes[minute, M_RESIDENCE] += now[NOW] - max(came, machine.par[WARM])


@compiled
def take_arrivals(machine: Machine, state: State, opened: int) -> None:
    """Queue all that came until now."""
    now = state.now
    while now[OPEN] < opened and state.req[int(now[OPEN]), ARRIVE] <= now[NOW]:
        row = int(now[OPEN])
        now[OPEN] += 1
        enqueue(machine, state, row, float(state.req[row, ARRIVE]))
    if now[DUE] > now[NOW]:
        return
    for user in range(len(state.due)):
        if state.due[user] <= now[NOW]:
            came = float(state.due[user])
            state.due[user] = math.inf
            enqueue(machine, state, int(state.current[user]), came)
    soonest = math.inf
    for user in range(len(state.due)):
        soonest = min(soonest, state.due[user])
    now[DUE] = soonest


@compiled
def preempt(state: State) -> None:
    """Send the request that was admitted last back to the head of the queue; its context is to be computed anew."""
    now, req = state.now, state.req
    now[RUNNING] -= 1
    row = state.running[int(now[RUNNING])]
    now[KV] -= req[row, CONTEXT] + req[row, LEFT]
    req[row, LEFT] += req[row, CONTEXT]
    req[row, CONTEXT] = 0.0
    req[row, DRAFTED] = 0.0
    req[row, DRAFT_K] = 0.0
    req[row, GAPPED] = 0.0
    now[HEAD] -= 1
    state.queue[int(now[HEAD]) % len(state.queue)] = row
    state.counters[PREEMPTED] += 1


@compiled
def admit(machine: Machine, state: State) -> None:
    """First come, first served, while seats and memory last."""
    par, now, req = machine.par, state.now, state.req
    room = par[KV_CAPACITY]
    preempted = False
    while now[RUNNING] > 1 and now[KV] + 16.0 * now[RUNNING] > room:
        preempt(state)
        preempted = True
    while not preempted and now[RUNNING] < par[SEATS] and now[HEAD] < now[TAIL]:
        row = state.queue[int(now[HEAD]) % len(state.queue)]
        need = req[row, CONTEXT] + req[row, LEFT]
        if now[RUNNING] > 0 and now[KV] + need + min(req[row, OUT], 256.0) + 16.0 * now[RUNNING] > room:
            return
        now[HEAD] += 1
        now[KV] += need
        state.running[int(now[RUNNING])] = row
        now[RUNNING] += 1


@compiled
def plan_prompts(machine: Machine, state: State, taken: float) -> float:
    """Share the step's prompt tokens out, and return their number. `taken`: tokens that decoding requests have."""
    par, now, req = machine.par, state.now, state.req
    budget = min(par[CHUNK_BUDGET], par[TOKEN_BUDGET] - taken)
    planned, prompts = 0.0, 0.0
    for seat in range(int(now[RUNNING])):
        row = state.running[seat]
        left = req[row, LEFT]
        req[row, CHUNK] = 0.0
        if left <= 0 or budget <= 0 or prompts >= par[PROMPTS_AT_ONCE]:
            continue
        chunk = min(left, budget)
        req[row, CHUNK] = chunk
        if req[row, SCHEDULED] < 0:
            req[row, SCHEDULED] = now[NOW]
        budget -= chunk
        planned += chunk
        prompts += 1.0
    return planned
