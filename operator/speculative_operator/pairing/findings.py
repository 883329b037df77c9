"""The answer of a judge of pairs: findings with level, field, values and remedy. Made by `judge` and `memory`; shown by
conditions, events and `speculative check` in the same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding weighs."""

    ERROR = "Error"
    """The engine would not start, or would draft what is never accepted: no pod."""
    WARNING = "Warning"
    """It runs, but less well than it could, or than was meant."""
    INFO = "Info"
    """Worth knowing."""


class Kind(StrEnum):
    """How the speculator is related to its verifier; docs/pairs.md explains each kind."""

    SAME_FAMILY = "SameFamily"
    QUANTIZED_TWIN = "QuantizedTwin"
    CROSS_FAMILY = "CrossFamily"
    PURPOSE_TRAINED = "PurposeTrained"
    IN_VERIFIER = "InVerifier"
    DRAFT_FREE = "DraftFree"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of comparing the two models of a pair."""

    level: Level
    code: str
    """CamelCase word for the finding, stable, such as `VocabularyDiffers`: for pipelines and docs."""
    field: str
    """Where it was read: `speculator config.json hidden_size`, or the field of the spec to change."""
    verifier: str
    """The verifier's value, for people; empty where it has none."""
    speculator: str
    """The speculator's value, likewise."""
    message: str
    """What the finding means, in a sentence."""
    remedy: str = ""
    """What to do; never empty for an Error."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Acceptance to be expected of the pair's kind with the spec's workload."""

    length: float
    """Tokens per verification at `k` drafts."""
    low: float
    high: float
    """Interval of the published profiles (10th to 90th percentile; extremes where there are fewer than five)."""
    k: int
    profiles: int
    """Number of published measurements behind the expectation."""
    source: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """All findings on a pair, errors first."""

    kind: Kind
    findings: tuple[Finding, ...]
    expected: Expected | None = None

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.level is Level.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.level is Level.WARNING)

    @property
    def compatible(self) -> bool:
        return not self.errors


def sort_findings(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Sorts findings: errors, warnings, the rest; within a level in the order given."""
    return tuple(sorted(findings, key=lambda one: list(Level).index(one.level)))
