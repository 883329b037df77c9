"""Judges whether answers with drafts are those without, from the logprobs of both. Called by `speculative verify`.

Greedy decoding with drafts writes what the verifier alone would write, up to numerics: a verification computes K + 1
tokens at once, and sums of floats depend on the shape of a batch (vllm#7627, vllm#41758). So two runs may part at a
tie, where two tokens are about equally likely in both. Parting anywhere else is a defect. What a run without drafts
does not repeat itself is no evidence against drafts: a second such run, the control, shows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest

from speculative_operator.outputs.record import Verdict

NEAR = 0.3
"""Nats between the logprobs of two tokens that count as equally likely. Logits of 16 to 32 in bfloat16 have steps of
0.125, so two of them that differ by one step each way are 0.25 apart."""
SHIFT = 0.5
"""Nats by which numerics may change the logprob of one token."""
DRIFT, DRIFT_FACTOR = 0.1, 4.0
"""Mean nats by which the logprobs of tokens that both runs wrote may differ, and how much more than in the control."""


@dataclass(frozen=True, slots=True)
class Written:
    """One token of an answer."""

    token: str
    logprob: float
    """Nats."""
    top: Mapping[str, float]
    """The most likely tokens there, and this one -> logprob."""


Answer = Sequence[Written]
Run = Sequence[Answer]
"""One answer for each prompt."""
_END = Written("", 0.0, {})


class Kind(StrEnum):
    """Why the answers to one prompt part."""

    UNSTEADY = "the engine does not repeat itself without drafts either"
    TIE = "a tie: both tokens are about equally likely"
    DIFFERENT = "another token than the verifier alone would write"


@dataclass(frozen=True, slots=True)
class Parting:
    """The first position at which the answers to one prompt differ."""

    prompt: int
    """Number of the prompt, from 1."""
    position: int
    """Number of the token, from 1."""
    kind: Kind
    without: Written
    drafted: Written


@dataclass(frozen=True, slots=True)
class Judgement:
    """What comparing the runs has shown."""

    partings: tuple[Parting, ...]
    tokens: int
    """Tokens that were compared: of each prompt those until the answers part."""
    drift: float
    """Mean nats between the logprobs of tokens that both runs wrote."""
    control_drift: float
    """The same between the two runs without drafts."""

    @property
    def drifts(self) -> bool:
        """True where the distributions differ beyond numerics though the tokens are the same."""
        return not self.drift <= max(DRIFT, DRIFT_FACTOR * self.control_drift)

    @property
    def verdict(self) -> Verdict:
        """Different, if a single prompt shows it."""
        if self.drifts or self.count(Kind.DIFFERENT):
            return Verdict.DIFFERENT
        return Verdict.TIES if self.count(Kind.TIE) else Verdict.SAME

    def count(self, kind: Kind) -> int:
        """Prompts whose answers part so."""
        return sum(1 for one in self.partings if one.kind is kind)

    @property
    def resolution(self) -> int:
        """A fault in one of so many tokens would have shown itself with a chance of 95 % (the rule of three)."""
        return self.tokens // 3


def judge(without: Run, control: Run, drafted: Run) -> Judgement:
    """The judgement on `drafted` by two runs without drafts over the same prompts. Raises ValueError for runs of
    unequal length."""
    together = list(zip(without, control, drafted, strict=True))
    partings = tuple(found for number, runs in enumerate(together, 1) if (found := _parting(number, *runs)) is not None)
    tokens = sum(_first(one, other) for one, _, other in together)
    drifts = (_drift((a, c) for a, _, c in together), _drift((a, b) for a, b, _ in together))
    return Judgement(partings, tokens, *drifts)


def _parting(number: int, without: Answer, control: Answer, drafted: Answer) -> Parting | None:
    place, steady = _first(without, drafted), _first(without, control)
    if place == max(len(without), len(drafted)):
        return None
    pair = tuple(one[place] if place < len(one) else _END for one in (without, drafted))
    kind = Kind.TIE if _tied(*pair) else Kind.DIFFERENT
    repeats = steady == max(len(without), len(control)) or place < steady
    return Parting(number, place + 1, kind if repeats else Kind.UNSTEADY, *pair)


def _first(one: Answer, other: Answer) -> int:
    """The first place, from 0, at which two answers differ; the length of the longer one where they do not."""
    both = enumerate(zip_longest(one, other, fillvalue=_END))
    return next((place for place, (a, b) in both if a.token != b.token), max(len(one), len(other)))


def _tied(one: Written, other: Written) -> bool:
    """True where either run has both tokens as near, and numerics explain how far the runs differ on them."""
    pair = (one.token, other.token)
    gaps = [abs(run.top[pair[0]] - run.top[pair[1]]) for run in (one, other) if all(each in run.top for each in pair)]
    shifts = [abs(one.top[each] - other.top[each]) for each in pair if each in one.top and each in other.top]
    return any(gap <= NEAR for gap in gaps) and bool(shifts) and all(shift <= SHIFT for shift in shifts)


def _drift(answers: Iterable[tuple[Answer, Answer]]) -> float:
    """Mean nats between the logprobs of the tokens that both of each two answers begin with."""
    common = (zip(one[: _first(one, other)], other, strict=False) for one, other in answers)
    shifts = [abs(a.logprob - b.logprob) for pairs in common for a, b in pairs]
    return math.fsum(shifts) / len(shifts) if shifts else 0.0
