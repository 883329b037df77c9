"""One replica, step by step, compiled.

`advance` ends the planned step with the K that drafts for the next one and plans that; `serve` does so under a fixed
table until a moment. The K that is looked up for a step is verified one step later.
"""

from __future__ import annotations

import math

from speculative_lab.plant import layout as at
from speculative_lab.plant import steptime as st
from speculative_lab.plant.compiled import compiled
from speculative_lab.plant.queueing import admit, next_arrival, plan_prompts, send_home, take_arrivals
from speculative_lab.plant.texts import accepted, findable
from speculative_lab.plant.types import Floats, Ints, Machine, State

IDLE, BUSY, WOKE = 0, 1, 2
"""What `advance` returns: nothing to do until the moment given; a step is planned; one is planned after idleness."""


@compiled
def plan(machine: Machine, state: State, opened: int) -> bool:
    """Plan the next step; False when there is nothing to do now."""
    now, req, par = state.now, state.req, machine.par
    take_arrivals(machine, state, opened)
    admit(machine, state)
    if now[at.RUNNING] == 0:
        return False
    decoding, taken, prompts = 0.0, 0.0, False
    for seat in range(int(now[at.RUNNING])):
        row = state.running[seat]
        if req[row, at.LEFT] > 0:
            prompts = True
        else:
            decoding += 1.0
            taken += 1.0 + req[row, at.DRAFTED]
    alone = prompts and par[at.PROMPTS_ALONE] > 0 and (decoding == 0 or now[at.ALONE] == 0)
    now[at.ALONE] = 1.0 if alone else 0.0
    now[at.HOLDING] = decoding if alone else 0.0
    if alone:
        decoding, taken = 0.0, 0.0
    forbidden = par[at.PROMPTS_ALONE] > 0 and not alone
    now[at.PLANNED_PROMPT] = plan_prompts(machine, state, par[at.TOKEN_BUDGET] if forbidden else taken)
    for seat in range(int(now[at.RUNNING])):
        row = state.running[seat]
        if req[row, at.CHUNK] > 0 and req[row, at.CHUNK] >= req[row, at.LEFT]:
            decoding += 1.0
    now[at.DECODING] = decoding
    now[at.PLANNED] = 1.0
    return True


@compiled
def measure(state: State, k: int) -> None:
    """What the planned step has to do."""
    work = state.work
    for place in range(st.WORK):
        work[place] = 0.0
    req = state.req
    for seat in range(int(state.now[at.RUNNING])):
        row = state.running[seat]
        if req[row, at.LEFT] > 0:
            chunk = req[row, at.CHUNK]
            if chunk > 0:
                work[st.W_PROMPT] += chunk
                work[st.W_PROMPTS] += 1.0
                work[st.W_PROMPT_CONTEXT] += chunk * (req[row, at.CONTEXT] + 0.5 * chunk)
        elif state.now[at.ALONE] == 0:
            work[st.W_DECODING] += 1.0
            work[st.W_VERIFIED] += 1.0 + req[row, at.DRAFTED]
            work[st.W_CONTEXT] += req[row, at.CONTEXT]
            work[st.W_K] = max(work[st.W_K], req[row, at.DRAFT_K])
    work[st.W_EMIT] = state.now[at.DECODING]
    work[st.W_DRAFT] = k


@compiled
def emit(machine: Machine, state: State, row: int) -> float:
    """Let a decoding request gain its tokens; returns their number."""
    request, counters, moment = state.req[row], state.counters, state.now[at.NOW]
    drafts = int(request[at.DRAFTED])
    gain = 0
    if drafts > 0:
        gain = accepted(machine, request, drafts, moment)
        counters[at.D] += 1
        counters[at.T] += drafts
        counters[at.A] += gain
        for j in range(drafts):
            state.positions[0, j] += 1
        for j in range(gain):
            state.positions[1, j] += 1
    tokens = min(gain + 1.0, request[at.OUT] - request[at.MADE])
    counters[at.R] += 1
    counters[at.I] += moment - request[at.LATEST]
    counters[at.G] += tokens
    if moment >= machine.par[at.WARM]:
        minute = state.minutes[min(int(moment / 60.0), len(state.minutes) - 1)]
        minute[at.M_PERIODS] += moment - request[at.LATEST]
        minute[at.M_FURTHER] += tokens
    request[at.LATEST] = moment
    request[at.MADE] += tokens
    request[at.CONTEXT] += tokens
    state.now[at.KV] += tokens
    state.step[at.S_PERIODS] += 1
    return float(tokens)


