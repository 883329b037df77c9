"""The table file: which K to draft for how many decoding requests, and what may be tried where.

Mounted beside `speculative_scheduler`, which polls a `TableFile` before every step. Standard library alone, Python 3.9
and newer. The file is

    {"version": 9, "rows": [[1, 16, 4], [17, 256, 1]], "try": {"steps": 16, "rows": [[5, 8, [3, 5], 0.05]]}}

Rows are [first, last, K] by number of decoding requests, from 1 on without gap; the last row holds beyond its end.
`try`, where there is one, says which K the engine may try in blocks of so many steps, at [first, last, [K, ...], share]
(`speculative_blocks`).
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Any, NamedTuple

POLL_SECONDS = 0.2
LARGEST_FILE = 1 << 20
LARGEST_SHARE = 0.4
"""Of the steps of a row. With more, a tried block would not have a block at the table's K on each side."""
FEWEST_STEPS, MOST_STEPS = 4, 256
"""Of a block: fewer are mostly the step after the change of K, more are seldom all of one load."""
_KEYS = frozenset({"version", "rows", "try"})
_TRY_KEYS = frozenset({"steps", "rows"})

_log = logging.getLogger("vllm.speculative_scheduler")

Rows = list[tuple[int, int, int]]
TryRows = list[tuple[int, int, list[int], float]]
"""First and last number of decoding requests, K to try, share of the steps there."""


class BadTableError(ValueError):
    """A table file that must not be used; the message says why."""


class Table(NamedTuple):
    """What a table file says."""

    version: int
    rows: Rows
    dense: list[int]
    """K by batch size, index 0 unused."""
    tries: TryRows | None = None
    steps: int = 0
    """Of a tried block."""


