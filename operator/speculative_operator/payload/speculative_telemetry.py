"""What each step of the engine had: K, batch, seconds, tokens, drafts by position. Counted here, served as metrics.

Mounted beside `speculative_scheduler`, which calls `Meter` around every step. Standard library alone, Python 3.9 and
newer. Counting costs the engine's thread some microseconds a step and takes no lock; text is made by the thread of
`speculative_port`, when somebody asks. Names and meanings: docs/metrics.md, "Step telemetry of the payload".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import add, attrgetter
from typing import Any

LARGEST_BUCKET = 1024
PAUSE_SECONDS = 1.0
"""Nobody scheduled for this long with no step under way: the engine was paused, and the time is no step's."""

_BUCKETS = [1 << (batch - 1).bit_length() for batch in range(LARGEST_BUCKET + 1)]
_new_tokens = attrgetter("new_token_ids")

Cell = tuple[int, float, int, int, int]
"""Steps, seconds, requests, tokens, prompt tokens."""
Step = tuple[int, int, int, float, int, int]
"""K, decoding requests, scheduled requests, seconds, tokens, prompt tokens. K is what was verified; of a step in which
nobody could have drafts, since prompts alone ran, what was asked for when the step before was scheduled."""
Positions = tuple[tuple[int, ...], tuple[int, ...]]
"""Drafted and accepted by position."""


class Meter:
    """Counts steps by (K, batch bucket) and drafts by (K, position).

    Written by the engine's thread alone. Every figure that belongs together is one tuple, replaced in one store: a
    reader in another thread sees it before or after a step, never between, without a lock.

    `ks` are the K of the boot schedule: no other becomes a label. `varied` where a request may have fewer drafts than
    the table says (n-gram, suffix): then K is what the table said when the drafts were made, else what was verified.
    """

    def __init__(self, ks: Iterable[int], varied: bool, clock: Callable[[], float] = time.perf_counter) -> None:
        self.cells: dict[tuple[int, int], Cell] = {}
        self.positions: dict[int, Positions] = {}
        known = sorted(set(ks)) or [0]
        # a draft that was cut short (end of the context) belongs to the K it was made for
        self._label = [next((k for k in known if k >= length), known[-1]) for length in range(known[-1] + 1)]
        self._varied = varied
        self.clock = clock
        self._began: float | None = None
        self._under_way: dict[int, tuple[int, int]] = {}
        """Identity of a scheduler output -> K that its drafts were made with, and its decoding requests. Outputs lag
        with async scheduling."""
        self._next_k = 0

    def scheduling(self) -> None:
        """A step is about to be scheduled. The clock of a step runs from the end of the one before while there is work,
        so that what lies between (drafting above all) counts; here it starts only after idleness."""
        now = self.clock()
        if self._began is None or (not self._under_way and now - self._began > PAUSE_SECONDS):
            self._began = now

    def scheduled(self, plan: Any, decoding: int = 0) -> None:
        """`plan` is the scheduler output that `finished` will be called with, one or more steps later."""
        if len(self._under_way) > 64:  # outputs that never came: a failed step
            self._under_way.clear()
        self._under_way[id(plan)] = (self._next_k, decoding)
        if plan.num_scheduled_tokens:
            self._next_k = plan.num_spec_tokens_to_schedule

    def finished(self, plan: Any, outputs: Any, busy: bool) -> Step | None:
        """`outputs` is what vLLM's `update_from_output` gave for `plan`; `busy` while requests remain.

        Returns the step that was counted; None where none was.
        """
        now = self.clock()
        began, self._began = self._began, (now if busy else None)
        made_for, decoding = self._under_way.pop(id(plan), (0, 0))
        tokens, stats = 0, None
        for client in outputs.values():
            tokens += sum(map(len, map(_new_tokens, client.outputs)))  # no Python code for each request
            if client.scheduler_stats is not None:
                stats = client.scheduler_stats.spec_decoding_stats
        if not tokens and stats is None:
            return None
        batch, drafts, prompts_alone = len(plan.num_scheduled_tokens), plan.scheduled_spec_decode_tokens, False
        further = plan.total_num_scheduled_tokens - batch
        if made_for and len(drafts) == batch and further == batch * made_for and made_for < len(self._label):
            k, prefill = self._label[made_for], 0  # every request verifies as many drafts as were asked for
        else:
            lengths, of_outputs = list(map(len, drafts.values())), _decoding(plan)
            k = self._label[min(max(lengths), len(self._label) - 1)] if lengths else 0
            prompts_alone = not of_outputs
            if made_for > k and self._varied and (lengths or of_outputs):
                k = made_for
            # a decoding request gets a token and its drafts, everything else is prompt
            prefill = max(0, plan.total_num_scheduled_tokens - of_outputs - sum(lengths))
        if stats is not None:
            self._add_drafts(k, stats.num_draft_tokens_per_pos, stats.num_accepted_tokens_per_pos)
        if not tokens or began is None:
            return None
        seconds = now - began
        key = (k, _BUCKETS[batch] if batch < len(_BUCKETS) else LARGEST_BUCKET + 1)
        steps, before, requests, emitted, prompt = self.cells.get(key, (0, 0.0, 0, 0, 0))
        self.cells[key] = (steps + 1, before + seconds, requests + batch, emitted + tokens, prompt + prefill)
        return (made_for if prompts_alone else k), decoding, batch, seconds, tokens, prefill

    def _add_drafts(self, k: int, drafted: Iterable[int], accepted: Iterable[int]) -> None:
        """vLLM's own figures of the step: it has left out what grammars forbade and requests that had ended."""
        held = self.positions.get(k)
        if held is not None:
            drafted, accepted = map(add, held[0], drafted), map(add, held[1], accepted)
        self.positions[k] = (tuple(drafted), tuple(accepted))