@compiled
def compute_prompt(machine: Machine, state: State, row: int) -> float:
    """Compute a request's chunk; returns the tokens that it emits, one where its prompt is through."""
    request, counters, moment = state.req[row], state.counters, state.now[at.NOW]
    request[at.LEFT] -= request[at.CHUNK]
    request[at.CONTEXT] += request[at.CHUNK]
    request[at.CHUNK] = 0.0
    if request[at.LEFT] > 0:
        return 0.0
    if request[at.FIRST] >= 0:
        return emit(machine, state, row)
    request[at.FIRST] = moment
    request[at.LATEST] = moment
    request[at.MADE] = 1.0
    request[at.CONTEXT] += 1.0
    state.now[at.KV] += 1.0
    counters[at.F] += 1
    counters[at.G] += 1
    counters[at.TTFT] += moment - request[at.CAME]
    counters[at.PROMPT_TOKENS] += request[at.PROMPT]
    state.first[int(state.now[at.FIRSTS])] = row
    state.now[at.FIRSTS] += 1
    return 1.0


@compiled
def finish(state: State, row: int) -> None:
    """End a request whose answer is complete."""
    state.req[row, at.ENDED] = state.now[at.NOW]
    state.now[at.KV] -= state.req[row, at.CONTEXT]
    state.counters[at.FINISHED] += 1
    state.counters[at.QUEUED] += state.req[row, at.SCHEDULED] - state.req[row, at.CAME]
    state.ended[int(state.now[at.ENDS])] = row
    state.now[at.ENDS] += 1
    send_home(state, row)


@compiled
def settle(machine: Machine, state: State, k: int, rested: bool) -> float:
    """Give every request of the step what it gains, draft for the next one, drop those that ended; returns tokens."""
    now, req = state.now, state.req
    total, kept = 0.0, 0
    for seat in range(int(now[at.RUNNING])):
        row = state.running[seat]
        tokens = 0.0
        if req[row, at.LEFT] > 0:
            if req[row, at.CHUNK] > 0:
                if rested:
                    req[row, at.GAPPED] += req[row, at.CHUNK]
                tokens = compute_prompt(machine, state, row)
        elif now[at.ALONE] == 0:
            tokens = emit(machine, state, row)
            if rested:
                req[row, at.GAPPED] += tokens
        total += tokens
        if tokens > 0:
            if req[row, at.MADE] >= req[row, at.OUT]:
                finish(state, row)
                continue
            req[row, at.DRAFT_K] = k
            found = machine.par[at.LOOKS_UP] == 0 or findable(machine, req[row])
            req[row, at.DRAFTED] = k if found else 0.0
        state.running[kept] = row
        kept += 1
    now[at.RUNNING] = kept
    return float(total)


