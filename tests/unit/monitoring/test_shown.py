"""Queries of the dashboards are asked as Grafana asks them: with the reader's choices in place of the variables."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote

import pytest
import requests
from tests.unit.shell.promserver import matrix, says, send, series, serving

from monitoring.dashboards import DASHBOARDS, OWN
from monitoring.shown import filled, shown

CHOSEN = {"namespace": "models", "name": "demo"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a{namespace="$namespace", name="$name"}', 'a{namespace="models", name="demo"}'),
        ('b{pod=~"$name-.+"}', 'b{pod=~"demo-.+"}'),
        ("c_${name}_total", "c_demo_total"),
        ('d{e=~".+$"}', 'd{e=~".+$"}'),
    ],
)
def test_variables_are_filled_in(text: str, expected: str) -> None:
    assert filled(text, CHOSEN) == expected


def test_a_variable_without_a_value_is_told() -> None:
    with pytest.raises(KeyError, match="pod"):
        filled('a{pod="$pod"}', CHOSEN)


def answer(handler: BaseHTTPRequestHandler) -> None:
    """No line for gains, one that is never a number for waiting requests, a line for all else; no object `demo`."""
    asked = unquote(handler.path)
    values = "NaN" if "waiting" in asked else "1"
    found = matrix() if "gain" in asked else matrix(series("a", (0.0, "NaN"), (15.0, values)))
    names = ["other"] if "/label/name/" in asked else ["models"]
    told = {"status": "success", "data": names} if "/label/" in asked else found
    send(handler, 200, json.dumps(told).encode())


def test_every_query_is_asked_over_the_time() -> None:
    all_of_it = {**CHOSEN, "cluster": ".*"}
    with serving() as server:
        server.answer = answer
        found = list(shown(server.url, CHOSEN, 100.0, 400.0))
    queries = [query for board in DASHBOARDS.values() for _, query in board.queries]
    variables = [variable for board in DASHBOARDS.values() for variable in board.variables]
    assert len(found) == len(server.asked) == len(queries) + len(variables)
    assert {(one["start"], one["end"]) for one in server.asked} == {("100.0", "400.0")}
    assert not any("$" in value for one in server.asked for value in one.values())
    empty = {one.where for one in found if not one.lines}
    assert empty == {
        one.where for one in found if "gain" in one.query or "waiting" in one.query or one.where.endswith(", Object")
    }
    assert {one["match[]"] for one in server.asked if "match[]" in one} == {
        "speculative_operator_object_info", 'speculative_operator_object_info{cluster=~".*"}',
        'speculative_operator_object_info{cluster=~".*", namespace="models"}', f"up{{{filled(OWN, all_of_it)}}}",
    }  # fmt: skip
    assert {one.needs for one in found if one.needs} == {query.needs for query in queries if query.needs}


def test_what_prometheus_refuses_is_raised() -> None:
    with serving() as server:
        server.answer = says({"status": "error", "error": "parse error"}, 400)
        with pytest.raises(requests.HTTPError, match="400"):
            list(shown(server.url, CHOSEN, 0.0, 1.0))