def _decoding(plan: Any) -> int:
    """Scheduled requests that have an output token already."""
    outputs: list[int] = plan.scheduled_cached_reqs.num_output_tokens
    return len(outputs) - outputs.count(0)


class State:
    """What is told beside the counters. Plain attributes, set by whoever knows."""

    def __init__(self, engine_version: str, proven: bool = True) -> None:
        self.engine_version, self.proven = engine_version, proven
        self.scheduler = "none"
        self.live = False
        self.reason = ""
        """Why tables are not re-read; empty while they are."""
        self.off: dict[str, str] = {}
        """Part of the payload that has turned itself off (see `_PARTS` of the scheduler) -> the error that it met."""
        self.table: tuple[int, float] | None = None
        """Version in force and the unix time since when."""
        self.meter: Meter | None = None
        self.comparisons: Mapping[tuple[int, int, int, int], tuple[Any, ...]] = {}
        """Of `speculative_blocks`: (K, K in force, first, last) -> blocks, tried, beside, two sums of squares."""
        self.latch: Any = None
        """Of `speculative_off`; None where steps are never off."""
        self.rested = 0
        """Steps in which the first worker left the speculator's pass out."""
        self.look: Callable[[], object] | None = None
        """Called before a text is made, so that a table is taken and acknowledged by an engine without requests too."""


_STEP_FAMILIES = (
    ("steps", "Engine steps that emitted tokens, by the K verified and the scheduled requests."),
    ("step_seconds", "Wall time of these steps, from the end of the step before."),
    ("requests", "Scheduled requests, added up over these steps."),
    ("tokens", "Tokens emitted in these steps."),
    ("prefill_tokens", "Prompt tokens computed in these steps."),
)
_TRIED_FAMILIES = (
    ("steps", "Steps of tried blocks that were compared, and of the blocks beside them."),
    ("step_seconds", "Wall time of these steps."),
    ("requests", "Scheduled requests, added up over these steps."),
    ("request_seconds", "Wall time of each of these steps times its scheduled requests."),
    ("tokens", "Tokens emitted in these steps."),
    ("decode_steps", "Those of these steps that computed no prompt tokens."),
    ("decode_step_seconds", "Wall time of those."),
)
_PREFIX = "speculative_payload_"


def scraped(state: State) -> str:
    """What a scraper is given. An engine without requests looks at no table by itself: it does so now."""
    if state.look is not None:
        state.look()
    return exposition(state)


def exposition(state: State) -> str:
    """Prometheus text of everything that `state` holds."""
    told = (_info(state), _off(state), _table(state), _latch(state), _counters(state.meter), _tried(state))
    return "\n".join([*(line for lines in told for line in lines), ""])


def _info(state: State) -> Iterator[str]:
    yield from _head("info", "gauge", "Whether this engine re-reads its table of K, and why not.")
    labels = {
        "live": str(state.live).lower(),
        "engine_version": state.engine_version,
        "proven": str(state.proven).lower(),
        "scheduler": state.scheduler,
        "reason": state.reason,
    }
    yield f"{_PREFIX}info{{{','.join(f'{name}={_quoted(value)}' for name, value in labels.items())}}} 1"


