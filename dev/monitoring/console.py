"""The dashboards in the form that the console of OpenShift shows: that of old Grafanas, with graphs, single figures and
tables in rows of twelve columns, no names of lines as figures, no marks and no links (openshift/monitoring-plugin,
web/src/features/legacy-dashboards). Used by `__main__`.
"""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import stat, table

from monitoring.panels import TAG, Dashboard, Panel

TYPES: dict[Any, str] = {stat.Panel: "singlestat", table.Panel: "table"}
_OF_CLUSTER = 'cluster=~"$cluster", '
"""Left out: one cluster is all that a console shows, and for `All` it asks for series that have the label."""
Json = dict[str, Any]


def board(found: Dashboard) -> Json:
    """The dashboard as the console reads it."""
    variables = [
        {
            "type": "query", "name": one.name, "query": _own(one.query), "includeAll": one.every, "hide": 0,
            "datasource": {"type": "prometheus"}, "options": [],
        }
        for one in found.variables
        if one.name != "cluster"
    ]  # fmt: skip
    rows = [
        {"title": title, "showTitle": True, "panels": [_panel(one) for one in panels if not one.names]}
        for title, panels in found.rows
    ]
    return {"title": found.title, "tags": [TAG], "templating": {"list": variables}, "rows": rows}


def _panel(panel: Panel) -> Json:
    kind = TYPES.get(panel.kind, "graph")
    targets = [
        {"expr": _own(one.expr), "legendFormat": one.legend, "refId": chr(ord("A") + at)}
        for at, one in enumerate(panel.queries)
    ]
    common = {"id": panel.title, "title": panel.title, "type": kind, "span": panel.width // 2, "targets": targets}
    if kind == "singlestat":
        return {**common, "format": panel.unit, "decimals": 2}
    if kind == "graph":
        return {**common, "legend": {"show": True}, "yaxes": [{"format": panel.unit}]}
    styles = [
        {
            "pattern": pattern, "alias": title, "type": "number" if pattern.startswith("Value") else "string",
            "decimals": 2, "unit": panel.fields.get(title, {}).get("unit", "short"),
        }
        for pattern, title in panel.columns.items()
        if pattern != "cluster"
    ]  # fmt: skip
    return {**common, "transform": "table", "styles": styles}


def _own(expr: str) -> str:
    return expr.replace(_OF_CLUSTER, "").replace('{cluster=~"$cluster"}', "")
