"""A cluster with prometheus-operator's kinds, and kube-prometheus-stack's selector: PodMonitors of serving pods are
chosen by it without an edit, with the rights of the installed roles and nothing more.

The definitions are stand-ins with the names of the real ones: the operator reads one field of a Prometheus.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.operatorlab import OperatorLab, until

from devcluster import Cluster

pytestmark = pytest.mark.cluster

GROUP = "monitoring.coreos.com"
KINDS = {"podmonitors": "PodMonitor", "prometheuses": "Prometheus"}
STACK = {"release": "kube-prometheus-stack"}


def definition(plural: str, kind: str) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything},
    }  # fmt: skip
    named = {"plural": plural, "kind": kind, "listKind": f"{kind}List", "singular": kind.lower()}
    spec = {"group": GROUP, "scope": "Namespaced", "names": named, "versions": [version]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"}, "spec": spec,
    }  # fmt: skip


@pytest.fixture(scope="module")
def lab(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorLab]:
    lab = OperatorLab(cluster, tmp_path_factory.mktemp("monitors"))
    lab.install()
    for plural, kind in KINDS.items():
        lab.apply(definition(plural, kind))
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", f"{plural}.{GROUP}")
    lab.enter()
    yield lab
    cluster.kubectl("delete", "namespace", lab.namespace, "--wait=false")
    cluster.kubectl("delete", "crd", *(f"{plural}.{GROUP}" for plural in KINDS))


def prometheus(lab: OperatorLab, selector: dict[str, Any]) -> None:
    meta = {"name": "k8s", "namespace": lab.namespace}
    spec = {"podMonitorSelector": selector}
    lab.apply({"apiVersion": f"{GROUP}/v1", "kind": "Prometheus", "metadata": meta, "spec": spec})


def test_the_pod_monitor_is_one_that_the_stack_chooses(lab: OperatorLab) -> None:
    prometheus(lab, {"matchLabels": STACK})
    with lab.operator() as running:
        lab.deploy()
        made = until("a PodMonitor", lambda: lab.get("podmonitor"), 30.0)
        chosen = lab.cluster.kubectl(
            "get", "podmonitor", "-n", lab.namespace, "-l", "release=kube-prometheus-stack", "-o", "name"
        ).stdout.split()
        assert chosen == [f"podmonitor.{GROUP}/{made['metadata']['name']}"]
        assert [one["interval"] for one in made["spec"]["podMetricsEndpoints"]] == ["5s", "5s"]
        assert "selectors" not in json.dumps(running.lines())
