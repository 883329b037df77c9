"""The table file: which K to draft at how many scheduled requests, what is on trial, and where a trial returns to.

Mounted beside `speculative_scheduler`, which polls a `TableFile` before every step. Standard library alone, Python 3.9
and newer. The file is

    {"version": 9, "rows": [[1, 16, 4], [17, 256, 1]], "trial": {"seconds": 15, "version": 8, "rows": [[1, 256, 1]]}}

Rows are [first, last, K] by number of scheduled requests, from 1 on without gap; the last row holds beyond its end.
`trial`, where there is one, says when the rows end by themselves, and what is then in force. `"perRequest": true` asks
for caps by request (`speculative_requests`).
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
LONGEST_TRIAL = 3600.0
"""Seconds. The operator's last some tens of seconds; a file that says more is none of its own."""
_KEYS = frozenset({"version", "rows", "perRequest", "trial"})
_TRIAL_KEYS = frozenset({"seconds", "version", "rows"})

_log = logging.getLogger("vllm.speculative_scheduler")

Rows = list[tuple[int, int, int]]


class BadTableError(ValueError):
    """A table file that must not be used; the message says why."""


class Table(NamedTuple):
    """What a table file says, or what its trial returns to."""

    version: int
    rows: Rows
    dense: list[int]
    """K by batch size, index 0 unused."""
    per_request: bool = False
    trial_seconds: float | None = None
    """How long `rows` hold at most; None: until another file comes."""
    base: Table | None = None
    """What holds from then on."""


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
    version, rows = _version_and_rows(data, "the file", known)
    _refuse_unknown(data, _KEYS, "the file")
    asked = data.get("perRequest", False)
    if not isinstance(asked, bool):
        raise BadTableError('"perRequest" must be true or false')
    table = Table(version, rows, _dense(rows, max_batch), asked)
    return table if "trial" not in data else _on_trial(table, data["trial"], known, max_batch)


def _on_trial(table: Table, trial: Any, allowed: frozenset[int], max_batch: int) -> Table:
    version, rows = _version_and_rows(trial, '"trial"', allowed)
    _refuse_unknown(trial, _TRIAL_KEYS, '"trial"')
    seconds = trial.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= LONGEST_TRIAL:
        raise BadTableError(f'"trial": seconds {seconds!r} must be a number above 0, {LONGEST_TRIAL:.0f} at most')
    if version >= table.version:
        raise BadTableError(f'"trial": version {version} must be older than that of the file, {table.version}')
    base = Table(version, rows, _dense(rows, max_batch), table.per_request)
    return table._replace(trial_seconds=float(seconds), base=base)


def _version_and_rows(data: Any, where: str, allowed: frozenset[int]) -> tuple[int, Rows]:
    version: Any = data.get("version") if isinstance(data, dict) else None
    rows: Any = data.get("rows") if isinstance(data, dict) else None
    if not _whole(version) or version < 0 or not isinstance(rows, list) or not rows:
        raise BadTableError(f'{where} must be {{"version": N, "rows": [[first, last, K], ...]}}')
    return version, _rows(rows, allowed)


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
        self._trial_ends: float | None = None
        self._seen: tuple[int, int, int] | None = None
        self._text: str | None = None
        self._warned = ""

    def poll(self) -> Table | None:
        """The table that has come into force with this call, else None. Cheap: call it before every step."""
        now = self._clock()
        if now < self._next:
            return None
        self._next = now + POLL_SECONDS
        table = None
        try:
            table = self._look(now)
        except BadTableError as error:
            self._warn(f"{self.path} {error}")
        except Exception as error:
            self._warn(f"{self.path} cannot be read: {error!r}")
        return table or self._end_of_trial(now)

    def _look(self, now: float) -> Table | None:
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
        if table.base is not None and self.table is None:
            table = table.base  # an engine that starts does not know how long the trial has lasted: it is over
        self._trial_ends = None if table.trial_seconds is None else now + table.trial_seconds
        return self._put_in_force(table)

    def _end_of_trial(self, now: float) -> Table | None:
        """What the trial returns to, once its time is over, whatever has become of the file and of who wrote it."""
        ends, running = self._trial_ends, self.table
        if ends is None or now < ends or running is None or running.base is None:
            return None
        self._trial_ends = None
        return self._put_in_force(running.base)

    def _put_in_force(self, table: Table) -> Table:
        self.table, self.since = table, self._wall()
        # the engine's log shows whole seconds; how fast a table arrives is worth more
        moment = datetime.fromtimestamp(self.since, timezone.utc).isoformat(timespec="milliseconds")  # noqa: UP017
        limit = f", on trial for {table.trial_seconds:g} s" if table.trial_seconds is not None else ""
        text = "speculative: table version %d in force since %s: %s%s"
        self._logger.info(text, table.version, moment, show(table.rows), limit)
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
