"""A HorizontalPodAutoscaler beside the tuner: Kubernetes scales two objects by the operator's metrics, one tuned and
one at a fixed K, while the same requests come to both, more and then fewer. `make e2e-autoscaling`.

The HPA is that of examples/autoscaling with shorter times. Only the metrics API is a stand-in for prometheus-adapter
(tests/e2e/metrics_api.py), with the rule of that file.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e import audit
from tests.e2e.conftest import NAMESPACE, Stage

from demo import scene
from demo.sender import Sender, evenly, models
from devcluster import pki
from devcluster.cluster import Cluster
from devcluster.options import Image

CYCLES = int(os.environ.get("SPECULATIVE_AUTOSCALING_CYCLES", "0"))
"""How often the load climbs, in two and a half minutes each."""
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600 + 400 * CYCLES),
    pytest.mark.skipif(not CYCLES, reason="it takes four minutes: make e2e-autoscaling"),
]

Json = dict[str, Any]
HPA = scene.ROOT / "examples" / "autoscaling" / "hpa.yaml"
API, IMAGE, PORT = "metrics-api", "metrics-api:dev", 6443
TUNED, FIXED = "tuned", "fixed"
MOST, REQUESTS_EACH = 3, "8"
"""Replicas at most, and the requests in flight for each of which the HPA wants one."""
HIGH, LOW = (80.0, 20.0), (70.0, 1.0)
"""Seconds, and requests per second to each object: enough for all replicas, and for one."""
SHORT = {
    "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]},
    "scaleDown": {"stabilizationWindowSeconds": 30, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]},
}


@pytest.fixture(scope="module")
def stage(enclosures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = scene.ROOT / "build" / f"metrics-api-{os.getpid()}"  # what is below /tmp, pods have of their own
    folder.mkdir(parents=True)
    program = Image((sys.executable, str(Path(__file__).with_name("metrics_api.py"))))
    try:
        with Cluster.start(scene.options(f"hpa-{os.getpid()}", {IMAGE: program})) as cluster:
            scene.install_operator(cluster)
            scrape = ("prometheus.io/scrape=true", "prometheus.io/port=8080")
            cluster.kubectl("annotate", "pods", "--all", "-n", scene.OPERATOR_NAMESPACE, *scrape)
            cluster.kubectl("create", "namespace", NAMESPACE)
            serve_metrics(cluster, folder)
            yield Stage(cluster, tmp_path_factory.mktemp("stage"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def serve_metrics(cluster: Cluster, folder: Path) -> None:
    """The metrics API, as a pod behind a Service that the API server knows."""
    pair = pki.Authority.create(folder).issue(API, API, alternative_names=(f"{API}.{NAMESPACE}.svc",))
    comment = (line.removeprefix("#") for line in HPA.read_text().splitlines(True) if line.startswith("#   "))
    (rule,) = yaml.safe_load("".join(comment))["rules"]["external"]
    prometheus = "http://prometheus-operated.monitoring.svc:9090"
    meta = {"name": API, "namespace": NAMESPACE, "labels": {"app": API}}
    arguments = [str(pair.certificate), str(pair.key), prometheus, rule["metricsQuery"]]
    container = {"name": API, "image": IMAGE, "args": arguments}
    service = {"selector": {"app": API}, "ports": [{"port": 443, "targetPort": PORT}]}
    registered = {
        "group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
        "insecureSkipTLSVerify": True, "service": {"name": API, "namespace": NAMESPACE},
    }  # fmt: skip
    name = "v1beta1.external.metrics.k8s.io"
    items: list[Json] = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}},
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service},
        {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name},
         "spec": registered},
    ]  # fmt: skip
    cluster.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    cluster.kubectl("wait", "--for=condition=Available", "--timeout=180s", "apiservice", name)


def scaled(name: str, **speculation: Any) -> Json:
    """An object whose replicas are left to the autoscaler."""
    body = copy.deepcopy(scene.variants()[0].manifest)
    body["metadata"]["name"] = name
    del body["spec"]["replicas"]
    body["spec"]["speculation"] = {"numSpeculativeTokens": 1, "maxSpeculativeTokens": 5, **speculation}
    return body


def autoscaler(name: str) -> Json:
    body: Json = yaml.safe_load(HPA.read_text())
    body["metadata"] = {"name": name, "namespace": NAMESPACE}
    spec = body["spec"]
    spec["scaleTargetRef"]["name"] = name
    spec["maxReplicas"], spec["behavior"] = MOST, SHORT
    spec["metrics"][0]["external"]["metric"]["selector"]["matchLabels"] = {"name": name}
    spec["metrics"][0]["external"]["target"]["averageValue"] = REQUESTS_EACH
    return body


def send(stage: Stage) -> Sender:
    """The requests to both objects, under way."""
    arrivals, start = [], 0.0
    for seconds, rate in (HIGH, LOW) * CYCLES:
        arrivals += [{**one, "at": start + one["at"]} for one in evenly(seconds, rate, prompt=400, output=150)]
        start += seconds
    return Sender(stage.cluster, stage.directory / "load.jsonl", models(TUNED, FIXED), arrivals)


def replicas(stage: Stage) -> dict[str, int]:
    return {one["metadata"]["name"]: one["spec"]["replicas"] for one in stage.items("specdep")}


def steps(course: list[int]) -> list[int]:
    """Replicas at the start and after each change."""
    return course[:1] + [after for before, after in pairwise(course) if after != before]


def turns(course: list[int]) -> int:
    """How often replicas went the other way."""
    ways = [after > before for before, after in pairwise(steps(course))]
    return sum(way != other for way, other in pairwise(ways))


def test_replicas_follow_the_load_and_change_no_more_often_than_with_a_fixed_k(stage: Stage) -> None:
    for body in (scaled(TUNED), scaled(FIXED, mode="Static", numSpeculativeTokens=2), *map(autoscaler, (TUNED, FIXED))):
        stage.apply(body)
    for name in (TUNED, FIXED):
        scene.wait_ready(stage.cluster, name, 240)
    seen: dict[str, list[int]] = {TUNED: [1], FIXED: [1]}
    ends = time.monotonic() + CYCLES * (HIGH[0] + LOW[0]) + 240.0
    with send(stage) as sender:
        while sender.sending or any(course[-1] != 1 for course in seen.values()):
            assert time.monotonic() < ends, (seen, stage.items("hpa")[0]["status"])
            for name, count in replicas(stage).items():
                seen[name].append(count)
            time.sleep(1)
        records = sender.wait(0)
    shown = {name: steps(course) for name, course in seen.items()}
    status = stage.get("specdep", TUNED)["status"]
    failed = [record for record in records if record["failed"]]
    print(f"replicas {shown}; {len(records)} requests, {len(failed)} failed")
    print(*(one["message"] for one in status["decisions"]), sep="\n")
    assert failed == []
    assert max(seen[TUNED]) > 1, stage.items("hpa")[0]["status"]
    assert turns(seen[TUNED]) <= max(2 * CYCLES - 1, turns(seen[FIXED])), shown
    assert len(shown[TUNED]) <= len(shown[FIXED]), shown
    assert status["decisions"], "K was never tuned"
    assert stage.condition(TUNED, "MetricsAvailable")["status"] == "True"
    assert not list(filter(wrote_object, audit.writes(audit.requests(stage.cluster.audit_log))))


def wrote_object(told: str) -> bool:
    """True for a write to an object, but for its status: only Kubernetes sets the replicas."""
    return "/speculativedeployments/" in told and "/status:" not in told
