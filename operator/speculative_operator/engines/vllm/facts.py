"""What the sources of vLLM's releases say, release by release. Asked by `engines.pairs`.

`data/facts.csv` was read from the sources by `python -m realengine.facts` (dev/realengine): (fact, name, first release
that has it, first one read after that which has it no more). Its row `Read` tells the first and last release read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from speculative_operator.engines.matrix.rows import Version, parse_version, rows_of
from speculative_operator.pairing.pair import Fact

READ = "Read"
_NEVER: Version = (9999, 0, 0)
_HELD = frozenset({Fact.RENAMED})
"""Lists that count beyond the last release read, like rules. Of the others a later release may have learned more."""


@lru_cache(64)
def facts_of(version: Version) -> Mapping[Fact, frozenset[str]]:
    """Names for each fact of a release; one empty name for a rule that holds."""
    read = version[:2] <= last_read()[:2]
    found: dict[Fact, set[str]] = {}
    for fact, name, since, before in _rows():
        if since <= version < before and (read or not name or fact in _HELD):
            found.setdefault(fact, set()).add(name)
    return {fact: frozenset(names) for fact, names in found.items()}


@cache
def last_read() -> Version:
    """The last release whose source was read."""
    return next(parse_version(row["before"]) or _NEVER for row in rows_of("facts") if row["fact"] == READ)


@cache
def _rows() -> tuple[tuple[Fact, str, Version, Version], ...]:
    return tuple(
        (Fact(row["fact"]), row["name"], parse_version(row["since"]) or _NEVER, parse_version(row["before"]) or _NEVER)
        for row in rows_of("facts")
        if row["fact"] != READ
    )
