"""`status.measured`: which rows of the catalogue were measured, and how far the present candidate is; and the candidate
as the API server has it. `measuring` decides about it; the shell reads since when both objects are compared.

The candidate is created and deleted by what the status says, never by what was only decided: an operator that ends in
between finds the same step again, and decides again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import Truth
from speculative_operator.domain.formats import LONGEST_MESSAGE, timestamp
from speculative_operator.domain.reading import (
    conditions_of,
    is_controlled_by,
    mapping,
    mappings,
    seconds_of,
    text,
    whole,
)
from speculative_operator.domain.reasons import ConditionType, Reason, reason_of
from speculative_operator.reconcile.snapshot.picked import Row, row_of
from speculative_operator.reconcile.snapshot.pods import Pod, read_pods

MOST_VERDICTS = 16
"""Rows that are measured of one verifier at most: status has a bound."""
LONGEST_WHY = 400
"""Most characters that are kept of why a row got its verdict."""
_LENGTH = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,4})?")
_REFUSALS = frozenset(
    {
        Reason.SPEC_INVALID, Reason.RENDER_INVALID, Reason.UNSUPPORTED_BY_ENGINE, Reason.UNSUPPORTED_SOURCE,
        Reason.PAIR_MISMATCH, Reason.SOURCE_NOT_FOUND, Reason.SOURCE_UNAUTHORIZED, Reason.CACHE_FULL,
    }
)  # fmt: skip
"""Reasons of a candidate's condition Ready with which it will not start."""


class Phase(StrEnum):
    """Where a candidate stands."""

    STARTING = "Starting"
    """No pod of it is ready yet."""
    WARMING = "Warming"
    """A pod of it answers, and its K finds its level; nothing is compared yet."""
    COMPARING = "Comparing"


class Result(StrEnum):
    """What measuring a row came to, against the speculator that served then."""

    BETTER = "Better"
    """The row was picked."""
    WORSE = "Worse"
    EQUIVALENT = "Equivalent"
    UNDECIDED = "Undecided"
    """Nothing was certain by the deadline."""
    FAILED = "Failed"
    """The candidate did not start, restarted, or its outputs differ."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one row was found to be."""

    row: Row
    result: Result
    against: str
    """The speculator that served then, for people."""
    why: str
    at: float
    """Unix seconds."""
    length: float | None = None
    """Measured acceptance length in whole hundredths, at `length_k` drafts; None where none was measured."""
    length_k: int | None = None

    def to_status(self) -> dict[str, Any]:
        """The block, without empty fields."""
        block = {
            **self.row.to_status(), "verdict": self.result.value, "against": self.against,
            "why": self.why[:LONGEST_WHY], "time": timestamp(self.at),
            "acceptanceLength": f"{self.length:.2f}" if self.length is not None else "", "acceptanceK": self.length_k,
        }  # fmt: skip
        return {key: value for key, value in block.items() if value not in ("", None)}


