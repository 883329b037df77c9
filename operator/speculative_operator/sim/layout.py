"""Places of every figure in the kernel's arrays. Shared by `kernel`, `state`, `deployment` and `exposition`.

Compiled code knows arrays, not objects: a request is a row of `request_ints` and `request_floats`, a replica a row of
`replica_ints`, `replica_floats` and `counters`. Plain module constants, because the compiler folds them.
"""

from __future__ import annotations

# request_ints
PROMPT = 0
TARGET = 1
"""Output tokens at which the request ends."""
GENERATED = 2
TODO = 3
"""Prompt tokens (after a preemption also own output) still to compute; 0 while decoding."""
CONTEXT = 4
"""Tokens whose KV is computed."""
DRAFTS = 5
"""Draft tokens to verify in the next step."""
HELD = 6
"""KV tokens reserved, a multiple of the block size."""
GRANT = 7
"""Tokens given in the step under way."""
RUN = 8
"""Drafts in a row that the verifier would still accept."""
NEXT = 9
"""Request behind this one in its queue, or next free row; -1 at the end."""
ROW = 10
"""Row of the workload that this request came from."""
REQUEST_INTS = 11

# request_floats
ARRIVAL = 0
FIRST = 1
"""Time of the first token; negative until then."""
LAST = 2
"""Time of the newest token."""
SHARE = 3
"""Share of its steps with a draft."""
MIX = 4
"""Share of its runs of the first kind."""
LONG = 5
"""1 / ln p of the first kind of runs; 0 for p = 0."""
SHORT = 6
"""The same of the second kind."""
REQUEST_FLOATS = 7

# replica_ints
SIZE = 0
"""Running requests."""
WAITING = 1
HEAD = 2
"""First request of the queue, -1 when empty."""
TAIL = 3
USED = 4
"""KV tokens reserved by running requests."""
POOL = 5
"""KV tokens there are."""
READY = 6
"""1 while the replica serves."""
OFF = 7
"""1 when it runs without drafter."""
VERIFIED_K = 8
"""K at which the drafts that the step under way verifies were made."""
NEXT_K = 9
"""K at which this step drafts."""
SCHEDULED = 10
DECODING = 11
PREFILL = 12
ATTENDED = 13
"""KV tokens that the decoding requests of the step under way read."""
LOGGED = 14
"""Steps written to the log since it was drained."""
REPLICA_INTS = 15

# replica_floats
CLOCK = 0
"""End of the step under way; infinite when idle or away."""
STARTED = 1
"""Start of the step under way."""
REPLICA_FLOATS = 2

# counters, as vLLM counts them
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

# whole_ints
NEXT_ARRIVAL = 0
ALIVE = 1
"""Requests in the system, queued or running."""
WANTED = 2
"""Closed loop: requests that there should be; -1 in an open loop."""
POOL_FIRST = 3
POOL_STOP = 4
POOL_NEXT = 5
FREE = 6
"""First free request row, -1 when there is none."""
ENDED = 7
"""Requests written to the log of finished ones since it was drained."""
ROUTER_HEAD = 8
"""Queue of requests that no replica is ready for."""
ROUTER_TAIL = 9
TURN = 10
"""Replica that wins the next tie, or has the next turn."""
ROUND_ROBIN = 11
"""1: replicas in turn; 0: the one with the fewest requests."""
WHOLE_INTS = 12

# whole_floats
SINCE = 0
"""Time up to which `ALIVE_SECONDS` is summed."""
ALIVE_SECONDS = 1
FACTOR = 2
"""Drift: share of runs that still start; the others have length 0."""
TOKENS = 3
"""Output tokens delivered, those of lost answers taken off."""
LOST = 4
"""Output tokens of answers that a restart cut off."""
WHOLE_FLOATS = 5

# limits
SEATS = 0
BUDGET = 1
BLOCK = 2
LOOKAHEAD = 3
"""Slots reserved for drafts of every request: the largest K."""
LIMITS = 4

# columns of the log of finished requests
END_TIME = 0
END_ARRIVAL = 1
END_FIRST = 2
END_LAST = 3
END_TOKENS = 4
END_ROW = 5
END_COLUMNS = 6

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
LOG_BY_ACCEPTED = 13

# why the kernel returned
DONE = 0
REQUESTS_FULL = 1
ENDED_FULL = 2
