"""A cluster with prometheus-operator's kinds, and kube-prometheus-stack's selector: PodMonitors of serving pods are
chosen by it without an edit, with the rights of the installed roles and nothing more.

PodMonitor is the real one; Prometheus, of which the operator reads some fields, is a stand-in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests import definitions
from tests.cluster.operatorlab import OperatorLab, until

from devcluster import Cluster

pytestmark = pytest.mark.cluster

DEFINITIONS = [*definitions.read("monitoring"), definitions.PROMETHEUS]
STACK = {"release": "kube-prometheus-stack"}


@pytest.fixture(scope="module")
def lab(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorLab]:
    lab = OperatorLab(cluster, tmp_path_factory.mktemp("monitors"))
    lab.install()
    definitions.install(cluster, DEFINITIONS)
    lab.enter()
    yield lab
    cluster.kubectl("delete", "namespace", lab.namespace, "--wait=false")
    cluster.kubectl("delete", "crd", *(one["metadata"]["name"] for one in DEFINITIONS))


def prometheus(lab: OperatorLab, selector: dict[str, Any]) -> None:
    meta = {"name": "k8s", "namespace": lab.namespace}
    spec = {"podMonitorSelector": selector}
    lab.apply({"apiVersion": f"{definitions.MONITORING}/v1", "kind": "Prometheus", "metadata": meta, "spec": spec})


def test_the_pod_monitor_is_one_that_the_stack_chooses(lab: OperatorLab) -> None:
    prometheus(lab, {"matchLabels": STACK})
    with lab.operator() as running:
        lab.deploy()
        made = until("a PodMonitor", lambda: lab.get("podmonitor"), 30.0)
        chosen = lab.cluster.kubectl(
            "get", "podmonitor", "-n", lab.namespace, "-l", "release=kube-prometheus-stack", "-o", "name"
        ).stdout.split()
        assert chosen == [f"podmonitor.{definitions.MONITORING}/{made['metadata']['name']}"]
        assert [one["interval"] for one in made["spec"]["podMetricsEndpoints"]] == ["5s", "5s"]
        assert "selectors" not in json.dumps(running.lines())