@dataclass(frozen=True, slots=True)
class Running:
    """The candidate that there is to be now."""

    row: Row
    phase: Phase
    began: float
    since: float
    """Begin of the measurement, and of the phase, unix seconds."""
    restarts: int = 0
    """Restarts of its containers when the comparison began."""

    @property
    def compared(self) -> tuple[str, float] | None:
        """What is compared, and since when in unix seconds; None before that begins."""
        return (self.row.title, self.since) if self.phase is Phase.COMPARING else None


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured for one verifier, engine and accelerator, and what is being measured."""

    of: str
    """Hash of these three; with another one all is measured anew."""
    reason: Reason
    message: str
    running: Running | None = None
    verdicts: tuple[Verdict, ...] = ()
    """The latest last, each row once."""
    paused_until: float | None = None
    """Unix time before which no candidate is started."""
    generation: int = 0
    """Generation of the spec for which a measured row was picked last; 0: none was."""
    comparison: str = ""
    """The present comparison, for people."""

    def to_status(self) -> dict[str, Any]:
        """The block, without empty fields."""
        now = self.running
        block = {
            "of": self.of, "reason": self.reason.value, "message": self.message[:LONGEST_MESSAGE],
            "candidate": {
                **now.row.to_status(), "phase": now.phase.value, "began": timestamp(now.began),
                "since": timestamp(now.since), "restarts": now.restarts,
            } if now is not None else {},
            "verdicts": [one.to_status() for one in self.verdicts],
            "pausedUntil": timestamp(self.paused_until) if self.paused_until is not None else "",
            "generation": self.generation or "", "comparison": self.comparison,
        }  # fmt: skip
        return {key: value for key, value in block.items() if value not in ("", {}, [])}


def read(block: Mapping[str, Any]) -> Measured | None:
    """What the block tells; None where there is none, or it is garbled: then all is measured anew."""
    reason, of = reason_of(text(block, "reason")), text(block, "of")
    if reason is None or not of:
        return None
    verdicts = {one.row.key: one for one in map(_verdict, mappings(block, "verdicts")) if one is not None}
    return Measured(
        of, reason, text(block, "message"), _running(mapping(block, "candidate")),
        tuple(verdicts.values())[-MOST_VERDICTS:], seconds_of(text(block, "pausedUntil")),
        max(whole(block, "generation"), 0), text(block, "comparison"),
    )  # fmt: skip


def _running(block: Mapping[str, Any]) -> Running | None:
    row, phase = row_of(block), text(block, "phase")
    began, since = seconds_of(text(block, "began")), seconds_of(text(block, "since"))
    if row is None or phase not in set(Phase) or began is None or since is None:
        return None
    return Running(row, Phase(phase), began, since, max(whole(block, "restarts"), 0))


def _verdict(block: Mapping[str, Any]) -> Verdict | None:
    row, word, time = row_of(block), text(block, "verdict"), seconds_of(text(block, "time"))
    if row is None or word not in set(Result) or time is None:
        return None
    k, told = whole(block, "acceptanceK"), text(block, "acceptanceLength")
    length = round(float(told), 2) if _LENGTH.fullmatch(told) else 0.0
    found = (length, k) if 1.0 <= length <= k + 1 and k > 0 else (None, None)
    return Verdict(row, Result(word), text(block, "against"), text(block, "why"), time, *found)


@dataclass(frozen=True, slots=True)
class Candidate:
    """The object by the candidate's name, as the API server has it."""

    uid: str
    owned: bool
    """True where the object that is measured is its controller."""
    wanted: str = ""
    """Hash of the manifest that it was made of."""
    deleting: bool = False
    pods: tuple[Pod, ...] = field(default=())
    refused: str = ""
    """Why it will not start, by its own conditions; empty where nothing says so."""
    outputs_differ: bool = False

    @property
    def answers(self) -> bool:
        """True where a pod of it gets requests."""
        return any(pod.ready for pod in self.pods)

    @property
    def restarts(self) -> int:
        """Restarts of its engines, added up."""
        return sum(pod.engine.restarts for pod in self.pods)


def read_candidate(body: Mapping[str, Any] | None, pods: Iterable[Mapping[str, Any]], uid: str) -> Candidate | None:
    """The candidate of the object `uid`; None where there is no object by that name."""
    if body is None:
        return None
    ready = conditions_of(mapping(body, "status")).get(ConditionType.READY, {})
    refused = text(ready, "status") == Truth.FALSE and reason_of(text(ready, "reason")) in _REFUSALS
    return Candidate(
        uid=text(body, "metadata", "uid"),
        owned=is_controlled_by(body, uid),
        wanted=text(body, "metadata", "annotations", names.ANNOTATION_WANTED),
        deleting=bool(text(body, "metadata", "deletionTimestamp")),
        pods=read_pods(pods),
        refused=f"{text(ready, 'reason')}: {text(ready, 'message')}" if refused else "",
        outputs_differ=outputs_differ(body),
    )


def outputs_differ(body: Mapping[str, Any]) -> bool:
    """True where the condition OutputsVerified of an object is False."""
    return text(conditions_of(mapping(body, "status")).get(ConditionType.OUTPUTS_VERIFIED), "status") == Truth.FALSE
