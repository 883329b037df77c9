"""The running requests as columns of numpy arrays, in order of admission, so that a step costs no loop over them.

Owned by `core`. Columns are views: rows 0..size-1 are live, removal compacts in place and keeps the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from speculative_lab.emulator.requests import Request

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

_GENERATED, _STEPS = 2, 9


class Batch:
    """Rows of at most `capacity` running requests.

    Columns: `todo` prompt tokens still to compute (0: decoding); `context` tokens whose KV is computed; `generated` and
    `target` output tokens; `drafts` draft tokens to verify in the next step; `blocks` KV blocks held; `workload` and
    `tendency` row and bin of the acceptance table; `steps` in which it decoded; `streams` 1 when someone reads token by
    token; `unseen` tokens of its context that a drafter which is left out has missed; `last_token` engine-clock time of
    the newest token.
    """

    todo: Ints
    context: Ints
    generated: Ints
    target: Ints
    drafts: Ints
    blocks: Ints
    workload: Ints
    tendency: Ints
    streams: Ints
    steps: Ints
    unseen: Ints
    last_token: Floats

    def __init__(self, capacity: int) -> None:
        self.size = 0
        self.requests: list[Request] = []
        self._table = np.zeros((11, capacity), dtype=np.int64)
        self._last_token = np.zeros(capacity)
        self._resize(0)

    def _resize(self, size: int) -> None:
        self.size = size
        live = self._table[:, :size]
        (self.todo, self.context, self.generated, self.target, self.drafts) = live[:5]
        (self.blocks, self.workload, self.tendency, self.streams, self.steps, self.unseen) = live[5:]
        self.last_token = self._last_token[:size]

    def append(self, request: Request, blocks: int) -> int:
        """Admit a request at the end, nothing of it computed; its row."""
        row = self.size
        self.requests.append(request)
        self._table[:, row] = (
            request.prompt_tokens + request.generated,
            0,
            request.generated,
            request.target,
            0,
            blocks,
            request.workload,
            request.tendency,
            int(request.streams),
            request.steps,
            0,
        )
        self._last_token[row] = request.last_token or 0.0
        self._resize(row + 1)
        return row

    def pop_tail(self, first: int) -> list[Request]:
        """Take out every row from `first` on, in order."""
        taken = self.requests[first:]
        for row, request in enumerate(taken, start=first):
            self._write_back(row, request)
        del self.requests[first:]
        self._resize(first)
        return taken

    def remove(self, rows: Sequence[int]) -> list[Request]:
        """Take out these rows; the others keep their order."""
        gone = set(rows)
        taken = [self.requests[row] for row in rows]
        for row, request in zip(rows, taken, strict=True):
            self._write_back(row, request)
        kept = [row for row in range(self.size) if row not in gone]
        self.requests = [self.requests[row] for row in kept]
        self._table[:, : len(kept)] = self._table[:, kept]
        self._last_token[: len(kept)] = self._last_token[kept]
        self._resize(len(kept))
        return taken

    def _write_back(self, row: int, request: Request) -> None:
        request.generated = int(self._table[_GENERATED, row])
        request.steps = int(self._table[_STEPS, row])
        if request.generated:
            request.last_token = float(self._last_token[row])
