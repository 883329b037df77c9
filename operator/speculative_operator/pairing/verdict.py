"""The verdict on a pair: its kind, all findings and the acceptance to expect, and its forms for people and for JSON.

`judge` makes it; reconcile takes conditions from it, and `speculative check` prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from speculative_operator.domain.models import Pin
from speculative_operator.pairing.findings import Finding, Level


class Kind(StrEnum):
    """How the speculator is related to its verifier, and what that is; docs/pairs.md explains each kind."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Kind:
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    SAME_FAMILY = "SameFamily", "a smaller model of the verifier's family drafts"
    QUANTIZED_TWIN = "QuantizedTwin", "the verifier's own weights in another number format draft"
    CROSS_FAMILY = "CrossFamily", "a model of another family drafts"
    PURPOSE_TRAINED = "PurposeTrained", "a speculator that was trained for one verifier"
    IN_VERIFIER = "InVerifier", "heads or modules of the verifier itself draft"
    DRAFT_FREE = "DraftFree", "tokens are looked up in the text; no model drafts"
    UNKNOWN = "Unknown", "the files do not say"


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


def findings(verdict: Verdict) -> list[dict[str, str]]:
    """Findings of `verdict` as mappings of part -> text; empty text where a part has no value."""
    return [asdict(one) for one in verdict.findings]


def expectation(expected: Expected) -> str:
    """The expectation as text: `2.39 tokens per verification [2.13, 2.66] at K 3, by 17 published measurements`."""
    count = f"{expected.profiles} published measurement{'s' * (expected.profiles != 1)}"
    interval = f"[{expected.low:.2f}, {expected.high:.2f}]"
    return f"{expected.length:.2f} tokens per verification {interval} at K {expected.k}, by {count}"


def to_json(verdict: Verdict, pins: Mapping[str, Pin]) -> dict[str, Any]:
    """The verdict as plain values; docs/pairs.md names the fields. `pins`: side -> version."""
    expected = verdict.expected
    return {
        "compatible": verdict.compatible,
        "kind": verdict.kind.value,
        "pins": {
            side: {"model": pin.source.uri, "asked": pin.asked, "resolved": pin.resolved, "key": pin.key}
            for side, pin in pins.items()
        },
        "expected": None if expected is None else {
            "length": round(expected.length, 3), "low": round(expected.low, 3), "high": round(expected.high, 3),
            "k": expected.k, "measurements": expected.profiles, "source": expected.source,
        },
        "findings": findings(verdict),
    }  # fmt: skip
