"""The status of an object as the API server has it. Read by `take`, and of each new status for its events and metrics.

Only the operator writes a status; but somebody may have edited or wiped it, and another release may have written it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from speculative_operator.domain.actions import Condition, Truth
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.reading import at, items, mapping, mappings, seconds_of, text, whole
from speculative_operator.domain.reasons import ConditionType, Reason, reason_of
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile.snapshot import canaries, candidates, picked, records, rollouts
from speculative_operator.reconcile.snapshot.canaries import Progress
from speculative_operator.reconcile.snapshot.candidates import Measured
from speculative_operator.reconcile.snapshot.notes import facts_of, memory_of
from speculative_operator.reconcile.snapshot.picked import Pick
from speculative_operator.reconcile.snapshot.records import Record
from speculative_operator.reconcile.snapshot.rollouts import OwnRollouts
from speculative_operator.reconcile.snapshot.tables import LARGEST_VERSION, Leaving, read_leaving, table_of

FIGURES = (
    "k", "acceptanceRate", "acceptanceLength", "concurrency", "tpot", "tpotOff", "tokensPerSecond", "gain",
    "gainRange", "gainPercent", "gainBasis", "removalGain", "removalGainRange", "removalGainPercent", "proposedTable",
    "proposedGain", "proposedGainRange", "costPer1kTokens", "reason", "message", "observedAt", "state",
)  # fmt: skip
"""Fields of `status.speculation` that move with the load: rate-limited by `writing.should_write`."""
MOST_START_SECONDS = 12 * 3600
"""Longest start in seconds that is believed."""
STARTS_KEPT = 5
DECISIONS_KEPT = 10


@dataclass(frozen=True, slots=True)
class KnownCondition:
    """A condition as the status has it; empty where it has none of the kind."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    since: str = ""
    """Time of its last transition, RFC 3339."""

    @property
    def why(self) -> Reason | None:
        """Its reason; None where the operator has no such reason."""
        return reason_of(self.reason)

    def as_condition(self, kind: ConditionType) -> Condition | None:
        """The same as the operator would tell it; None where it could not."""
        why = self.why
        return Condition(kind, Truth(self.status), why, self.message) if why and self.status in set(Truth) else None


@dataclass(frozen=True, slots=True)
class Speculation:
    """`status.speculation`."""

    table: KTable | None = None
    version: int = 0
    removed: bool = False
    """True where pods run without a speculator, and the table waits for its return."""
    rows_version: int = 0
    """Version that brought the table, where later ones changed only the trials; else 0."""
    actuator: str = ""
    since: float | None = None
    """When the version became active, unix seconds."""
    method: str = ""
    state: str = ""
    reason: str = ""
    """Of the last decision."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """The fields FIGURES as they are: to be kept, not read."""


@dataclass(frozen=True, slots=True)
class EngineReport:
    """`status.engine`: what pods have reported of their engine."""

    asked: str = ""
    """The engine that the spec asked for then (`engine_report.engine_as_asked`)."""
    version: str = ""
    live: bool | None = None
    """Whether pods re-read their table; None where none has told."""
    inert: str = ""
    since: float | None = None
    """Since when all pods have told so, unix seconds."""
    table_in_pods: int | None = None
    """Lowest version of the table that pods have activated."""

    def to_status(self) -> dict[str, Any]:
        """The block, without empty fields."""
        block = {
            "asked": self.asked, "version": self.version, "live": self.live, "inert": self.inert,
            "since": timestamp(self.since) if self.since is not None else "",
            "tableVersionInPods": self.table_in_pods,
        }  # fmt: skip
        return {key: value for key, value in block.items() if value not in (None, "")}


@dataclass(frozen=True, slots=True)
class Start:
    """One start of an engine."""

    pod: str
    started: str
    """RFC 3339"""
    seconds: int
    bytes: int = 0
    """Bytes of weights that were loaded; 0 where unknown."""

    @property
    def began(self) -> float:
        """Unix time of the start; 0 where unknown."""
        return seconds_of(self.started) or 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """The newest entry of `status.decisions`."""

    version: int = 0
    reason: str = ""
    before: str = ""
    after: str = ""
    message: str = ""
    time: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """The status of an object. What it lacks is empty."""

    generation: int = 0
    """Generation of the spec that it was written for."""
    ready: int = 0
    replicas: int = 0
    conditions: Mapping[str, KnownCondition] = field(default_factory=dict)
    speculation: Speculation = field(default_factory=Speculation)
    engine: EngineReport = field(default_factory=EngineReport)
    pair: Record = field(default_factory=Record)
    coming: Record = field(default_factory=Record)
    """`status.nextPair`"""
    picked: Pick | None = None
    """None where nothing was picked, or the entry is invalid."""
    names_pick: bool = False
    """True where there is an entry, valid or not."""
    rollouts: OwnRollouts = field(default_factory=OwnRollouts)
    canary: Progress | None = None
    """None where no canary is analysed, or the entry is garbled."""
    measured: Measured | None = None
    """None where no rows of the catalogue are measured, or the entry is garbled."""
    starts: tuple[Start, ...] = ()
    """Starts that were measured, the latest first."""
    budget_seconds: int = 0
    leaving: tuple[Leaving, ...] = ()
    decisions: tuple[Mapping[str, Any], ...] = ()
    """The last changes of the table, the newest first, as they are: to be kept, not read."""
    last: Change = field(default_factory=Change)
    warnings: tuple[tuple[str, str], ...] = ()
    """Reason and message of each."""
    memory: Mapping[str, Any] = field(default_factory=dict)
    """The tuner's memory as its notes have it, where they are of this pair; `tuner.persistence` reads it."""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """The whole status as it is: parts of it may stay, and nobody reads them here."""

    def parts_named(self, names: Collection[str]) -> dict[str, Any]:
        """Parts of the status as they are; warnings without what is none."""
        kept = {name: part for name, part in self.parts.items() if name in names and name != "warnings"}
        warnings = [{"reason": reason, "message": message} for reason, message in self.warnings]
        return kept | ({"warnings": warnings} if warnings else {})

    def condition(self, kind: ConditionType) -> KnownCondition:
        """The condition of one kind."""
        return self.conditions.get(kind, KnownCondition())


