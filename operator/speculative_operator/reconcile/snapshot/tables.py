"""Tables as the cluster holds them: in a ConfigMap, in an annotation, in the status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain.reading import at, items, parse_json, text, whole
from speculative_operator.domain.table import KTable, TableError, Trial

LARGEST_VERSION = 2**31
MAX_BATCH = 65_536
"""Most requests that a table may cover; larger tables are not read: no engine schedules as many requests."""


@dataclass(frozen=True, slots=True)
class Written:
    """A table with its version, as a ConfigMap or an annotation has it: whoever wrote it."""

    table: KTable | None = None
    """None where the rows are invalid."""
    version: int = 0
    trials: tuple[Trial, ...] = ()
    removed: bool = False
    """The table waits for the return of the speculator."""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The table of pods of a former pair."""

    pair: str
    """Label of its pods."""
    config: str
    """Name of the ConfigMap that they read."""
    table: KTable
    version: int
    ks: tuple[int, ...]
    """K that are known to have been prepared at their start."""
    reason: str = ""
    """Why it was changed last, since its pods leave; empty where it was not."""

    def to_status(self) -> dict[str, Any]:
        """An entry of `status.leaving`."""
        block: dict[str, Any] = {
            "pair": self.pair,
            "configMap": self.config,
            "table": self.table.rows(),
            "tableVersion": self.version,
            "preparedK": list(self.ks),
            "reason": self.reason,
        }
        return {key: value for key, value in block.items() if value not in (None, "")}


def read_table(content: str) -> Written:
    """The table in JSON text; parts that are invalid are left out."""
    data = parse_json(content)
    return Written(
        table_of(items(data, "rows")),
        whole(data, "version"),
        _trials_of(items(data, "try", "rows")),
        at(data, "speculatorRemoved") is True,
        text(data, "digest"),
    )


def table_of(rows: Any) -> KTable | None:
    """The table of rows that others may have written; None where they are invalid."""
    try:
        table = KTable.from_rows(rows)
    except (TableError, TypeError):
        return None
    return table if table.max_batch <= MAX_BATCH else None


def read_leaving(entries: Iterable[Mapping[str, Any]]) -> Iterator[Leaving]:
    """The entries of `status.leaving`; invalid ones are left out."""
    for entry in entries:
        table, version = table_of(items(entry, "table")), whole(entry, "tableVersion")
        if table is None or not 0 < version <= LARGEST_VERSION:
            continue
        ks = tuple(sorted({k for k in items(entry, "preparedK") if type(k) is int and k >= 0} | table.ks | {0}))
        config, why = text(entry, "configMap"), text(entry, "reason")
        yield Leaving(text(entry, "pair"), config, table, version, ks, why)


def _trials_of(rows: Iterable[Any]) -> tuple[Trial, ...]:
    """The trials in rows that others may have written; invalid rows are left out."""
    found = (one for one in rows if isinstance(one, list) and len(one) == 4 and isinstance(one[2], list))
    return tuple(
        Trial(first, last, tuple(ks), float(share))
        for first, last, ks, share in found
        if all(type(one) is int for one in (first, last, *ks)) and type(share) in (int, float)
    )