def parse(text: str, allowed: Iterable[int], max_batch: int) -> Table:
    """The table of a file; `allowed` are the K prepared at start, `max_batch` the most requests scheduled at once.

    Stricter than the engine, which would clamp a K, truncate a float and fill a gap: here each is an error. So is a key
    that is not known: it may change what the others mean. Raises BadTableError.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadTableError(f"is no JSON ({error})") from None
    known = frozenset(allowed)
    version: Any = data.get("version") if isinstance(data, dict) else None
    rows: Any = data.get("rows") if isinstance(data, dict) else None
    if not _whole(version) or version < 0 or not isinstance(rows, list) or not rows:
        raise BadTableError('must be {"version": N, "rows": [[first, last, K], ...]}')
    _refuse_unknown(data, _KEYS, "the file")
    checked = _rows(rows, known)
    table = Table(version, checked, _dense(checked, max_batch))
    if "try" not in data:
        return table
    steps, tries = _tries(data["try"], known)
    return table._replace(tries=tries, steps=steps)


def _tries(data: Any, allowed: frozenset[int]) -> tuple[int, TryRows]:
    steps: Any = data.get("steps") if isinstance(data, dict) else None
    rows: Any = data.get("rows") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        raise BadTableError('"try" must be {"steps": N, "rows": [[first, last, [K, ...], share], ...]}')
    _refuse_unknown(data, _TRY_KEYS, '"try"')
    if not _whole(steps) or not FEWEST_STEPS <= steps <= MOST_STEPS:
        raise BadTableError(f'"try": steps {steps!r} must be a whole number from {FEWEST_STEPS} to {MOST_STEPS}')
    checked: TryRows = []
    for row in rows:
        first, last, ks, share = _try_row(row, allowed)
        if checked and first <= checked[-1][1]:
            raise BadTableError(f'"try": row {row!r} must start after {checked[-1][1]}, where the row before it ends')
        checked.append((first, last, ks, share))
    return steps, checked


def _try_row(row: Any, allowed: frozenset[int]) -> tuple[int, int, list[int], float]:
    if not isinstance(row, list) or len(row) != 4 or not _whole(row[0]) or not _whole(row[1]):
        raise BadTableError(f'"try": row {row!r} must be [first, last, [K, ...], share]')
    first, last, ks, share = row
    if not 1 <= first <= last:
        raise BadTableError(f'"try": row {row!r} must start at 1 or above and not end before it starts')
    if not isinstance(ks, list) or not ks or not all(map(_whole, ks)) or len(set(ks)) < len(ks):
        raise BadTableError(f'"try": row {row!r}: {ks!r} must be a list of different K')
    if not allowed.issuperset(ks):
        raise BadTableError(f'"try": row {row!r}: a K was not prepared at start; those are {sorted(allowed)}')
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= LARGEST_SHARE:
        raise BadTableError(f'"try": row {row!r}: share {share!r} must be above 0 and at most {LARGEST_SHARE}')
    return first, last, ks, float(share)


def _refuse_unknown(data: dict[str, Any], known: frozenset[str], where: str) -> None:
    unknown = sorted(set(data) - known)
    if unknown:
        raise BadTableError(f"{where} has {unknown[0]!r}, which is not known here; those are {sorted(known)}")


def _rows(rows: list[Any], allowed: frozenset[int]) -> Rows:
    checked: Rows = []
    expected = 1
    for row in rows:
        if not isinstance(row, list) or len(row) != 3 or not all(_whole(cell) for cell in row):
            raise BadTableError(f"row {row!r} must be three whole numbers [first, last, K]")
        first, last, k = row
        if first != expected or last < first:
            raise BadTableError(f"row {row!r} must start at {expected} and not end before it starts")
        if k not in allowed:
            raise BadTableError(f"row {row!r}: K {k} was not prepared at start; those are {sorted(allowed)}")
        checked.append((first, last, k))
        expected = last + 1
    return checked


def _dense(rows: Rows, max_batch: int) -> list[int]:
    dense = [0] * (max_batch + 1)
    for first, last, k in rows:
        for batch in range(first, min(last, max_batch) + 1):
            dense[batch] = k
    _, end, k = rows[-1]
    for batch in range(end + 1, max_batch + 1):
        dense[batch] = k
    return dense


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class TableFile:
    """A table file that is looked at now and then. The last good table stays; nothing is ever raised.

    A mounted ConfigMap replaces a link, so it is the file behind the path whose time, inode and size tell of a change.
    One thread at a time may call `poll`.
    """

    def __init__(
        self,
        path: str,
        allowed: Iterable[int],
        max_batch: int,
        clock: Callable[[], float] = time.monotonic,
        logger: logging.Logger = _log,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self.table: Table | None = None
        """In force; None before the first good file."""
        self.since = 0.0
        """Unix time since when."""
        self.allowed = frozenset(allowed)
        self._max_batch = max_batch
        self._clock = clock
        self._logger = logger
        self._wall = wall
        self._next = 0.0
        self._seen: tuple[int, int, int] | None = None
        self._text: str | None = None
        self._warned = ""

    def due(self) -> bool:
        """Whether `poll` would look at the file. Cheap: for every step."""
        return self._clock() >= self._next

    def poll(self) -> Table | None:
        """The table that has come into force with this call, else None."""
        now = self._clock()
        if now < self._next:
            return None
        self._next = now + POLL_SECONDS
        try:
            return self._look()
        except BadTableError as error:
            self._warn(f"{self.path} {error}")
        except Exception as error:
            self._warn(f"{self.path} cannot be read: {error!r}")
        return None

    def _look(self) -> Table | None:
        found = os.stat(self.path)  # noqa: PTH116
        signature = (found.st_mtime_ns, found.st_ino, found.st_size)
        if signature == self._seen:
            return None
        with open(self.path, "rb") as file:  # noqa: PTH123
            raw = file.read(LARGEST_FILE + 1)
        # Only now: a file that could not be read is tried again.
        self._seen = signature
        if len(raw) > LARGEST_FILE:
            raise BadTableError(f"is larger than {LARGEST_FILE} bytes")
        text = raw.decode("utf-8", "replace")
        if text == self._text:
            self._warned = ""
            return None
        table = parse(text, self.allowed, self._max_batch)
        self._text, self._warned = text, ""
        self.table, self.since = table, self._wall()
        # the engine's log shows whole seconds; how fast a table arrives is worth more
        moment = datetime.fromtimestamp(self.since, timezone.utc).isoformat(timespec="milliseconds")  # noqa: UP017
        tries = f", tries {show_tries(table.tries)}" if table.tries else ""
        text = "speculative: table version %d in force since %s: %s%s"
        self._logger.info(text, table.version, moment, show(table.rows), tries)
        return table

    def _warn(self, problem: str) -> None:
        """One line per problem, not one per look."""
        if problem != self._warned:
            self._warned = problem
            stays = "the table of the start" if self.table is None else f"table version {self.table.version}"
            self._logger.warning("speculative: %s; %s stays in force", problem, stays)


def show(rows: Rows) -> str:
    """`1-16:4 17-256:1`."""
    return " ".join(f"{first}-{last}:{k}" for first, last, k in rows)


def show_tries(rows: TryRows) -> str:
    """`5-8:3,5`."""
    return " ".join(f"{first}-{last}:{','.join(map(str, ks))}" for first, last, ks, _ in rows)
