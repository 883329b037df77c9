"""`draft_len_schedule`, which changed its meaning: the same file is valid in both (pure). Called by `config`.

Before 1.3 keys are lower bounds of batch sizes (NVIDIA/TensorRT-LLM#8194), key 1 is required, and only drafting shrinks
(the emulator prices verification as if it did too). Since 1.3 (#10860, #12262) keys are inclusive upper bounds: beyond
the last one nothing is drafted, and verification shrinks too. Texts are those of tensorrt_llm/llmapi/llm_args.py.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import TypeAlias

from speculative_lab.emulator.errors import ValidationError

Release: TypeAlias = tuple[int, ...]
UPPER_BOUNDS_SINCE: Release = (1, 3)


def checked(raw: object, max_draft_len: int, release: Release) -> dict[int, int]:
    """The schedule by ascending batch size. Raises ValidationError for what the release refuses."""
    if not isinstance(raw, Mapping) or not raw:
        raise _invalid("Input should be a valid dictionary", "dict_type")
    try:
        schedule = {int(key): int(value) for key, value in raw.items()}
    except (TypeError, ValueError):
        raise _invalid("Input should be a valid integer", "int_parsing") from None
    problem = _problem(schedule, max_draft_len, release)
    if problem:
        raise _invalid(f"Value error, {problem}", "value_error")
    return dict(sorted(schedule.items()))


def _problem(schedule: Mapping[int, int], longest: int, release: Release) -> str:
    if min(schedule) < 1:
        return f"draft_len_schedule: batch size threshold must be >= 1, got {min(schedule)}"
    if min(schedule.values()) < 0:
        return f"draft_len_schedule: draft length must be >= 0, got {min(schedule.values())}"
    if release < UPPER_BOUNDS_SINCE and 1 not in schedule:
        return "draft_len_schedule must include batch_size=1."
    first = min(schedule)
    if schedule[first] != longest:
        return (
            f"draft_len_schedule[{first}] must equal max_draft_len for consistency."
            f" Got schedule[{first}]={schedule[first]}, but max_draft_len={longest}."
        )
    if max(schedule.values()) > longest:
        return "draft_len_schedule: all draft lengths must be <= max_draft_len."
    return ""


def dense(schedule: Mapping[int, int], seats: int, release: Release) -> list[int]:
    """Draft length for each number of requests up to `seats`; index 0 is not used."""
    keys, values = list(schedule), list(schedule.values())
    if release < UPPER_BOUNDS_SINCE:
        return [values[max(0, bisect_right(keys, batch) - 1)] for batch in range(seats + 1)]
    return [(*values, 0)[bisect_left(keys, batch)] for batch in range(seats + 1)]


def _invalid(message: str, kind: str) -> ValidationError:
    return ValidationError("TorchLlmArgs", [("speculative_config.draft_len_schedule", message, kind)])
