"""A real Prometheus loads the chart's rules, scrapes an emulated operator, and raises and ends alerts.

`test_alerts.py` holds the times; here no alert waits and ranges are seconds, so that a minute is enough for all.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from tests.contract.test_alerts import CASES, CONDITION, of_object
from tests.ports import free_port

from devcluster import toolchain
from monitoring.alerts import ALERTS

pytestmark = pytest.mark.timeout(900)

RULES = Path(__file__).resolve().parents[2] / "charts" / "speculative-operator" / "files" / "alerts.yaml"
EVERY = {alert.name for alert in ALERTS}
WRONG, WELL = "wrong", "well"
STANDING, FAILING, ENDING = "standing", "failing", "ending"
"""What reconciles do: none ends, they fail, they end well."""
CONDITIONS = {series for case in CASES.values() for series in case.series if series.startswith(CONDITION)}
GAUGES: dict[str, dict[str, float]] = {
    **{series: {WRONG: 0, WELL: 1} for series in CONDITIONS},
    "speculative_operator_leader": {WRONG: 0, WELL: 1},
    "speculative_operator_objects": {WRONG: 2, WELL: 2},
    'speculative_operator_unwatched{resource="pods"}': {WRONG: 1, WELL: 0},
    "speculative_operator_catalogue_bad": {WRONG: 1, WELL: 0},
    of_object("gain_ratio", 'bound="high"'): {WRONG: -0.1, WELL: 0.2},
    of_object("p99_seconds", 'latency="tpot"', 'bound="low"'): {WRONG: 0.03, WELL: 0.01},
    of_object("target_seconds", 'latency="tpot"'): {WRONG: 0.025, WELL: 0.025},
    of_object("waiting_requests"): {WRONG: 30, WELL: 0},
    of_object("running_requests"): {WRONG: 40, WELL: 40},
    of_object("load_k"): {WRONG: 0, WELL: 2},
    of_object("info", 'mode="Auto"'): {WRONG: 1, WELL: 1},
}
COUNTERS = {
    'speculative_operator_ticks_total{outcome="quiet"}': {STANDING: 0, FAILING: 1, ENDING: 3},
    'speculative_operator_ticks_total{outcome="failed"}': {STANDING: 0, FAILING: 3, ENDING: 0},
}
"""By how much each grows from one scrape to the next."""
RANGE = "10s"
"""In place of the rules' quarters of an hour and six hours."""
SECONDS = 180.0


class Operator(BaseHTTPRequestHandler):
    """The operator's page of metrics."""

    gauges, reconciles = WELL, ENDING
    counted = dict.fromkeys(COUNTERS, 0)

    def do_GET(self) -> None:
        cls = type(self)
        cls.counted = {series: value + COUNTERS[series][cls.reconciles] for series, value in cls.counted.items()}
        values = {**{series: given[cls.gauges] for series, given in GAUGES.items()}, **cls.counted}
        page = "".join(f"{series} {value}\n" for series, value in values.items()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


def hastened(rule: dict[str, Any]) -> dict[str, Any]:
    """The rule without its wait, and with `RANGE` for each time in its expression."""
    return rule | {"for": "0s", "expr": re.sub(r"(?<=\[)\w+(?=\])|(?<=offset )\w+", RANGE, rule["expr"])}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a Prometheus that scrapes the page and evaluates the rules each second."""
    folder, port = tmp_path_factory.mktemp("alerts"), free_port()
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        group["rules"] = [hastened(rule) for rule in group["rules"]]
    (folder / "rules.yml").write_text(yaml.safe_dump(rules))
    with ThreadingHTTPServer(("127.0.0.1", 0), Operator) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        target = {"targets": [f"127.0.0.1:{server.server_port}"]}
        times = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        jobs = [{"job_name": "operator", "honor_labels": True, "static_configs": [target]}]
        config = {"global": times, "rule_files": ["rules.yml"], "scrape_configs": jobs}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        flags = (
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        )
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([str(toolchain.ensure().prometheus), *flags], stderr=log)
        try:
            yield f"http://127.0.0.1:{port}/api/v1"
        finally:
            process.terminate()
            process.wait(30)
            server.shutdown()


def rules(address: str) -> list[dict[str, Any]]:
    """Each rule as Prometheus tells it; none while it starts."""
    try:
        answer = requests.get(f"{address}/rules", timeout=5)
        return [rule for group in answer.json()["data"]["groups"] for rule in group["rules"]] if answer.ok else []
    except requests.ConnectionError:
        return []


def firing(address: str) -> set[str]:
    return {rule["name"] for rule in rules(address) if rule["state"] == "firing"}


def waits(reached: Callable[[], bool]) -> bool:
    end = time.monotonic() + SECONDS
    while not reached() and time.monotonic() < end:
        time.sleep(0.2)
    return reached()


def test_every_rule_is_loaded_and_evaluated(prometheus: str) -> None:
    assert waits(lambda: {one["health"] for one in rules(prometheus)} == {"ok"}), rules(prometheus)
    assert {one["name"] for one in rules(prometheus)} == EVERY


def test_every_alert_fires_and_resolves(prometheus: str) -> None:
    """The two on reconciles one after the other: none can fail where none ends."""
    for gauges, reconciles, expected in (
        (WELL, ENDING, set()),
        (WRONG, STANDING, EVERY - {"SpeculativeOperatorFailing"}),
        (WRONG, FAILING, EVERY - {"SpeculativeOperatorStalled"}),
        (WELL, ENDING, set()),
    ):
        Operator.gauges, Operator.reconciles = gauges, reconciles
        assert waits(lambda: firing(prometheus) == expected), firing(prometheus) ^ expected  # noqa: B023  asked at once
