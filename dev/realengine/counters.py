"""The engine's own counters as plain numbers, read from its `/metrics`: what the assertions are made on. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

_NAMES = {
    "vllm:spec_decode_num_drafts_total": "drafts",
    "vllm:spec_decode_num_draft_tokens_total": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted",
    "vllm:generation_tokens_total": "generated",
    "vllm:iteration_tokens_total_count": "steps",
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
}
PREFIX = "speculative_payload_"


@dataclass(frozen=True, slots=True)
class Counters:
    """One look at one engine. Tokens and drafts since its start; requests at this moment."""

    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted: float = 0.0
    generated: float = 0.0
    running: float = 0.0
    waiting: float = 0.0
    steps: float = 0.0

    def since(self, before: Counters) -> Counters:
        """What was counted between two looks; requests as they are now."""
        return Counters(
            self.drafts - before.drafts,
            self.draft_tokens - before.draft_tokens,
            self.accepted - before.accepted,
            self.generated - before.generated,
            self.running,
            self.waiting,
            self.steps - before.steps,
        )

    @property
    def k(self) -> float:
        """Drafted tokens per draft: the K that was verified; 0 where nothing was drafted."""
        return self.draft_tokens / self.drafts if self.drafts else 0.0


def read(text: str) -> Counters:
    """The counters of a Prometheus exposition. A series that is absent counts as 0: an engine without drafts has none
    of drafts."""
    found = dict.fromkeys(_NAMES.values(), 0.0)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = _NAMES.get(sample.name)
            if name is not None:
                found[name] += sample.value
    return Counters(**found)


def payload(text: str) -> dict[str, float]:
    """The payload's gauges by name without prefix, where its exposition has them."""
    return {
        sample.name.removeprefix(PREFIX): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(PREFIX) and family.type == "gauge"
    }
