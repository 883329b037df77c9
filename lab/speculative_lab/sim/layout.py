"""Records and places of the kernel's arrays. Shared by `kernel`, `replica`, `deployment` and `exposition`.

Compiled code knows records and arrays, not objects. A request and a replica are records; what vLLM counts is an array
of floats per replica, with plain module constants as places, because the compiler folds them.
"""

from __future__ import annotations

import numpy as np

REQUEST = np.dtype(
    [
        ("arrival", "f8"),
        ("queued", "f8"),  # time at which its replica took it in
        ("first", "f8"),  # time of the first token, negative until then
        ("last", "f8"),  # time of the newest token
        ("share", "f8"),  # share of its steps with a draft
        ("mix", "f8"),  # share of its runs of the first kind
        ("long", "f8"),  # 1 / ln p of the first kind of runs; 0 for p = 0
        ("short", "f8"),  # the same of the second kind
        ("prompt", "i4"),
        ("target", "i4"),  # output tokens at which it ends
        ("generated", "i4"),
        ("todo", "i4"),  # prompt tokens (after a preemption also own output) still to compute; 0 while decoding
        ("context", "i4"),  # tokens whose KV is computed
        ("drafts", "i4"),  # draft tokens to verify in the next step
        ("held", "i4"),  # KV tokens reserved, a multiple of the block size
        ("grant", "i4"),  # tokens given in the step under way
        ("run", "i4"),  # drafts in a row that the verifier would still accept
        ("next", "i4"),  # request behind it in its queue, or next free row; -1 at the end
        ("row", "i4"),  # row of the workload that it came from
        ("accepted", "i4"),  # drafts accepted in its newest step; -1 when it had none
    ]
)
DRAWN = ("share", "mix", "long", "short")
"""Columns of `drafts.draws`."""

REPLICA = np.dtype(
    [
        ("clock", "f8"),  # end of the step under way; infinite when idle or away
        ("started", "f8"),  # start of the step under way
        ("active", "i8"),  # running requests
        ("waiting", "i8"),
        ("head", "i8"),  # first request of the queue, -1 when empty
        ("tail", "i8"),
        ("used", "i8"),  # KV tokens reserved by running requests
        ("pool", "i8"),  # KV tokens there are
        ("ready", "i8"),  # 1 while it serves
        ("off", "i8"),  # 1 when it runs without drafter
        ("k", "i8"),  # K of the drafts that the step under way verifies
        ("next_k", "i8"),  # K at which this step drafts
        ("scheduled", "i8"),  # requests given tokens in the step under way
        ("decoding", "i8"),  # those of them that decode
        ("ending", "i8"),  # those of them whose prompt the step ends: they get a token, as those that decode do
        ("tokens", "i8"),  # tokens that these decode
        ("attended", "i8"),  # KV tokens that these read
        ("prefill", "i8"),  # prompt tokens of the step under way
        ("request_steps", "i8"),  # what the step that ends counts: tokens after the first, by request
        ("step_seconds", "f8"),  # their distances in time
        ("first_tokens", "i8"),
        ("first_seconds", "f8"),
        ("prompts", "i8"),  # prompt tokens of requests that got their first token
        ("generation", "i8"),
        ("draft_tokens", "i8"),
        ("finished", "i8"),
        ("logged", "i8"),  # steps written to the log since it was drained
    ]
)

WHOLE = np.dtype(
    [
        ("since", "f8"),  # time up to which alive_seconds is summed
        ("alive_seconds", "f8"),
        ("factor", "f8"),  # drift: share of runs that still start; the others have length 0
        ("tokens", "f8"),  # output tokens delivered, those of lost answers taken off
        ("lost", "f8"),  # output tokens of answers that a restart cut off
        ("next_arrival", "i8"),
        ("alive", "i8"),  # requests in the system, queued or running
        ("wanted", "i8"),  # closed loop: requests that there should be; -1 in an open loop
        ("pool_first", "i8"),
        ("pool_stop", "i8"),
        ("pool_next", "i8"),
        ("free", "i8"),  # first free request row, -1 when there is none
        ("ended", "i8"),  # requests written to the log of ended ones since it was drained
        ("head", "i8"),  # queue of requests that no replica is ready for
        ("tail", "i8"),
        ("turn", "i8"),  # replica that wins the next tie, or has the next turn
        ("random", "u8"),  # state of the random generator, never 0
        ("in_turn", "i8"),  # 1: replicas in turn; 0: the one with the fewest requests
        ("plugged", "i8"),  # 1: K is what the plug-in says; 0: what the table says for the requests scheduled
        ("trying", "i8"),  # 1: the plug-in is told every step; 0: nothing is tried, and it need not be
    ]
)

LIMITS = np.dtype(
    [
        ("seats", "i8"),
        ("budget", "i8"),  # tokens of one step
        ("block", "i8"),
        ("ahead", "i8"),  # slots reserved for drafts of every request: the largest K
    ]
)

RATES = np.dtype(
    [
        ("token", "f8"),  # seconds per prompt token
        ("kv", "f8"),  # seconds per KV token of the decoding requests
        ("experts", "f8"),  # seconds to read all experts
        ("missed", "f8"),  # share of the experts that one token misses
        ("sigma", "f8"),  # standard deviation of the logarithm of a step's noise
        ("crowded", "f8"),  # factor on a step while a neighbour is at work
        ("crowd", "f8"),  # share of the spells in which it is
        ("spell", "f8"),  # seconds of each
    ]
)

ENDED = np.dtype([("end", "f8"), ("arrival", "f8"), ("first", "f8"), ("last", "f8"), ("tokens", "i8"), ("row", "i8")])

# counters of a replica, as vLLM counts
STEPS = 0
STEP_TOKENS = 1
REQUEST_STEPS = 2
STEP_SECONDS = 3
FIRST_TOKENS = 4
FIRST_SECONDS = 5
GENERATION = 6
PROMPTS = 7
PREEMPTIONS = 8
FINISHED = 9
DRAFTED = 10
DRAFT_TOKENS = 11
ACCEPTED = 12
BUSY_SECONDS = 13
"""Time spent in steps: no metric of vLLM's, for tests and scores."""
BY_ACCEPTED = 14
"""From here on: drafted request-steps that had 0, 1, 2, ... drafts accepted."""

# what the payload counts of steps, by K and by bucket of scheduled requests: powers of two up to 1024, then the rest
CELL_STEPS = 0
CELL_SECONDS = 1
CELL_REQUESTS = 2
CELL_TOKENS = 3
CELL_PREFILL = 4
CELL_FIGURES = 5
BUCKETS = 12

# histograms of latency of a replica: bounds as vLLM 0.32 has them
TTFT = 0
TPOT = 1
TPOT_BOUNDS = np.array(
    (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
)
TTFT_BOUNDS = np.array((0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, *TPOT_BOUNDS[10:], 160, 640, 2560))
LATENCY_SUM = len(TTFT_BOUNDS) + 1
"""Place after the largest number of buckets: seconds added up."""

# columns of the step log
LOG_END = 0
LOG_SECONDS = 1
LOG_BATCH = 2
LOG_SCHEDULED = 3
LOG_K = 4
LOG_NEXT_K = 5
LOG_DRAFTED = 6
LOG_DRAFT_TOKENS = 7
LOG_ACCEPTED = 8
LOG_EMITTED = 9
LOG_CONTEXT = 10
LOG_PREFILL = 11
LOG_WAITING = 12
LOG_SAMPLED = 13
LOG_BY_ACCEPTED = 14

# why the kernel returned
DONE = 0
REQUESTS_FULL = 1
ENDED_FULL = 2
