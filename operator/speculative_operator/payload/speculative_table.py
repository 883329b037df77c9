"""The table file: which K to draft for how many decoding requests, and what may be tried where.

Mounted beside `speculative_scheduler`, which polls a `TableFile` before every step. Standard library alone. The file is

    {"version": 9, "rows": [[1, 16, 4], [17, 256, 1]], "try": {"steps": 16, "rows": [[5, 8, [3, 5], 0.05]]}}
    {"version": 0, "rows": [[1, 256, 0]], "until": 1795852800}

Rows are [first, last, K] by number of decoding requests, from 1 on without gap; the last row holds beyond its end.
`try`, where there is one, says which K the engine may try in blocks of so many steps, at [first, last, [K, ...], share]
(`speculative_blocks`). `until`, a unix time, has the table before come back then, though nobody writes the file again.
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
LONGEST_SECONDS = 1800.0
"""That a table with `until` may be in force: so long may clocks and a delivery add to what the operator allows."""
FEWEST_STEPS, MOST_STEPS = 4, 256
"""Of a block: fewer are mostly the step after the change of K, more are seldom all of one load."""

_log = logging.getLogger("vllm.speculative_scheduler")

Clock = Callable[[], float]
"""Seconds."""
Row = tuple[int, int, int]
"""First and last number of decoding requests, K."""
TryRow = tuple[int, int, list[int], float]
"""First and last number of decoding requests, K to try, share of the steps there."""


class BadTableError(ValueError):
    """A table file that must not be used; the message says why."""


class Table(NamedTuple):
    """What a table file says."""

    version: int
    rows: list[Row]
    dense: list[int]
    """K by batch size, index 0 unused."""
    tries: list[TryRow] | None = None
    steps: int = 0
    """Of a tried block."""
    since: float = 0.0
    """Unix time since when it is in force."""
    until: float = 0.0
    """Unix time at which the table before it comes back; 0: never."""

    def __str__(self) -> str:
        """`1-16:4 17-256:1, tries 5-8:3,5`."""
        rows = " ".join(f"{first}-{last}:{k}" for first, last, k in self.rows)
        tries = " ".join(f"{first}-{last}:{','.join(map(str, ks))}" for first, last, ks, _ in self.tries or ())
        return f"{rows}, tries {tries}" if tries else rows


def parse(text: str, allowed: Iterable[int], max_batch: int) -> Table:
    """The table of a file; `allowed` are the K prepared at start, `max_batch` the most requests scheduled at once.

    Stricter than the engine, which would clamp a K, truncate a float and fill a gap: here each is an error. So is a key
    that is not known: it may change what the others mean. Raises BadTableError.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadTableError(f"is no JSON ({error})") from None
    version, rows, tried, until = _values(data, "the file", "version", "rows", "try", "until")
    if type(version) is not int or version < 0 or not isinstance(rows, list) or not rows:
        raise BadTableError('must be {"version": N, "rows": [[first, last, K], ...]}')
    known = frozenset(allowed)
    checked: list[Row] = []
    for row in rows:
        checked.append(_row(row, checked[-1][1] + 1 if checked else 1, known))
    dense = [0]
    for _, last, k in checked:
        dense += [k] * (min(last, max_batch) + 1 - len(dense))
    dense += [checked[-1][2]] * (max_batch + 1 - len(dense))
    if "until" in data and (type(until) not in (int, float) or not 0 < until < 1 << 40):
        raise BadTableError(f'"until": {until!r} must be a unix time')
    tries, steps = _tries(tried, known) if "try" in data else (None, 0)
    return Table(version, checked, dense, tries, steps, until=float(until or 0))


def _values(data: Any, where: str, *keys: str) -> tuple[Any, ...]:
    """Those of an object's keys; None of one that it lacks, and of all where it is none."""
    if not isinstance(data, dict):
        return (None,) * len(keys)
    if unknown := sorted(data.keys() - keys):
        raise BadTableError(f"{where} has {unknown[0]!r}, which is not known here; those are {sorted(keys)}")
    return tuple(map(data.get, keys))


def _are_whole_numbers(values: Any) -> bool:
    """Whether it is a list of whole numbers."""
    return isinstance(values, list) and all(type(one) is int for one in values)


def _row(row: Any, expected: int, allowed: frozenset[int]) -> Row:
    if not _are_whole_numbers(row) or len(row) != 3:
        raise BadTableError(f"row {row!r} must be three whole numbers [first, last, K]")
    first, last, k = row
    if first != expected or last < first:
        raise BadTableError(f"row {row!r} must start at {expected} and not end before it starts")
    if k not in allowed:
        raise BadTableError(f"row {row!r}: K {k} was not prepared at start; those are {sorted(allowed)}")
    return first, last, k


