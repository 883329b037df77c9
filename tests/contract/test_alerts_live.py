"""A real Prometheus loads the chart's rules, scrapes an emulated operator, and raises and ends alerts.

Times are those of `test_alerts.py`; here no alert waits, so that seconds do.
"""

from __future__ import annotations

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
from tests.contract.emulator_process import free_port
from tests.contract.test_alerts import CASES, CONDITION

from devcluster import toolchain
from monitoring.alerts import ALERTS

RULES = Path(__file__).resolve().parents[2] / "charts" / "speculative-operator" / "files" / "alerts.yaml"
GAUGES = (CONDITION, "speculative_operator_leader")
PROVOKED = {name: case for name, case in CASES.items() if all(one.startswith(GAUGES) for one in case.series)}
"""Alerts on gauges alone: 0 is wrong, 1 is well."""
SECONDS = 60.0


class Operator(BaseHTTPRequestHandler):
    """The operator's page of metrics, with every gauge at `value`."""

    value = 0

    def do_GET(self) -> None:
        series = {one.replace("'", '"') for case in PROVOKED.values() for one in case.series}
        page = "".join(f"{one} {type(self).value}\n" for one in sorted(series)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a Prometheus that scrapes the page and evaluates the rules each second."""
    folder, port = tmp_path_factory.mktemp("alerts"), free_port()
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["for"] = "0s"
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
    return {rule["name"] for rule in rules(address) if rule["state"] == "firing"} & set(PROVOKED)


def waits(reached: Callable[[], bool]) -> bool:
    end = time.monotonic() + SECONDS
    while not reached() and time.monotonic() < end:
        time.sleep(0.2)
    return reached()


def test_every_rule_is_loaded_and_evaluated(prometheus: str) -> None:
    assert waits(lambda: {one["health"] for one in rules(prometheus)} == {"ok"}), rules(prometheus)
    assert {one["name"] for one in rules(prometheus)} == {alert.name for alert in ALERTS}


def test_alerts_on_gauges_fire_and_resolve(prometheus: str) -> None:
    assert len(PROVOKED) > 4
    Operator.value = 0
    assert waits(lambda: firing(prometheus) == set(PROVOKED)), firing(prometheus)
    Operator.value = 1
    assert waits(lambda: not firing(prometheus)), firing(prometheus)
