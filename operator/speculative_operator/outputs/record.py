"""What is kept of a verification: an annotation of the object that `speculative verify` writes and the operator reads.

It holds for pods of one template: their image, models and arguments. Anybody may write it, so it steers nothing but a
condition.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from speculative_operator.domain.reading import parse_json, seconds_of, text, whole

_LONGEST = 63  # characters of the value of a label


class Verdict(StrEnum):
    """How the output with drafts compares with the output without."""

    SAME = "Same"
    TIES = "SameButTies"
    """Different only where two tokens were about equally likely."""
    DIFFERENT = "Different"


@dataclass(frozen=True, slots=True)
class Record:
    """One verification."""

    verdict: Verdict
    template: str
    """The label by which the pods' controller tells pods of their template from others."""
    at: str
    """When, RFC 3339."""
    prompts: int
    tokens: int
    """Tokens compared."""
    ties: int
    different: int
    """Prompts whose answers part at a tie, and elsewhere."""

    def to_text(self) -> str:
        """The value of the annotation."""
        return json.dumps(asdict(self))


def read(annotation: str) -> Record | None:
    """The record that was written; None for anything else."""
    data = parse_json(annotation)
    verdict = next((one for one in Verdict if one.value == text(data, "verdict")), None)
    counts = [whole(data, name) for name in ("prompts", "tokens", "ties", "different")]
    template, moment = text(data, "template"), text(data, "at")
    if verdict is None or not 0 < len(template) <= _LONGEST or min(counts) < 0 or seconds_of(moment) is None:
        return None
    return Record(verdict, template, moment, *counts)