def _tries(data: Any, allowed: frozenset[int]) -> tuple[list[TryRow], int]:
    steps, rows = _values(data, '"try"', "steps", "rows")
    if not isinstance(rows, list):
        raise BadTableError('"try" must be {"steps": N, "rows": [[first, last, [K, ...], share], ...]}')
    if type(steps) is not int or not FEWEST_STEPS <= steps <= MOST_STEPS:
        raise BadTableError(f'"try": steps {steps!r} must be a whole number from {FEWEST_STEPS} to {MOST_STEPS}')
    checked: list[TryRow] = []
    for row in rows:
        checked.append(_try_row(row, checked[-1][1] if checked else 0, allowed))
    return checked, steps


def _try_row(row: Any, before: int, allowed: frozenset[int]) -> TryRow:
    if not isinstance(row, list) or len(row) != 4 or not _are_whole_numbers(row[:2]):
        raise BadTableError(f'"try": row {row!r} must be [first, last, [K, ...], share]')
    first, last, ks, share = row
    numbers, fair = _are_whole_numbers(ks), type(share) in (int, float) and 0 < share <= LARGEST_SHARE
    problems = (
        (not 1 <= first <= last, " must start at 1 or above and not end before it starts"),
        (first <= before, f" must start after {before}, where the row before it ends"),
        (not numbers or not ks or len(set(ks)) < len(ks), f": {ks!r} must be a list of different K"),
        (numbers and not allowed.issuperset(ks), f": a K was not prepared at start; those are {sorted(allowed)}"),
        (not fair, f": share {share!r} must be above 0 and at most {LARGEST_SHARE}"),
    )
    for wrong, why in problems:
        if wrong:
            raise BadTableError(f'"try": row {row!r}{why}')
    return first, last, ks, float(share)


class TableFile:
    """A table file that is looked at now and then. The last good table stays; nothing is ever raised.

    A mounted ConfigMap replaces a link, so it is the file behind the path whose time, inode and size tell of a change.
    One thread at a time may call `poll`.
    """

    def __init__(
        self, path: str, allowed: Iterable[int], max_batch: int, clock: Clock = time.monotonic, wall: Clock = time.time
    ) -> None:
        self.path, self.allowed, self._max_batch = path, frozenset(allowed), max_batch
        self._clock, self._wall = clock, wall
        self.table: Table | None = None
        """In force; None before the first good file."""
        self._before: Table | None = None
        """What comes back when `table` ends."""
        self._next = 0.0
        self._seen: tuple[int, int, int] | None = None
        self._text: str | None = None
        self._warned = ""

    def poll(self) -> Table | None:
        """The table that has come into force with this call, else None. Cheap where no look is due: for every step."""
        now = self._clock()
        if now < self._next:
            return None
        self._next, problem = now + POLL_SECONDS, ""
        try:
            return self._look()
        except BadTableError as error:
            problem = f"{self.path} {error}"
        except Exception as error:
            problem = f"{self.path} cannot be read: {error!r}"
        if problem != self._warned:  # one line per problem, not one per look
            self._warned = problem
            stays = "the table of the start" if self.table is None else f"table version {self.table.version}"
            _log.warning("speculative: %s; %s stays in force", problem, stays)
        return None

    def _look(self) -> Table | None:
        if self.table is not None and self._before is not None and self._wall() >= self.table.until:
            return self._put_in_force(self._before)
        found = os.stat(self.path)  # noqa: PTH116
        signature = (found.st_mtime_ns, found.st_ino, found.st_size)
        if signature == self._seen:
            return None
        with open(self.path, "rb") as file:  # noqa: PTH123
            raw = file.read(LARGEST_FILE + 1)
        self._seen = signature  # only now: a file that could not be read is tried again
        if len(raw) > LARGEST_FILE:
            raise BadTableError(f"is larger than {LARGEST_FILE} bytes")
        text = raw.decode("utf-8", "replace")
        table = parse(text, self.allowed, self._max_batch) if text != self._text else None
        self._text, self._warned = text, ""
        if table is None:
            return None
        if table.until:
            if self.table is None or not 0 < table.until - self._wall() <= LONGEST_SECONDS:
                raise BadTableError(f'"until": {table.until:.0f} is past, far ahead, or has no table to come back')
            before = self._before or self.table
            return self._put_in_force(table, before)
        return self._put_in_force(table)

    def _put_in_force(self, table: Table, before: Table | None = None) -> Table:
        self.table, self._before = (table := table._replace(since=self._wall())), before
        # the engine's log shows whole seconds; how fast a table arrives is worth more
        moment = datetime.fromtimestamp(table.since, timezone.utc).isoformat(timespec="milliseconds")  # noqa: UP017
        _log.info("speculative: table version %d in force since %s: %s", table.version, moment, table)
        return table
