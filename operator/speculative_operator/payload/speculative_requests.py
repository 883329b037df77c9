"""Requests whose drafts keep being rejected are no longer verified, while all others are. Synchronous scheduler only.

Mounted beside `speculative_scheduler`, which asks for it where the table file says `"perRequest": true`. Standard
library alone, Python 3.9 and newer. Greedy outputs do not change: a draft that is not verified is a token that the next
steps generate. Measured and judged in docs/decisions/0007-per-request-caps.md, where the constants come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WEIGHT = 0.1
"""Of the newest verification in a request's averages."""
PRIOR = 0.7
"""Share of accepted drafts that a new request is credited with, worth one examined draft."""
LOW, HIGH = 0.1, 0.2
"""Below LOW a request's drafts are withheld, until a probe lifts it to HIGH."""
PROBE_EVERY = 16
"""Withheld drafts between two steps in which one token is verified, to notice that the text has changed."""
LEAST_BATCH = 8
"""With fewer requests in a step, verification costs next to nothing: nothing is withheld."""


class _Record:
    """One request: averages of accepted and of examined drafts. A draft is examined up to its first rejection."""

    __slots__ = ("accepted", "examined", "skipped", "withheld")

    def __init__(self) -> None:
        self.accepted, self.examined = PRIOR, 1.0
        self.withheld = False
        self.skipped = 0

    def verified(self, drafted: int, accepted: int) -> None:
        self.accepted += WEIGHT * (accepted - self.accepted)
        self.examined += WEIGHT * (min(accepted + 1, drafted) - self.examined)
        self.withheld = self.accepted < (HIGH if self.withheld else LOW) * self.examined

    def allowed(self, drafted: int) -> int:
        """How many of `drafted` tokens to verify in the next step."""
        if not self.withheld:
            return drafted
        self.skipped += 1
        if self.skipped < PROBE_EVERY:
            return 0
        self.skipped = 0
        return 1


class Caps:
    """The records of all requests of one scheduler. Every method is called by the engine's thread."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self._withheld: dict[str, tuple[int, int]] = {}
        """Request -> (first, end) of the positions withheld from its next step."""

    def sampled(self, plan: Any, model_output: Any, requests: Mapping[str, Any]) -> None:
        """A step's results, before vLLM looks at them (it cuts the lists of tokens at a stop).

        `plan` and `model_output` are what `update_from_output` gets, `requests` the scheduler's.
        """
        tokens, index = model_output.sampled_token_ids, model_output.req_id_to_index
        for name, drafts in plan.scheduled_spec_decode_tokens.items():
            emitted = len(tokens[index[name]]) if tokens else 0
            if emitted:
                record = self._records.get(name)
                if record is None:
                    record = self._records[name] = _Record()
                record.verified(len(drafts), emitted - 1)
        if len(self._records) > 2 * len(requests) + 64:
            self._records = {name: record for name, record in self._records.items() if name in requests}

    def drafted(self, names: list[str], requests: Mapping[str, Any]) -> None:
        """vLLM has given each request of `names` its drafts for the next step: take away what is not worth it."""
        self._withheld.clear()
        if len(names) < LEAST_BATCH:
            return
        for name in names:
            record = self._records.get(name)
            if record is None or not record.withheld:
                continue
            request = requests.get(name)
            if request is None or not request.spec_token_ids:
                continue
            offered = len(request.spec_token_ids)
            kept = record.allowed(offered)
            # a new list: vLLM may hold the old one elsewhere
            request.spec_token_ids = request.spec_token_ids[:kept]
            self._withheld[name] = (kept, offered)

    def withheld(self, plan: Any, positions: int) -> list[int]:
        """By position, how many drafts the requests of `plan` were not given; empty where none."""
        if not self._withheld:
            return []
        counts = [0] * positions
        for name in plan.num_scheduled_tokens:
            first, end = self._withheld.get(name, (0, 0))
            for position in range(first, min(end, positions)):
                counts[position] += 1
        return counts
