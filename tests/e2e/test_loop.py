"""The whole way, short: apply, serve, tune live, survive what goes wrong. One object, steps in order.

What becomes of its children is tested in tests/cluster/test_operator_children.py, where no pod need run.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.conftest import LONG, NAMESPACE, Stage, until, until_none

from demo import scene
from demo.figures import adoptions, compared_blocks, table_latencies
from demo.load import read_records
from demo.watch import Watcher
from monitoring.alerts import alerts
from monitoring.shown import Shown, shown
from speculative_operator.api.convert import to_domain
from speculative_operator.engines.registry import engine_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

AUTOSCALER = scene.ROOT / "examples" / "autoscaling" / "keda.yaml"
AUTO = scene.variants()[0]
# On a faster accelerator, with text that is easy to foresee: drafts pay at the loads of these tests.
AUTO.manifest["spec"] |= {
    "speculator": {"method": "draft_model", "model": "hf://Qwen/Qwen3-0.6B"},
    "speculation": {
        "mode": "Auto",
        "numSpeculativeTokens": 1,  # must be changed
        "maxSpeculativeTokens": 5,
        # so wide that they decide nothing, and are shown
        "objective": {"tpotP99": "1s", "ttftP99": "20s"},
    },
    "accelerator": {"resource": "nvidia.com/gpu", "product": "H100-SXM", "hourlyCost": "5.00"},
}
AUTO.manifest["spec"]["engine"]["env"] = [
    {"name": "EMULATOR_ACCELERATOR", "value": "H100-SXM"},
    {"name": "EMULATOR_WORKLOAD", "value": "Code"},
]
NAME = AUTO.name


@pytest.fixture(scope="module")
def served(stage: Stage) -> Stage:
    """The example, applied and Ready."""
    started = time.monotonic()
    scene.have_operator_scraped(stage.cluster)
    scene.apply(stage.cluster, [AUTO])
    scene.wait_ready(stage.cluster, NAME, 180)
    print(f"apply to Ready: {time.monotonic() - started:.1f} s")
    return stage


def speculation(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = stage.get("specdep", NAME)["status"].get("speculation") or {}
    return found


def table(stage: Stage) -> dict[str, Any]:
    """The table as the cluster holds it."""
    found: dict[str, Any] = json.loads(stage.get("configmap", stage.table_config(NAME))["data"]["table.json"])
    return found


def test_k_follows_the_evidence_live(served: Stage) -> None:
    """Requests decide the table; nothing restarts and no request fails while it changes."""
    before = served.pods(NAME)[0]
    generation = served.get("deployment", NAME)["metadata"]["generation"]

    def newest() -> dict[str, Any]:
        return next(iter(served.get("specdep", NAME)["status"].get("decisions") or ()), {})

    def latencies() -> Any:
        """How long it took until the newest table was in force; nothing as long as it is not."""
        log = served.cluster.kubectl("logs", "-n", NAMESPACE, before["metadata"]["name"]).stdout
        return table_latencies([newest()], adoptions(log))

    with served.under_load({NAME: NAME}, rate=22) as out:
        until(newest, LONG)  # steps are slower beside others
        taken = until(latencies, LONG)
    assert max(taken) < 30, "without the operator's word a pod looks once a minute"
    (pod,) = served.pods(NAME)
    assert pod["metadata"]["uid"] == before["metadata"]["uid"]
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    assert served.get("deployment", NAME)["metadata"]["generation"] == generation
    assert not [record for record in read_records(out) if record["failed"]]
    assert speculation(served)["acceptanceLength"]
    served.wait_available(NAME)


def test_the_engine_compares_what_it_may_try(served: Stage) -> None:
    """Table file, engine, Prometheus, reader, tuner: tries go the whole way round, and no pod is replaced for them."""
    (pod,) = served.pods(NAME)
    engine, began = engine_for(to_domain(AUTO.manifest)), time.time()
    watcher = Watcher(served.cluster, NAMESPACE, engine)

    def compared() -> bool:
        line = watcher.timeline({pod["metadata"]["name"]: NAME}, began - 60, time.time())
        return NAME in line.whole and sum(compared_blocks(line.whole[NAME]).values()) >= 1

    with served.under_load({NAME: NAME}, rate=22):
        until(lambda: speculation(served).get("tries") and (table(served).get("try") or {}).get("rows"), LONG)
        until(compared, LONG, 2.0)
    assert [one["metadata"]["uid"] for one in served.pods(NAME)] == [pod["metadata"]["uid"]]


def test_every_query_of_a_dashboard_shows_something_and_nothing_alerts(served: Stage) -> None:
    """Of a Prometheus that scrapes the operator and the object that has just been tuned."""
    chosen = {"namespace": NAMESPACE, "name": NAME}

    def unanswered() -> list[Shown]:
        asked = shown(served.cluster.prometheus_url, chosen, time.time() - 300, time.time())
        return [one for one in asked if not one.lines]

    with served.under_load({NAME: NAME}, rate=22):
        until_none(unanswered, LONG, 5.0)
    (trigger,) = yaml.safe_load(AUTOSCALER.read_text())["spec"]["triggers"]
    for label, value in (("namespace", NAMESPACE), ("name", NAME)):
        trigger["metadata"]["query"] = re.sub(rf'\b{label}="[^"]*"', f'{label}="{value}"', trigger["metadata"]["query"])
    (wanted,) = prometheus(served, "query", query=trigger["metadata"]["query"])
    assert math.isfinite(float(wanted["value"][1]))
    # One fires where its expression holds for minutes on end.
    until_none(lambda: [one["alert"] for one in alerts() if prometheus(served, "query", query=one["expr"])], LONG)


def prometheus(stage: Stage, path: str, **asked: object) -> list[dict[str, Any]]:
    """The result of a query, as the HTTP API has it."""
    address = f"{stage.cluster.prometheus_url}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
    with urllib.request.urlopen(address, timeout=20) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found


def test_a_hanging_prometheus_changes_nothing_and_says_so(served: Stage) -> None:
    before = table(served)
    (prometheus,) = processes(served, "/prometheus")
    os.kill(prometheus, signal.SIGSTOP)
    try:
        failures = {"PrometheusError", "PrometheusTimeout"}
        until(lambda: served.condition(NAME, "MetricsAvailable").get("reason") in failures, 180)
        assert served.condition(NAME, "MetricsAvailable")["status"] == "False"
        assert table(served) == before
        served.cluster.kubectl("delete", "service", NAME, "-n", NAMESPACE)
        until(lambda: served.get("service", NAME), 180)
    finally:
        os.kill(prometheus, signal.SIGCONT)
    until(lambda: served.condition(NAME, "MetricsAvailable").get("reason") not in failures, 180)


def processes(stage: Stage, program: str) -> list[int]:
    """Processes of a program, as the host numbers them: descendants of this cluster's first process alone."""
    enclosure = stage.cluster.enclosure
    assert enclosure is not None
    parents, found = {}, []
    for entry in Path("/proc").iterdir():
        try:
            pid = int(entry.name)
            parents[pid] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except (ValueError, OSError):
            continue  # no process, or one that has just ended
        if any(word.endswith(program.encode()) for word in words[:2]):
            found.append(pid)

    def inside(pid: int) -> bool:
        while pid > 1 and pid != enclosure.first:
            pid = parents.get(pid, 0)
        return pid == enclosure.first

    return [pid for pid in found if inside(pid)]


def test_a_killed_operator_leaves_serving_alone_and_converges(served: Stage) -> None:
    (pod,) = served.pods(NAME)
    generation = served.get("deployment", NAME)["metadata"]["generation"]
    running = processes(served, "/speculative-operator")
    assert running
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    out = served.load(NAME, seconds=5, rate=4)
    assert not [record for record in read_records(out) if record["failed"]]
    served.cluster.kubectl("delete", "service", NAME, "-n", NAMESPACE)
    until(lambda: served.get("service", NAME), 180)
    assert served.get("deployment", NAME)["metadata"]["generation"] == generation
    assert served.pods(NAME)[0]["metadata"]["uid"] == pod["metadata"]["uid"]