@compiled
def book(machine: Machine, state: State, work: Floats, seconds: float, tokens: float) -> None:
    """Count the step that ended."""
    now, step = state.now, state.step
    requests = work[st.W_DECODING] + work[st.W_PROMPTS]
    step[at.S_K] = work[st.W_K] if work[st.W_DECODING] > 0 else now[at.ASKED_K]
    step[at.S_DECODING] = work[st.W_EMIT] + now[at.HOLDING]
    step[at.S_REQUESTS] = requests
    step[at.S_SECONDS] = now[at.NOW] - now[at.BEGAN]
    step[at.S_TOKENS] = tokens
    step[at.S_PROMPT] = work[st.W_PROMPT]
    if tokens > 0:
        state.counters[at.N] += 1
        size = min(math.ceil(math.log2(max(requests, 1.0))), at.SIZES - 1)
        cell = state.cells[int(work[st.W_K]), size]
        cell[at.C_STEPS] += 1
        cell[at.C_SECONDS] += seconds
        cell[at.C_REQUESTS] += requests
        cell[at.C_TOKENS] += tokens
        cell[at.C_PROMPT] += work[st.W_PROMPT]
    else:
        state.counters[at.LATE] += 1
    now[at.BEGAN] = now[at.NOW]
    if now[at.NOW] >= machine.par[at.WARM]:
        minute = state.minutes[min(int(now[at.NOW] / 60.0), len(state.minutes) - 1)]
        minute[at.M_TOKENS] += tokens
        minute[at.M_STEPS] += 1
        minute[at.M_BATCH] += work[st.W_EMIT]


@compiled
def catch_up(machine: Machine, state: State) -> float:
    """Tokens that the speculator computes of what it has missed, as many as a step may have."""
    total, most = 0.0, min(machine.par[at.TOKEN_BUDGET], at.CATCHING_TOKENS)
    for seat in range(int(state.now[at.RUNNING])):
        row = state.running[seat]
        tokens = min(state.req[row, at.GAPPED], most - total)
        state.req[row, at.GAPPED] -= tokens
        total += tokens
    return float(total)


@compiled
def carry_out(machine: Machine, state: State, k: int) -> None:
    """Run the planned step; `k` is drafted in it, OFF for nothing and no speculator."""
    now = state.now
    work = state.work
    measure(state, k)
    seconds = st.step_seconds(machine, work, now)
    missed = catch_up(machine, state) if k > 0 and machine.par[at.CATCHES_UP] > 0 else 0.0
    seconds += st.catching_seconds(machine.par, missed)
    state.step[at.S_BEHIND] = missed
    present = now[at.RUNNING] + now[at.TAIL] - now[at.HEAD]
    now[at.NOW] += seconds
    if now[at.NOW] >= machine.par[at.WARM]:
        minute = min(int(now[at.NOW] / 60.0), len(state.minutes) - 1)
        state.minutes[minute, at.M_RESIDENCE] += present * min(seconds, now[at.NOW] - machine.par[at.WARM])
    rested = st.rests(machine.par, work)
    k = max(k, 0)
    tokens = settle(machine, state, k, rested)
    book(machine, state, work, seconds, tokens)
    now[at.ASKED_K] = k
    now[at.PLANNED] = 0.0


@compiled
def find_work(machine: Machine, state: State, opened: int, until: float) -> int:
    """Plan a step, waiting for a request where none is there; IDLE when none comes before `until`."""
    now = state.now
    if now[at.PLANNED] > 0:
        return BUSY
    code = BUSY
    while not plan(machine, state, opened):
        coming = next_arrival(state, opened)
        if coming >= until:
            now[at.NOW] = max(now[at.NOW], until)
            return IDLE
        now[at.NOW] = max(now[at.NOW], coming)
        now[at.BEGAN] = now[at.NOW]
        code = WOKE
    return code


@compiled
def advance(machine: Machine, state: State, opened: int, k: int, until: float) -> int:
    """Carry out the planned step, drafting `k`, and plan the next."""
    carry_out(machine, state, k)
    return find_work(machine, state, opened, until)


@compiled
def serve(machine: Machine, state: State, opened: int, table: Ints, until: float) -> None:
    """Serve under a fixed table, K by decoding requests, until a moment."""
    while state.now[at.NOW] < until:
        if find_work(machine, state, opened, until) == IDLE:
            return
        key = min(int(state.now[at.DECODING] + state.now[at.HOLDING]), len(table) - 1)
        k = int(table[key])
        state.now[at.HELD] = state.now[at.HELD] + 1.0 if k == 0 else 0.0
        carry_out(machine, state, st.OFF if state.now[at.HELD] >= machine.par[at.RESTS_AFTER] else k)
