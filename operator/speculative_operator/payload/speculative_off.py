"""When the speculator is left out: K = 0 has lasted or is tried, and the workers are told that no drafts are wanted.

Mounted beside `speculative_scheduler`, which asks `Latch` at each step; `speculative_worker` does what it says. At K =
0 vLLM still runs the speculator's first pass, a tenth to a fifth of a step. Leaving it out leaves a gap in what the
speculator has seen of the requests that run. So K = 0 of the table must have lasted: what flaps at a threshold stays
with vLLM's own. Where the speculator catches up, no gap remains, and a few steps suffice. A block of steps in which K =
0 is tried is off at once: its gap is short, and what is compared is what K = 0 would be. Standard library alone.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

SOON = 8
"""Steps after which K = 0 becomes off where the speculator catches up: it computes later what it leaves out, and only
for requests that still run. vLLM's own K = 0 costs most just then, while the load climbs: it takes in every prompt."""
AGES = (32, 128, 512)
"""Tokens that a request with a gap has generated since drafts returned, up to which its drafts are counted together;
further ones are counted apart."""
VARIABLE = "SPECULATIVE_OFF_STEPS"
"""Names the steps after which K = 0 becomes off. Without it nothing is ever left out."""


class Latch:
    """Whether steps are off. Every method is called by the engine's thread."""

    def __init__(self, steps: int) -> None:
        if steps < 1:
            raise ValueError(f"{VARIABLE} must be 1 or more, not {steps}")
        self._needed = steps
        self._held = 0
        """Steps in a row for which K in force was 0, off or not."""
        self.off = self.lasted = False
        """`lasted`: K = 0 of the table has; meanwhile steps at a K that is tried are not off."""
        self.steps = self.rested = 0
        """Steps for which the workers were told so, and those in which the first worker left the speculator out."""
        self.gapped: dict[str, int] = {}
        """Requests that were there while K = 0 of the table was off, of which the speculator has not seen much, and the
        tokens that each has generated since."""
        self.missing: int | None = None
        """Requests of which the speculator has missed something, as the worker tells where it catches up."""
        self.behind = False
        """Whether requests of the step that ended last were among them while it drafted."""
        self.drafts = dict.fromkeys((*map(str, AGES), "+Inf"), (0, 0))
        """Drafted and accepted tokens of requests that were there while it was off, by their age since."""
        self._whole = 0
        """Off steps until which nothing is missing any more."""

    def step(self, k: int, in_force: int, scheduled: Collection[str], known: Collection[str]) -> bool:
        """Called with each step's K, that of the table, its requests and all that are known: whether it is off."""
        self._held = self._held + 1 if in_force == 0 else 0
        self.lasted = self._held >= (self._needed if self.missing is None else min(SOON, self._needed))
        self.off = k == 0 and (self.lasted or in_force > 0)
        self.steps += self.off
        if self.off and self.lasted:
            self.gapped = dict.fromkeys((*self.gapped, *scheduled), 0)
        for name in self.gapped.keys() - known if self.gapped else ():
            del self.gapped[name]
        return self.off

    def mark(self, plan: Any, requests: Mapping[str, Any]) -> None:
        """Tells the workers what the step of `plan` does otherwise than vLLM: all ranks take it from here alone.

        The speculator is left out where nothing is verified; where it does not catch up, the step computes no prompt
        either, so that the prefix cache never holds a prompt that the speculator has not seen.
        """
        if self.off:
            if not plan.scheduled_spec_decode_tokens and (self.missing is not None or _decodes(plan, requests)):
                plan.speculative_off = True
        elif plan.num_spec_tokens_to_schedule and self.missing is not None and self.steps:
            # who joins may have blocks out of the prefix cache that were written while off
            joins = any(new.num_computed_tokens for new in plan.scheduled_new_reqs)
            if joins or self.missing or self._whole != self.steps:
                plan.speculative_catches_up = self.steps

    def hear(self, plan: Any, output: Any) -> None:
        """The first worker's output of the step of `plan`, before vLLM looks at it. With it that worker tells in how
        many steps it left the speculator out, why it no longer can, of how many requests it has missed something (None
        where it does not catch up), and whether the step had such. Raises RuntimeError where it no longer obeys."""
        self.count_drafts(plan, output)
        told = getattr(output, "speculative_off", None)
        if isinstance(told, tuple) and len(told) == 4:
            self.rested, refused, self.missing, self.behind = told
            if not self.missing:
                self._whole = max(self._whole, getattr(plan, "speculative_catches_up", 0))
            if refused:
                raise RuntimeError(refused)
        elif getattr(plan, "speculative_off", False):
            raise RuntimeError("no worker says that it left the speculator out: does the V1 runner serve?")

    def count_drafts(self, plan: Any, output: Any) -> None:
        """A step's results, before vLLM looks at them (it cuts the lists of tokens at a stop)."""
        tokens, verified = getattr(output, "sampled_token_ids", None), plan.scheduled_spec_decode_tokens
        if not self.gapped or not tokens or not verified:
            return
        for name in self.gapped.keys() & verified:
            emitted = len(tokens[output.req_id_to_index[name]])
            if emitted:
                age = next((str(most) for most in AGES if self.gapped[name] <= most), "+Inf")
                drafted, accepted = self.drafts[age]
                self.drafts[age] = drafted + len(verified[name]), accepted + emitted - 1
                self.gapped[name] += emitted

    @property
    def gaps(self) -> int:
        """Requests of which the speculator has not seen all."""
        return len(self.gapped) if self.missing is None else self.missing


def _decodes(plan: Any, requests: Mapping[str, Any]) -> bool:
    """Whether every request of the step computes one token, the newest that it has."""
    if plan.total_num_scheduled_tokens != len(plan.num_scheduled_tokens):
        return False
    found = (requests[name] for name in plan.num_scheduled_tokens)
    return all(one.num_computed_tokens + 1 >= one.num_tokens + one.num_output_placeholders for one in found)


def from_environment() -> Latch | None:
    """The latch that the pod was started with; None without. Raises ValueError where it says nothing usable."""
    given = os.environ.get(VARIABLE, "")
    return Latch(int(given)) if given else None
