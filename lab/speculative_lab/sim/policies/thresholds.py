"""Laws that move K by thresholds on acceptance alone: SGLang's adaptive mode, AutoSpec before it, a rule of thumb.

Named in `registry`, run by `base.InEngine`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil

from speculative_lab.sim.policies.base import Step

GRAPH_BATCHES = (*range(1, 9), *range(10, 33, 2), *range(40, 65, 8), *range(80, 129, 16), *range(160, 513, 32))
"""Batch sizes that SGLang captures, which a batch is padded to before its slot is looked up (exact list unverified;
every list that holds 8, 32 and 64 puts the same batches in the default slots)."""


@dataclass(frozen=True, slots=True)
class SlotRule:
    """One slot of SGLang's adaptive file."""

    first: int
    candidates: tuple[int, ...]
    up: float = 0.0
    down: float = -0.25
    ceiling: float = 0.0


DEFAULT_SLOTS = (
    SlotRule(1, (1, 3, 5, 7)),
    SlotRule(8, (0, 1, 3), down=0.0),
    SlotRule(32, (0, 1), down=0.0),
    SlotRule(64, (0,), down=0.0),
)


class Slot:
    """State of one slot: steps, mean accepted drafts (exponential), verifications seen."""

    def __init__(self, rule: SlotRule, initial: int) -> None:
        self.rule = rule
        known = rule.candidates
        self.steps = initial if initial in known else known[len(known) // 2]
        self.mean = float(self.steps - 1)
        self.seen = 0

    def verified(self, accepted: float, alpha: float, warmup: int, interval: int) -> bool:
        """Takes in one verification with `accepted` drafts in the mean; True when the steps changed."""
        if self.steps > 0:
            self.mean = (1.0 - alpha) * self.mean + alpha * accepted
        self.seen += 1
        if self.seen <= warmup or (self.seen - warmup) % interval:
            return False
        before = self.steps
        if before == 0:
            self._probe()
        else:
            self._move()
        return self.steps != before

    def _probe(self) -> None:
        """From 0 the smallest number of steps is tried without condition."""
        higher = self._higher()
        if higher is not None:
            self.steps = higher
            if self.mean < 0:
                self.mean = float(self.steps - 1)

    def _move(self) -> None:
        rule, old = self.rule, self.steps
        lower = self._lower()
        while lower is not None and self.mean <= (0.5 if lower == 0 else lower - 0.5) + rule.down:
            self.steps = lower
            lower = self._lower()
        if self.steps == old:
            higher = self._higher()
            while higher is not None and self.mean > self.steps - 0.5 + rule.up:
                self.steps = higher
                higher = self._higher()
        if rule.ceiling > 0:
            limit = max(1, ceil(self.mean * rule.ceiling))
            while self.steps > limit and self.steps <= old and self._lower() is not None:
                self.steps = self._lower() or 0

    def _lower(self) -> int | None:
        place = bisect_left(self.rule.candidates, self.steps)
        return self.rule.candidates[place - 1] if place > 0 else None

    def _higher(self) -> int | None:
        place = bisect_right(self.rule.candidates, self.steps)
        return self.rule.candidates[place] if place < len(self.rule.candidates) else None


class SglangAdaptive:
    """SGLang 0.5.23 `--speculative-adaptive` with its default file (read in its source, adaptive_spec_params.py).

    Candidates that the deployment's K do not hold are left out. No cost, no latency, no target: off from batch 64 on.
    """

    def __init__(
        self, ks: tuple[int, ...], rules: Sequence[SlotRule] = DEFAULT_SLOTS, initial: int = 3,
        alpha: float = 0.2, interval: int = 5, warmup: int = 10,
    ) -> None:  # fmt: skip
        self.changed = True
        self.slots = [Slot(_limited(rule, ks), initial) for rule in rules]
        self._firsts = [rule.first for rule in rules]
        self._rates = (alpha, warmup, interval)

    def route(self, batch: int) -> Slot:
        """The slot of `batch` requests: that of the largest key at most the padded batch."""
        return self.slots[max(0, bisect_right(self._firsts, padded(batch)) - 1)]

    def observe(self, step: Step) -> None:
        if step.batch > 0 and self.route(step.batch).verified(step.accepted, *self._rates):
            self.changed = True

    def choose(self, batch: int) -> int:
        return self.route(batch).steps


@cache
def padded(batch: int) -> int:
    """The next captured batch size; `batch` itself above the largest."""
    place = bisect_left(GRAPH_BATCHES, batch)
    return GRAPH_BATCHES[place] if place < len(GRAPH_BATCHES) else batch


def _limited(rule: SlotRule, ks: tuple[int, ...]) -> SlotRule:
    kept = tuple(k for k in rule.candidates if k in ks) or (min(ks),)
    return SlotRule(rule.first, kept, rule.up, rule.down, rule.ceiling)


class AutoSpec:
    """SGLang AutoSpec (sglang#22246, closed; read in the thread): acceptance rate against thresholds by batch.

    Above the upper one K rises by a step, below the lower it falls, between them it stays. Unverified: the smoothing
    and the pace, taken from SGLang's adaptive mode, and the buckets, read as powers of two.
    """

    BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)
    RAISE = (0.55, 0.55, 0.60, 0.80, 0.95, 0.91, 0.95, 0.95)
    LOWER = (0.50, 0.50, 0.50, 0.50, 0.60, 0.66, 0.65, 0.65)

    def __init__(self, ks: tuple[int, ...], initial: int = 3, alpha: float = 0.2, interval: int = 5) -> None:
        self.changed = True
        self._ks = tuple(k for k in ks if 1 <= k <= 6) or tuple(k for k in ks if k >= 1)[:1] or (0,)
        place = max(0, bisect_right(self._ks, initial) - 1)
        self._place = [place] * len(self.BUCKETS)
        self._rate: list[float | None] = [None] * len(self.BUCKETS)
        self._seen = [0] * len(self.BUCKETS)
        self._alpha, self._interval = alpha, interval

    def bucket(self, batch: int) -> int:
        """Index of the largest bucket that is at most `batch`."""
        return max(0, bisect_right(self.BUCKETS, batch) - 1)

    def observe(self, step: Step) -> None:
        if step.k <= 0 or step.batch <= 0:
            return
        at = self.bucket(step.batch)
        rate, old = step.accepted / step.k, self._rate[at]
        smooth = rate if old is None else (1.0 - self._alpha) * old + self._alpha * rate
        self._rate[at] = smooth
        self._seen[at] += 1
        if self._seen[at] % self._interval:
            return
        move = (smooth > self.RAISE[at]) - (smooth < self.LOWER[at])
        place = min(max(self._place[at] + move, 0), len(self._ks) - 1)
        if place != self._place[at]:
            self._place[at], self.changed = place, True

    def choose(self, batch: int) -> int:
        return self._ks[self._place[self.bucket(batch)]]


class RuleOfThumb:
    """Advice found in guides: below 32 requests K moves by accepted/drafted (under .50 down, over .85 up); else off."""

    LIMIT = 32
    LOWER, RAISE = 0.50, 0.85

    def __init__(self, ks: tuple[int, ...], initial: int = 3, alpha: float = 0.02, interval: int = 200) -> None:
        self.changed = True
        self._ks = ks
        self._place = max(0, bisect_right(ks, initial) - 1)
        self._rate = 0.7
        self._seen = 0
        self._alpha, self._interval = alpha, interval

    def observe(self, step: Step) -> None:
        if step.k <= 0 or step.batch <= 0:
            return
        self._rate += self._alpha * (step.accepted / step.k - self._rate)
        self._seen += 1
        if self._seen % self._interval:
            return
        move = (self._rate > self.RAISE) - (self._rate < self.LOWER)
        place = min(max(self._place + move, 0), len(self._ks) - 1)
        if place != self._place:
            self._place, self.changed = place, True

    def choose(self, batch: int) -> int:
        return self._ks[self._place] if batch < self.LIMIT else 0
