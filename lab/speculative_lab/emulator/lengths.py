"""How many tokens are drafted for the next step: what differs between engines, behind one small protocol (pure).

`core` asks after every step. vLLM and TensorRT-LLM look a table up; the adaptive law of SGLang is in `sglang.adaptive`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from speculative_lab.emulator.batch import Ints


class DraftLengths(Protocol):
    """Decides K. Called in this order once per step."""

    def verified(self, accepted: Ints) -> None:
        """`accepted` drafts of each request that decoded in this step; nothing is called when none did."""

    def next(self, scheduled: int, decoding: int) -> int:
        """K for the next step: `scheduled` requests had tokens in this one, `decoding` will decode in the next."""


@dataclass(frozen=True, slots=True)
class Constant:
    """The same K always."""

    k: int

    def verified(self, accepted: Ints) -> None:
        """Nothing is learned."""

    def next(self, scheduled: int, decoding: int) -> int:
        return self.k


@dataclass(frozen=True, slots=True)
class ByScheduled:
    """K by the requests scheduled in this step. The table reaches as far as the engine's seats."""

    dense: Sequence[int]
    """K for each number of requests; index 0 is not used."""

    def verified(self, accepted: Ints) -> None:
        """Nothing is learned."""

    def next(self, scheduled: int, decoding: int) -> int:
        return self.dense[scheduled]
