"""How long sources are waited for. Used by every source that speaks over a network."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights.errors import WeightsError

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds, and bytes per second."""

    connect: float = 10.0
    read: float = 30.0
    """Most seconds of silence within an answer."""
    least_rate: float = 1024.0
    """An answer that brings less than this over `read` seconds counts as none: it would take days, and holds a
    connection meanwhile."""

    @property
    def listing(self) -> float:
        """Most seconds for all requests of an open: metadata of thousands of files come in a few seconds."""
        return 4 * self.read

    @classmethod
    def from_environment(cls) -> Patience:
        """The patience with `SPECULATIVE_SOURCE_TIMEOUT`, seconds, for `read`. Raises ValueError for what is no
        number."""
        seconds = os.environ.get("SPECULATIVE_SOURCE_TIMEOUT")
        whole = cls()
        return cls(connect=min(whole.connect, float(seconds)), read=float(seconds)) if seconds else whole


def within(seconds: float, uri: str, call: Callable[[], Result]) -> Result:
    """The result of `call()`; raises WeightsError after `seconds`: clients bound each read, but not an answer that
    comes byte by byte.

    The call is left to itself then, in a thread that does not keep the process alive.
    """
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:  # handed to the caller's thread, whatever it is
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failure:
        raise failure[0]
    if not outcome:
        raise WeightsError(
            Reason.SOURCE_UNREACHABLE,
            f"{uri}: no complete answer within {seconds:g} seconds",
            remedy="check the network, the proxy and the state of the source",
        )
    return outcome[0]
