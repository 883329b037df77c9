"""What a running Prometheus has for the dashboards: the lines that each of their queries draws. Used by the demo and
by tests/e2e."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import requests

from monitoring.dashboards import DASHBOARDS

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_VALUES = re.compile(r"label_values\((.+), (\w+)\)")
_STEP, _TIMEOUT = 15, 20
"""Seconds between two points of a line, and for one query."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One query of a dashboard as Prometheus was asked it."""

    where: str
    """The dashboard and its panel or variable."""
    query: str
    lines: int
    """How many have a value; of a variable, how many of what it offers were chosen."""
    needs: str = ""
    """As of `Query`."""


def filled(text: str, chosen: Mapping[str, str]) -> str:
    """The text with the values of Grafana's variables. Raises KeyError for a variable that has none."""
    return _VARIABLE.sub(lambda match: chosen[match[1] or match[2]], text)


def shown(address: str, chosen: Mapping[str, str], start: float, end: float) -> Iterator[Shown]:
    """Every query of every dashboard, asked over a time in unix seconds. Raises requests.RequestException.

    `chosen` has the value of each variable that a reader chooses; what may be all is, where it is not in there.
    """
    for board in DASHBOARDS.values():
        every = {one.name: ".*" for one in board.variables if one.every}
        chosen = {**every, **chosen}
        for variable in board.variables:
            query = filled(variable.query, chosen)
            offered = [*_values(address, query, start, end), *([".*"] if variable.every else [])]
            found = [one for one in offered if re.fullmatch(chosen[variable.name], one)]
            yield Shown(f"{board.title}, {variable.label}", query, len(found))
        for panel, one in board.queries:
            query = filled(one.expr, chosen)
            lines = _ask(address, "query_range", query=query, start=start, end=end, step=_STEP)["result"]
            drawn = [line for line in lines if any(math.isfinite(float(value)) for _, value in line["values"])]
            yield Shown(f"{board.title}, {panel}", query, len(drawn), one.needs)


def _values(address: str, query: str, start: float, end: float) -> list[str]:
    """What a variable offers."""
    asked = _VALUES.fullmatch(query)
    if asked is None:
        raise ValueError(f"only label_values(SERIES, LABEL) is known, not {query}")
    found: list[str] = _ask(address, f"label/{asked[2]}/values", start=start, end=end, **{"match[]": asked[1]})
    return found


def _ask(address: str, path: str, **asked: Any) -> Any:
    answer = requests.get(f"{address}/api/v1/{path}", params=asked, timeout=_TIMEOUT)
    answer.raise_for_status()
    return answer.json()["data"]
