"""Parts of Grafana dashboards as its JSON has them. Used by `dashboards`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
"""Columns of a dashboard."""
SCHEMA_VERSION = 39
"""Of dashboards that Grafana 10.4 and newer read; newer ones convert it when they load it."""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    """A query and what its lines are called."""

    expr: str
    legend: str = ""
    needs: str = ""
    """What an object must have for the query to show something; empty: nothing that not every object has."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; `kind` is a type of Grafana."""

    title: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    unit: str = "short"
    text: str = ""
    """What the reader should know; empty: the title says it."""
    width: int = 8
    options: Json = field(default_factory=dict)
    field_options: Json = field(default_factory=dict)
    transformations: tuple[Json, ...] = ()

    @property
    def height(self) -> int:
        return 4 if self.kind == "stat" else 8

    def json(self, number: int, x: int, y: int) -> Json:
        """The panel at a place, with an id."""
        instant = self.kind in ("stat", "table")
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            **({"description": self.text} if self.text else {}),
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": [_target(query, chr(ord("A") + at), instant) for at, query in enumerate(self.queries)],
            "fieldConfig": {"defaults": {"unit": self.unit, **self.field_options}, "overrides": []},
            "options": {**_usual_options(self.kind), **self.options},
            **({"transformations": list(self.transformations)} if self.transformations else {}),
        }


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard: rows of panels, and the variables that a reader chooses."""

    uid: str
    title: str
    text: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    variables: tuple[Json, ...] = ()

    @property
    def queries(self) -> Iterator[tuple[str, Query]]:
        """(title of the panel, query)."""
        for _, panels in self.rows:
            for panel in panels:
                for query in panel.queries:
                    yield panel.title, query

    def json(self) -> Json:
        """As Grafana imports it."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.text,
            "tags": ["speculative-operator"],
            "schemaVersion": SCHEMA_VERSION,
            "editable": True,
            "time": {"from": "now-6h", "to": "now"},
            "refresh": "30s",
            "templating": {"list": [_datasource(), *self.variables]},
            "annotations": {"list": []},
            "links": [],
            "panels": list(_laid_out(self.rows)),
        }


def variable(name: str, label: str, query: str) -> Json:
    """A variable whose values are those of a label."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": False,
        "includeAll": False,
        "hide": 0,
    }


def _datasource() -> Json:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
        "multi": False,
        "includeAll": False,
    }


def _target(query: Query, reference: str, instant: bool) -> Json:
    return {
        "refId": reference,
        "datasource": SOURCE,
        "expr": query.expr,
        **({"legendFormat": query.legend} if query.legend else {}),
        "instant": instant,
        "range": not instant,
        "format": "table" if instant and not query.legend else "time_series",
    }


def _usual_options(kind: str) -> Json:
    if kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value"}
    if kind == "timeseries":
        return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    return {}


def _laid_out(rows: Iterable[tuple[str, Sequence[Panel]]]) -> Iterator[Json]:
    """Panels from left to right, each row below the one before."""
    number, y = 0, 0
    for title, panels in rows:
        number += 1
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [],
               "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}}  # fmt: skip
        x, y, height = 0, y + 1, 0
        for panel in panels:
            if x + panel.width > WIDTH:
                x, y, height = 0, y + height, 0
            number += 1
            yield panel.json(number, x, y)
            x, height = x + panel.width, max(height, panel.height)
        y += height
