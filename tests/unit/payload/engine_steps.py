"""Steps of an engine as vLLM's schedulers present them to the meter: for the tests of counting and of reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Plan:
    """vLLM's scheduler output. `drafts`: request -> drafts to verify; `prompts`: request -> prompt tokens."""

    def __init__(self, drafts: Mapping[str, int], prompts: Mapping[str, int] | None = None, next_k: int = 0) -> None:
        prompts = prompts or {}
        self.num_scheduled_tokens = {**{name: 1 + count for name, count in drafts.items()}, **prompts}
        self.total_num_scheduled_tokens = sum(self.num_scheduled_tokens.values())
        self.scheduled_spec_decode_tokens = {name: [-1] * count for name, count in drafts.items() if count}
        # a prompt may be new or a further chunk: both have no output token yet
        self.scheduled_cached_reqs = SimpleNamespace(num_output_tokens=[3] * len(drafts) + [0] * (len(prompts) // 2))
        self.num_spec_tokens_to_schedule = next_k


def outputs(accepted: Mapping[str, int], plan: Plan, first: Sequence[str] = (), largest: int = 8) -> dict[int, Any]:
    """What `update_from_output` gives: each request of `accepted` gets its accepted drafts and one token more."""
    emitted = [accepted[name] + 1 for name in accepted] + [1] * len(first)
    stats = None
    drafted = {name: len(tokens) for name, tokens in plan.scheduled_spec_decode_tokens.items() if name in accepted}
    if drafted:
        stats = SimpleNamespace(
            num_draft_tokens_per_pos=[sum(n > place for n in drafted.values()) for place in range(largest)],
            num_accepted_tokens_per_pos=[sum(accepted[n] > place for n in drafted) for place in range(largest)],
        )
    made = [SimpleNamespace(new_token_ids=[7] * count) for count in emitted]
    half = len(made) // 2
    return {
        0: SimpleNamespace(outputs=made[:half], scheduler_stats=SimpleNamespace(spec_decoding_stats=stats)),
        1: SimpleNamespace(outputs=made[half:], scheduler_stats=None),
    }
