"""Per-request account of speculation for `--per-request-spec-decode-metrics`. Kept by `core` only when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from speculative_lab.emulator.requests import SpeculationRecord


class Recording(StrEnum):
    """Values of the flag."""

    NONE = "none"
    SUMMARY = "summary"
    DETAILED = "detailed"


def start(recording: Recording, max_k: int) -> SpeculationRecord | None:
    """An empty record for a request that is admitted, or None when nothing is to be recorded."""
    return None if recording is Recording.NONE else SpeculationRecord([0] * (max_k + 1), 0)


def record(
    records: Sequence[SpeculationRecord | None], drafted: Sequence[int], accepted: Sequence[int], recording: Recording
) -> None:
    """Book one verification of each record."""
    for entry, drafts, kept in zip(records, drafted, accepted, strict=True):
        if entry is None:
            continue
        entry.histogram[kept] += 1
        entry.draft_tokens += drafts
        if recording is Recording.DETAILED:
            entry.per_step_accepted.append(kept)
            entry.per_step_drafted.append(drafts)


def summary(entry: SpeculationRecord, num_spec_tokens: int, recording: Recording) -> dict[str, object]:
    """`metrics.speculative_decoding` of a response."""
    steps = sum(entry.histogram)
    accepted = sum(count * kept for kept, count in enumerate(entry.histogram))
    found: dict[str, object] = {
        "mean_acceptance_length": 1 + accepted / steps if steps else None,
        "draft_acceptance_rate": accepted / entry.draft_tokens if entry.draft_tokens else None,
        "acceptance_histogram": entry.histogram,
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": entry.draft_tokens,
        "num_spec_tokens": num_spec_tokens,
    }
    if recording is Recording.DETAILED:
        found["per_step_accepted"] = entry.per_step_accepted
        found["per_step_drafted"] = entry.per_step_drafted
    return found
