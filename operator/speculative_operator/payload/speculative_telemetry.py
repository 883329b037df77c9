"""What each step of the engine had: K, batch, seconds, tokens, drafts by position. Counted here, served as metrics.

Mounted beside `speculative_scheduler`, which calls `Meter` around every step. Standard library alone. Counting costs
the engine's thread some microseconds a step and takes no lock; text is made by the thread of `speculative_port`, when
somebody asks. Names and meanings: docs/metrics.md, "Step telemetry of the payload".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import add, attrgetter
from typing import Any

LARGEST_BUCKET = 1024
PAUSE_SECONDS = 1.0
"""Nobody scheduled for this long with no step under way: the engine was paused, and the time is no step's."""

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
            lengths, known = list(map(len, drafts.values())), plan.scheduled_cached_reqs.num_output_tokens
            of_outputs = len(known) - known.count(0)  # those that have an output token already
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
        key = (k, 1 << (batch - 1).bit_length() if batch <= LARGEST_BUCKET else LARGEST_BUCKET + 1)
        steps, before, requests, emitted, prompt = self.cells.get(key, (0, 0.0, 0, 0, 0))
        self.cells[key] = (steps + 1, before + seconds, requests + batch, emitted + tokens, prompt + prefill)
        return (made_for if prompts_alone else k), decoding, batch, seconds, tokens, prefill

    def _add_drafts(self, k: int, drafted: Iterable[int], accepted: Iterable[int]) -> None:
        """vLLM's own figures of the step: it has left out what grammars forbade and requests that had ended."""
        held = self.positions.get(k)
        if held is not None:
            drafted, accepted = map(add, held[0], drafted), map(add, held[1], accepted)
        self.positions[k] = (tuple(drafted), tuple(accepted))


_PREFIX = "speculative_payload_"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_FAMILIES = (
    ("info", "Whether this engine re-reads its table of K, and why not.", "info", 0),
    ("off", "Parts of the payload that have turned themselves off, and why.", "off", 0),
    ("table_version", "Version of the table of K in force.", "table", 0),
    ("table_applied_timestamp_seconds", "When it came into force.", "table", 1),
    ("drafter_off", "Whether steps are off: K = 0 has lasted, and no speculator is needed.", "latch", 0),
    ("drafter_off_steps_total", "Steps scheduled so.", "latch", 1),
    ("drafter_rested_steps_total", "Steps in which the first worker left the speculator out.", "latch", 2),
    ("requests_with_gaps", "Requests of which the speculator has not seen all.", "latch", 3),
    ("gapped_drafted_tokens_total", "Drafts of requests that lived through off.", "ages", 0),
    ("gapped_accepted_tokens_total", "Those that were accepted.", "ages", 1),
    ("steps_total", "Engine steps that emitted tokens, by the K verified and the scheduled requests.", "cells", 0),
    ("step_seconds_total", "Wall time of these steps, from the end of the step before.", "cells", 1),
    ("requests_total", "Scheduled requests, added up over these steps.", "cells", 2),
    ("tokens_total", "Tokens emitted in these steps.", "cells", 3),
    ("prefill_tokens_total", "Prompt tokens computed in these steps.", "cells", 4),
    ("drafted_tokens_total", "Draft tokens verified at a position in steps of that K.", "positions", 0),
    ("accepted_tokens_total", "Those that were accepted.", "positions", 1),
    ("tried_blocks_total", "Tried blocks that were compared.", "blocks", 0),
    ("tried_seconds_square_total", "Squared differences of log seconds of a step, to the blocks beside.", "blocks", 3),
    ("tried_tokens_square_total", "Squared differences of log(tokens / requests), to the blocks beside.", "blocks", 4),
    ("tried_steps_total", "Steps of tried blocks that were compared, and of the blocks beside them.", "sides", 0),
    ("tried_step_seconds_total", "Wall time of these steps.", "sides", 1),
    ("tried_requests_total", "Scheduled requests, added up over these steps.", "sides", 2),
    ("tried_request_seconds_total", "Wall time of each of these steps times its scheduled requests.", "sides", 3),
    ("tried_tokens_total", "Tokens emitted in these steps.", "sides", 4),
    ("tried_decode_steps_total", "Those of these steps that computed no prompt tokens.", "sides", 5),
    ("tried_decode_step_seconds_total", "Wall time of those.", "sides", 6),
)
"""Name, meaning, and which figure of which rows of `_rows` they tell."""


def exposition(state: Any) -> str:
    """Prometheus text of everything that the scheduler's `state` holds. An engine without requests looks at no table by
    itself: it does so now."""
    state.look()
    lines, rows = [], _rows(state)
    for name, meaning, kind, place in _FAMILIES:
        if rows[kind]:
            lines.append(f"# HELP {_PREFIX}{name} {meaning}")
            lines.append(f"# TYPE {_PREFIX}{name} {'counter' if name.endswith('_total') else 'gauge'}")
        for labels, figures in rows[kind]:
            written = ",".join(f'{label}="{str(value).translate(_ESCAPES)}"' for label, value in labels.items())
            lines.append(f"{_PREFIX}{name}{'{' * bool(written)}{written}{'}' * bool(written)} {figures[place]}")
    return "\n".join([*lines, ""])


def _rows(state: Any) -> Mapping[str, Sequence[tuple[Mapping[str, object], Sequence[Any]]]]:
    """Labels and figures by kind: every figure of one row is of one moment."""
    info = {
        "live": str(state.file is not None).lower(), "engine_version": state.engine_version,
        "proven": str(state.proven).lower(), "scheduler": state.scheduler, "reason": state.reason,
    }  # fmt: skip
    meter, latch, tried, keys = state.meter, state.latch, state.blocks, ("k", "against", "first", "last")
    compared = sorted(dict(tried.comparisons).items()) if tried else []
    blocks = [(dict(zip(keys, key, strict=True)), figures) for key, figures in compared]
    return {
        "info": [(info, (1,))],
        "off": [({"part": part, "reason": why}, (1,)) for part, why in sorted(state.ended)],
        "table": [({}, (state.table[0], f"{state.table[1]:.6f}"))] if state.table else [],
        "latch": [({}, (int(latch.off), latch.steps, latch.rested, latch.gaps))] if latch else [],
        "ages": [({"age": age}, counts) for age, counts in latch.drafts.items()] if latch else [],
        "cells": [
            ({"k": k, "batch": "+Inf" if bucket > LARGEST_BUCKET else bucket}, cell)
            for (k, bucket), cell in (sorted(dict(meter.cells).items()) if meter else ())
        ],
        "positions": [
            ({"k": k, "position": position}, counts)
            for k, found in (sorted(dict(meter.positions).items()) if meter else ())
            for position, counts in enumerate(zip(*found, strict=True))
            if counts[0]
        ],
        "blocks": blocks,
        "sides": [
            ({**labels, "side": side}, figures[place])
            for labels, figures in blocks
            for place, side in ((1, "tried"), (2, "beside"))
        ],
    }
