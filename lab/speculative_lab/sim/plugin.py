"""The plug-in's own class of blocks, called from the compiled step: what is tried in a pod is tried here the same way.

Used by `deployment` where pods export telemetry. Compiled code reaches Python through two C functions, half a
microsecond a step; an error in them would be printed and dropped, so it is kept and raised when the loop returns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from speculative_operator.domain.table import BLOCK_STEPS, Trial
from speculative_operator.payload.speculative_blocks import Blocks

Rows = Sequence[tuple[int, int, int]]

_WHOLE = ctypes.c_int64
_K_FOR = ctypes.CFUNCTYPE(_WHOLE, _WHOLE, _WHOLE)
_COUNT = ctypes.CFUNCTYPE(None, _WHOLE, _WHOLE, _WHOLE, _WHOLE, ctypes.c_double, _WHOLE, _WHOLE, _WHOLE)


class Calls(NamedTuple):
    """What the compiled step calls. Plain numbers alone go in and out."""

    k_for: Any
    """(replica, requests that get a token) -> K."""
    count: Any
    """(replica, K verified, requests that got a token, scheduled, seconds, tokens, prompt tokens, requests remain)."""


class Plugins:
    """One plug-in for each replica, all with the same table."""

    def __init__(self, replicas: int, rows: Rows) -> None:
        self._rows, self._trials = rows, tuple[Trial, ...]()
        self._error: Exception | None = None
        self.blocks = [self._fresh() for _ in range(replicas)]
        self.calls = Calls(_K_FOR(self._k_for), _COUNT(self._count))

    def boot(self, replica: int) -> None:
        """A pod starts: nothing is counted yet."""
        self.blocks[replica] = self._fresh()

    def activate(self, rows: Rows, trials: tuple[Trial, ...]) -> None:
        """A new table file has reached every replica."""
        self._rows, self._trials = rows, trials
        for blocks in self.blocks:
            self._put(blocks)

    def check(self) -> None:
        """Raises what went wrong in a call."""
        if self._error is not None:
            raise self._error

    def _fresh(self) -> Blocks:
        blocks = Blocks()
        self._put(blocks)
        return blocks

    def _put(self, blocks: Blocks) -> None:
        trials = [(one.first, one.last, list(one.ks), one.share) for one in self._trials] or None
        blocks.put_in_force(self._rows, trials, BLOCK_STEPS)

    def _k_for(self, replica: int, decoding: int) -> int:
        try:
            return self.blocks[replica].k_for(decoding)
        except Exception as error:
            self._error = error
            return 0

    def _count(self, replica: int, *step: Any) -> None:
        blocks = self.blocks[replica]
        try:
            blocks.count(*step[:-1])
            if not step[-1]:
                blocks.idle()
        except Exception as error:
            self._error = error