def read_status(status: Mapping[str, Any], notes: Mapping[str, Any] | None = None) -> Status:
    """The status, with what the operator's `notes` tell of its pairs."""
    known, decisions = facts_of(notes or {}), tuple(mappings(status, "decisions"))[:DECISIONS_KEPT]
    pair, coming = (records.read(mapping(status, name), known) for name in records.PAIRS)
    return Status(
        generation=whole(status, "observedGeneration"),
        ready=whole(status, "readyReplicas"),
        replicas=whole(status, "replicas"),
        conditions={text(one, "type"): _condition(one) for one in mappings(status, "conditions")},
        speculation=_speculation(mapping(status, "speculation")),
        engine=_engine(mapping(status, "engine")),
        pair=pair,
        coming=coming,
        picked=picked.read(mapping(status, "picked")),
        names_pick=bool(mapping(status, "picked")),
        rollouts=rollouts.read(mapping(status, "rollout")),
        canary=canaries.read(mapping(status, "canary")),
        measured=candidates.read(mapping(status, "measured")),
        starts=_starts(mapping(status, "startup")),
        budget_seconds=whole(status, "startup", "budgetSeconds"),
        leaving=tuple(read_leaving(mappings(status, "leaving"))),
        decisions=decisions,
        last=_change(decisions[0] if decisions else {}),
        warnings=tuple((text(one, "reason"), text(one, "message")) for one in mappings(status, "warnings")),
        memory=memory_of(notes or {}, text(status, "pair", "hash")),
        parts=status,
    )


def read_refused(owner: Mapping[str, Any]) -> tuple[Status, int, int]:
    """Status, generation and replicas of an object whose spec cannot be read; 0 replicas where these cannot either."""
    wanted = max(whole(owner, "spec", "replicas"), 0)
    return read_status(mapping(owner, "status")), whole(owner, "metadata", "generation"), wanted


def _condition(one: Mapping[str, Any]) -> KnownCondition:
    return KnownCondition(*(text(one, name) for name in ("type", "status", "reason", "message", "lastTransitionTime")))


def _speculation(block: Mapping[str, Any]) -> Speculation:
    table, version = table_of(items(block, "table")), whole(block, "tableVersion")
    version = version if 0 < version < LARGEST_VERSION else 0
    rows_version = whole(block, "rowsVersion")
    return Speculation(
        table=table,
        version=version,
        removed=at(block, "speculatorRemoved") is True,
        rows_version=rows_version if 0 < rows_version < version else 0,
        actuator=text(block, "actuator"),
        since=seconds_of(text(block, "tableSince")),
        method=text(block, "method"),
        state=text(block, "state"),
        reason=text(block, "reason"),
        figures={key: block[key] for key in FIGURES if key in block},
    )


def _engine(block: Mapping[str, Any]) -> EngineReport:
    live, lowest = at(block, "live"), at(block, "tableVersionInPods")
    return EngineReport(
        asked=text(block, "asked"),
        version=text(block, "version"),
        live=live if isinstance(live, bool) else None,
        inert=text(block, "inert"),
        since=seconds_of(text(block, "since")),
        table_in_pods=whole(lowest) if lowest is not None else None,
    )


def _starts(block: Mapping[str, Any]) -> tuple[Start, ...]:
    every = (
        Start(text(one, "pod"), text(one, "started"), whole(one, "seconds"), max(whole(one, "bytes"), 0))
        for one in mappings(block, "starts")
    )
    believed = (one for one in every if one.pod and one.began > 0 and 0 < one.seconds <= MOST_START_SECONDS)
    return tuple(believed)[:STARTS_KEPT]


def _change(entry: Mapping[str, Any]) -> Change:
    told = (text(entry, name) for name in ("reason", "from", "to", "message", "time"))
    return Change(whole(entry, "tableVersion"), *told)
