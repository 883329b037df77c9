"""Dashboards and alerts name series that exist and are those of the code; alerts have a runbook."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from tests.golden.test_words import words

from monitoring import console
from monitoring.__main__ import files, main
from monitoring.alerts import PAGE, alerts
from monitoring.dashboards import DASHBOARDS, POD
from monitoring.panels import Dashboard
from speculative_operator.shell.telemetry import PREFIX, Telemetry

ROOT = Path(__file__).resolve().parents[3]
VLLM = ROOT / "lab" / "speculative_lab" / "emulator" / "data" / "vllm_metric_families.csv"
GROUPING = r"\b(?:by|on|ignoring|group_left|group_right|without)\s*\([^)]*\)"
WORDS = {"and", "or", "unless", "bool", "offset", "by", "on"}
BOARDS = pytest.mark.parametrize("board", DASHBOARDS.values(), ids=DASHBOARDS)


def series_in(expr: str) -> set[str]:
    """Names of the series in a query."""
    for noise in (r'"[^"]*"', r"\{[^}]*\}", r"\[[^\]]*\]", GROUPING, r"\boffset \w+"):
        expr = re.sub(noise, " ", expr)
    return set(re.findall(r"[a-zA-Z_:][\w:]*(?![\w:]|\s*\()", expr)) - WORDS


def exported() -> set[str]:
    """Every series that the operator, the plug-in and a vLLM export."""
    told, families = words(), list(Telemetry().registry.collect())
    own = {f"{PREFIX}_{name}" for name in told["series of the operator"]} | set(told["series of the payload"])
    process = {sample.name for family in families for sample in family.samples if sample.name.startswith("process_")}
    with VLLM.open(encoding="utf-8", newline="") as lines:
        engine = {row["family"]: row["type"] for row in csv.DictReader(lines)}
    histograms = {family.name for family in families if family.type == "histogram"}
    histograms |= {name for name, kind in engine.items() if kind == "histogram"}
    return (
        own | process | engine.keys() | {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    )


def test_the_names_in_a_query_are_found() -> None:
    expr = (
        'sum by (a, b) (rate(x_total{b="c_total", d=~"e"}[5m])) / on (f) vllm:y unless on (g) z offset 6h or vector(0)'
    )
    assert series_in(expr) == {"x_total", "vllm:y", "z"}


@BOARDS
def test_every_series_of_a_panel_exists(board: Dashboard) -> None:
    assert {name for _, query in board.queries for name in series_in(query.expr)} - exported() == set()


def test_every_series_of_an_alert_exists() -> None:
    assert {name for alert in alerts() for name in series_in(alert["expr"])} - exported() == set()


@BOARDS
def test_every_variable_is_defined_and_asks_for_what_exists(board: Dashboard) -> None:
    used = {name for _, query in board.queries for name in re.findall(r"\$\{?(\w+)", query.expr)}
    assert used <= {one.name for one in board.variables}
    assert {name for one in board.variables for name in series_in(one.selector)} <= exported() | {"up"}


@BOARDS
def test_the_json_is_of_grafanas_own_schema(board: Dashboard) -> None:
    """Read back by the classes that Grafana publishes, and written again, it is the same, with ids and no overlap."""
    found = board.json()
    assert json.loads(json.dumps(models.Dashboard.from_json(found), cls=JSONEncoder)) == {
        **found, "annotations": {"list": [
            {key: value for key, value in one.items() if key not in ("titleFormat", "step")}
            for one in found["annotations"]["list"]
        ]},
    }  # fmt: skip
    places = [(panel["gridPos"], panel["id"]) for panel in found["panels"]]
    assert len({number for _, number in places}) == len(places)
    cells = [(at["x"] + x, at["y"] + y) for at, _ in places for x in range(at["w"]) for y in range(at["h"])]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@BOARDS
def test_the_console_of_openshift_gets_what_it_can_show(board: Dashboard) -> None:
    """Types, columns and variables that its source names; no series are asked for by a label that one cluster lacks."""
    found = console.board(board)
    panels = [panel for row in found["rows"] for panel in row["panels"]]
    assert {panel["type"] for panel in panels} <= {"graph", "singlestat", "table"}
    assert all(panel["styles"] for panel in panels if panel["type"] == "table")
    assert "$cluster" not in json.dumps(found)
    known = {one["name"] for one in found["templating"]["list"]}
    exprs = [target["expr"] for panel in panels for target in panel["targets"]]
    assert {name for expr in exprs for name in re.findall(r"\$(\w+)", expr)} <= known
    names = {query.expr for _, each in board.rows for panel in each if panel.names for query in panel.queries}
    assert len(exprs) == len(list(board.queries)) - len(names) - len(board.annotations)


@BOARDS
def test_links_lead_to_boards_and_variables_that_exist(board: Dashboard) -> None:
    """From a row of the fleet to its object, and from there to one pod."""
    addresses = set(re.findall(r'"url": "(/d/[^"]+)"', json.dumps(board.json())))
    known = {one.uid: {each.name for each in one.variables} | {"datasource"} for one in DASHBOARDS.values()}
    for address in addresses:
        place, _, query = address.removeprefix("/d/").partition("?")
        named = {name for pair in re.findall(r"var-(\w+)=|\$\{(\w+):queryparam\}", query) for name in pair if name}
        assert named <= known[place]
        assert {"namespace", "name"} <= named
    assert {"fleet": 2, "object": 1, "operator": 0}[board.uid.removeprefix("speculative-")] == len(addresses)


@pytest.mark.parametrize(
    ("pod", "shown"),
    [
        ("qwen-7d9f8b6c5-x2x4z", True),
        ("qwen-predictor-7d9f8b6c5-x2x4z", True),
        ("qwen-kserve-7d9f8b6c5-x2x4z", True),
        ("qwen-group-0", True),
        ("qwen-group-0-1", False),
        ("qwen-off-7d9f8b6c5-x2x4z", False),
        ("qwen2-7d9f8b6c5-x2x4z", False),
    ],
)
def test_pods_of_one_object_are_its_own(pod: str, shown: bool) -> None:
    assert bool(re.fullmatch(POD.replace("$name", "qwen"), pod)) == shown


def test_boards_have_addresses_of_their_own() -> None:
    assert len({board.uid for board in DASHBOARDS.values()}) == len(DASHBOARDS)


def test_every_alert_has_its_section_and_no_other_has_one() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == [alert["alert"] for alert in alerts()]
    for alert in alerts():
        assert alert["annotations"]["runbook"] == f"{PAGE}#{alert['alert'].lower()}"
    for section in page.split("\n### ")[1:]:
        assert "\n1. " in section, section.split("\n")[0]


def test_files_are_those_of_the_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, "run: make generate"
    assert main(["--check"], tmp_path) == 1
    assert main([], tmp_path) == 0
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == set(files())
    capsys.readouterr()
