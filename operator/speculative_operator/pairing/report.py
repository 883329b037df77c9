"""A verdict in the words of conditions, of a table and of JSON. Used by reconcile and by `speculative check`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.domain.artifact import Pin
from speculative_operator.domain.reasons import Reason
from speculative_operator.pairing.findings import Expected, Finding, Kind, Verdict

KINDS: Mapping[Kind, str] = {
    Kind.SAME_FAMILY: "a smaller model of the verifier's family drafts",
    Kind.QUANTIZED_TWIN: "the verifier's own weights in another number format draft",
    Kind.CROSS_FAMILY: "a model of another family drafts",
    Kind.PURPOSE_TRAINED: "a speculator that was trained for one verifier",
    Kind.IN_VERIFIER: "heads or modules of the verifier itself draft",
    Kind.DRAFT_FREE: "tokens are looked up in the text; no model drafts",
    Kind.UNKNOWN: "the files do not say",
}
"""What each kind is; docs/pairs.md explains them."""


def findings(verdict: Verdict) -> list[dict[str, str]]:
    """Findings of `verdict` as mappings of part -> text; empty text where a part has no value."""
    return [dict(zip(_FIELDS, _cells(one), strict=True)) for one in verdict.findings]


def reason(verdict: Verdict) -> Reason:
    """Reason of the condition PairCompatible for `verdict`."""
    if verdict.errors:
        return Reason.PAIR_MISMATCH
    return Reason.PAIR_DOUBTFUL if verdict.warnings else Reason.PAIR_MATCHES


def message(verdict: Verdict) -> str:
    """One line for condition and event: the first finding that matters, whole, and how many more there are."""
    first = (*verdict.errors, *verdict.warnings)[:1]
    if not first:
        return f"{KINDS[verdict.kind]}; {_expectation(verdict.expected)}"
    more = len(verdict.errors) + len(verdict.warnings) - 1
    others = f" (and {more} more)" if more else ""
    return f"{_line(first[0])}{others}"


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


_FIELDS = ("level", "code", "field", "verifier", "speculator", "message", "remedy")


def _cells(one: Finding) -> tuple[str, ...]:
    return (one.level.value, one.code, one.field, one.verifier, one.speculator, one.message, one.remedy)


def _line(one: Finding) -> str:
    values = [
        f"{side} {value}" for side, value in (("verifier", one.verifier), ("speculator", one.speculator)) if value
    ]
    line = f"{one.field}: {one.message}" + (f" ({', '.join(values)})" if values else "")
    return f"{line}; {one.remedy}" if one.remedy else line


def _expectation(expected: Expected | None) -> str:
    return "no published acceptance" if expected is None else f"expected: {expectation(expected)}"
