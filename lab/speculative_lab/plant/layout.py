"""Where each figure lies in the arrays that the compiled loops share. Arrays of floats, so that a call is cheap."""

from __future__ import annotations

# Of a request: what is drawn before the run, and is the same under every law.
ARRIVE = 0
"""Seconds; of a closed loop's requests the moment is found as the run goes."""
PROMPT = 1
"""Tokens to compute before the first answer token."""
PRIOR = 2
"""Tokens of context that are cached already: earlier turns."""
OUT = 3
"""Tokens of the answer."""
SKILL = 4
"""How well the speculator knows this text, in log-odds of a draft at the first position."""
MATCH = 5
"""Share of the text whose continuation can be looked up, for speculators that look up."""
SEED = 6
THINK = 7
"""Seconds between the end of this request and the next one of the same user."""
NEXT = 8
"""Row of the next request of the same user; -1 where requests come by themselves."""
# What happens to it.
LEFT = 9
"""Prompt tokens still to compute."""
MADE = 10
"""Answer tokens emitted."""
CONTEXT = 11
"""Tokens held in the KV cache."""
FIRST = 12
"""When its first token came; -1 before."""
LATEST = 13
"""When its latest token came."""
DRAFTED = 14
"""Drafts that wait to be verified."""
DRAFT_K = 15
"""K that they were made for."""
ENDED = 16
"""When its last token came; -1 before, -2 where it was rejected."""
CAME = 17
"""When it came."""
CHUNK = 18
"""Prompt tokens of it in the step that is planned."""
USER = 19
SCHEDULED = 20
"""When it first was part of a step; -1 before."""
GAPPED = 21
"""Its tokens that were computed while the speculator was left out, and that it has not caught up with."""
REQUEST_FIELDS = 22

# Of a replica's world, constant.
SEATS = 0
CHUNK_BUDGET = 1
TOKEN_BUDGET = 2
PROMPTS_AT_ONCE = 3
PROMPTS_ALONE = 4
QUEUE_LIMIT = 5
KV_CAPACITY = 6
SOFT = 7
"""Draft passes at K = 0."""
LOOKS_UP = 8
DECAY = 9
SEGMENT_BITS = 10
SEGMENT_SD = 11
REGIME = 12
"""Log-odds between the easy and the hard stretches of a text."""
SHIFT_AT = 13
SHIFT_BY = 14
"""Log-odds by which drafts are easier from SHIFT_AT until SHIFT_END, in seconds."""
CONTEXT_SLOPE = 15
DENSE_SECONDS = 16
EXPERT_SECONDS = 17
EXPERT_HALF = 18
TOKEN_SECONDS = 19
KNEE = 20
CONTEXT_SECONDS = 21
CONTEXT_PER_DRAFT = 22
PROMPT_CONTEXT = 23
REQUEST_SECONDS = 24
HOST_SECONDS = 25
HOST_REQUEST = 26
HOST_HIDDEN = 27
CEILING = 28
EAGER_SECONDS = 29
MIXED_SECONDS = 30
TILE = 31
DRAFT_BASE = 32
DRAFT_PASS = 33
DRAFT_PASS_REQUEST = 34
DRAFT_BLOCK = 35
"""1 where one pass drafts all."""
DRAFT_PROMPT = 36
NOISE = 37
TAIL_SHARE = 38
TAIL_SIZE = 39
PERSISTENCE = 40
SPELL_SECONDS = 41
"""Length of one entry of the neighbour's spells."""
NOISE_SEED = 42
WARM = 43
"""Seconds from which speed counts."""
STALL_SHARE = 44
STALL_SECONDS = 45
RESTS_AFTER = 46
"""Steps at K = 0 after which the speculator is left out; infinite where it never is."""
GAP_COST = 47
"""Log-odds of a draft that it costs where the speculator has seen nothing of a request, a part of it in proportion."""
CATCHES_UP = 48
"""1 where the speculator is left out of steps with prompts too, and computes what it has missed before it drafts."""
SHIFT_END = 49
SKIPS_PROMPTS = 50
"""1 where the speculator is left out of steps with prompts too, and never computes what it has missed."""
PARAMETERS = 51
CATCHING_TOKENS = 2048.0
"""The most that it computes of them in a step."""

# Of a replica's state.
NOW = 0
RUNNING = 1
HEAD = 2
TAIL = 3
OPEN = 4
"""Next row of the requests that come by themselves."""
DUE = 5
"""When the next user of the closed loop comes back."""
KV = 6
DRIFT = 7
"""State of the noise that persists."""
STEP = 8
BEGAN = 9
"""End of the step before, or when the idle engine took up work."""
DECODING = 10
"""Requests of the planned step that emit."""
PLANNED_PROMPT = 11
PLANNED = 12
"""1 while a step is planned."""
ALONE = 13
"""1 while the planned step computes prompts alone."""
ENDS = 14
"""Requests that ended, rejected ones left out."""
FIRSTS = 15
"""Requests that got a first token."""
ASKED_K = 16
"""K that was drafted in the step before the planned one."""
HOLDING = 17
"""Decoding requests that sit a step of prompts out, and verify their drafts after it."""
HELD = 18
"""Steps in a row at K = 0, under a fixed table."""
STATE = 19

# Counters, as the engine exports them.
N = 0
R = 1
I = 2  # noqa: E741
F = 3
G = 4
PROMPT_TOKENS = 5
D = 6
T = 7
A = 8
PREEMPTED = 9
FINISHED = 10
TTFT = 11
REJECTED = 12
CAME_IN = 13
LATE = 14
"""Steps whose output had not one token, which the engine does not count."""
QUEUED = 15
"""Seconds from coming to being scheduled, of requests that ended."""
COUNTERS = 16

# Of a cell (K, size) and of the step that ended.
C_STEPS = 0
C_SECONDS = 1
C_REQUESTS = 2
C_TOKENS = 3
C_PROMPT = 4
CELL_FIELDS = 5
SIZES = 12
"""Powers of two: 1, 2, 4, ... 1024, beyond."""

S_K = 0
S_DECODING = 1
S_REQUESTS = 2
S_SECONDS = 3
S_TOKENS = 4
S_PROMPT = 5
S_PERIODS = 6
S_BEHIND = 7
"""Tokens that the speculator caught up with in it."""
STEP_FIELDS = 8

# Of a minute.
M_TOKENS = 0
M_RESIDENCE = 1
M_STEPS = 2
M_BATCH = 3
M_PERIODS = 4
"""Seconds between tokens of a request, over all of them; `M_FURTHER`: tokens after the first."""
M_FURTHER = 5
MINUTE_FIELDS = 6
