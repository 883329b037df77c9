"""What a pod asks a node for, as the scheduler counts it. Read by `pods`, and by the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from speculative_operator.domain.formats import quantity
from speculative_operator.domain.reading import mapping, mappings, text

Amounts = Mapping[str, Decimal]
"""Name of a resource -> its amount."""


def request_of(pod: Mapping[str, Any]) -> Amounts | None:
    """What the scheduler counts for a pod: its containers together with the init containers that stay, or the largest
    other init container with those, whichever is more, and the overhead. None where a quantity is none."""
    spec = mapping(pod, "spec")
    init = tuple(mappings(spec, "initContainers"))
    staying = [_amounts_of(one) for one in init if text(one, "restartPolicy") == "Always"]
    passing = [_amounts_of(one) for one in init if text(one, "restartPolicy") != "Always"]
    running = [_amounts_of(one) for one in mappings(spec, "containers")]
    overhead = _amounts(mapping(spec, "overhead"))
    if any(one is None for one in (*staying, *passing, *running, overhead)):
        return None
    known = [one for one in staying if one is not None]
    steady = _sum((*known, *(one for one in running if one is not None)))
    starts = [_sum((*known, one)) for one in passing if one is not None]
    every = {name for part in (steady, *starts) for name in part}
    most = {name: max(each.get(name, Decimal(0)) for each in (steady, *starts)) for name in every}
    return _sum((most, overhead or {}))


def _amounts_of(container: Mapping[str, Any]) -> Amounts | None:
    """Requests of one container; where there is only a limit, that is the request."""
    limits, requests = mapping(container, "resources", "limits"), mapping(container, "resources", "requests")
    return _amounts({**limits, **requests})


def _amounts(given: Mapping[str, Any]) -> Amounts | None:
    found = {str(name): quantity(value) for name, value in given.items()}
    known = {name: value for name, value in found.items() if value is not None and value >= 0}
    return known if len(known) == len(found) else None


def _sum(parts: Iterable[Amounts]) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, Decimal(0)) + amount
    return total