def _off(state: State) -> Iterator[str]:
    parts = sorted(dict(state.off).items())
    if parts:
        yield from _head("off", "gauge", "Parts of the payload that have turned themselves off, and why.")
    for part, why in parts:
        yield f"{_PREFIX}off{{part={_quoted(part)},reason={_quoted(why)}}} 1"


def _table(state: State) -> Iterator[str]:
    table = state.table
    if table is None:
        return
    yield from _head("table_version", "gauge", "Version of the table of K in force.")
    yield f"{_PREFIX}table_version {table[0]}"
    yield from _head("table_applied_timestamp_seconds", "gauge", "When it came into force.")
    yield f"{_PREFIX}table_applied_timestamp_seconds {table[1]:.6f}"


def _latch(state: State) -> Iterator[str]:
    """K = 0 that has lasted, and what the workers left out for it."""
    latch = state.latch
    if latch is None:
        return
    yield from _head("drafter_off", "gauge", "Whether steps are off: K = 0 has lasted, and no speculator is needed.")
    yield f"{_PREFIX}drafter_off {int(latch.off)}"
    yield from _head("drafter_off_steps_total", "counter", "Steps scheduled so.")
    yield f"{_PREFIX}drafter_off_steps_total {latch.steps}"
    yield from _head("drafter_rested_steps_total", "counter", "Steps in which the first worker left it out.")
    yield f"{_PREFIX}drafter_rested_steps_total {state.rested}"
    yield from _head("requests_with_gaps", "gauge", "Requests of which the speculator has not seen all.")
    yield f"{_PREFIX}requests_with_gaps {latch.gaps}"
    for place, name in enumerate(("drafted", "accepted")):
        yield from _head(f"gapped_{name}_tokens_total", "counter", f"Drafts {name} of requests that lived through off.")
        for age, counts in latch.drafts.items():
            yield f'{_PREFIX}gapped_{name}_tokens_total{{age="{age}"}} {counts[place]}'


def _counters(meter: Meter | None) -> Iterator[str]:
    if meter is None:
        return
    cells = sorted(dict(meter.cells).items())
    for place, (name, meaning) in enumerate(_STEP_FAMILIES):
        yield from _head(f"{name}_total", "counter", meaning)
        for (k, bucket), figures in cells:
            upper = "+Inf" if bucket > LARGEST_BUCKET else str(bucket)
            yield f'{_PREFIX}{name}_total{{k="{k}",batch="{upper}"}} {figures[place]!r}'
    positions = sorted(dict(meter.positions).items())
    for side, name in enumerate(("drafted", "accepted")):
        yield from _head(f"{name}_tokens_total", "counter", f"Draft tokens {name} at a position in steps of that K.")
        for k, counts in positions:
            for position, drafted in enumerate(counts[0]):
                if drafted:
                    labels = f'k="{k}",position="{position}"'
                    yield f"{_PREFIX}{name}_tokens_total{{{labels}}} {counts[side][position]}"


def _tried(state: State) -> Iterator[str]:
    """Tried blocks beside blocks at the K in force."""
    found = [
        (f'k="{k}",against="{against}",first="{first}",last="{last}"', figures)
        for (k, against, first, last), figures in sorted(dict(state.comparisons).items())
    ]
    if not found:
        return
    alone = (
        (0, "blocks", "Tried blocks that were compared."),
        (3, "seconds_square", "Squared differences of log seconds of a step, of a tried block and those beside it."),
        (4, "tokens_square", "Squared differences of log(tokens / requests) of a tried block and those beside it."),
    )
    for place, name, meaning in alone:
        yield from _head(f"tried_{name}_total", "counter", meaning)
        for labels, figures in found:
            yield f"{_PREFIX}tried_{name}_total{{{labels}}} {figures[place]!r}"
    for place, (name, meaning) in enumerate(_TRIED_FAMILIES):
        yield from _head(f"tried_{name}_total", "counter", meaning)
        for labels, figures in found:
            yield f'{_PREFIX}tried_{name}_total{{{labels},side="tried"}} {figures[1][place]!r}'
            yield f'{_PREFIX}tried_{name}_total{{{labels},side="beside"}} {figures[2][place]!r}'


def _head(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {meaning}"
    yield f"# TYPE {_PREFIX}{name} {kind}"


def _quoted(value: str) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
