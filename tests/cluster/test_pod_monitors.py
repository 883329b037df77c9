"""A cluster with prometheus-operator's kinds, and kube-prometheus-stack's selector: PodMonitors of serving pods are
chosen by it without an edit, with the rights of the installed roles and nothing more.

PodMonitor is the real one; Prometheus, of which the operator reads some fields, is a stand-in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests import definitions
from tests.cluster.operatorlab import ROOT, OperatorLab, until

from devcluster import Cluster

pytestmark = pytest.mark.cluster

DEFINITIONS = [*definitions.read("monitoring"), definitions.PROMETHEUS]
CHART = str(ROOT / "charts" / "speculative-operator")
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


def prometheus(lab: OperatorLab, selector: dict[str, Any], name: str = "k8s", **spec: Any) -> None:
    meta = {"name": name, "namespace": lab.namespace}
    spec["podMonitorSelector"] = selector
    lab.apply({"apiVersion": f"{definitions.MONITORING}/v1", "kind": "Prometheus", "metadata": meta, "spec": spec})


def test_the_pod_monitor_is_one_that_the_stack_chooses(lab: OperatorLab) -> None:
    prometheus(lab, {"matchLabels": STACK})
    with lab.operator() as running:
        lab.deploy()
        made = until("a PodMonitor", lambda: lab.get("podmonitor"))
        chosen = lab.cluster.kubectl(
            "get", "podmonitor", "-n", lab.namespace, "-l", "release=kube-prometheus-stack", "-o", "name"
        ).stdout.split()
        assert chosen == [f"podmonitor.{definitions.MONITORING}/{made['metadata']['name']}"]
        assert [one["interval"] for one in made["spec"]["podMetricsEndpoints"]] == ["5s", "5s"]
        assert "selectors" not in json.dumps(running.lines())


def test_of_two_servers_none_is_asked_before_somebody_chooses(lab: OperatorLab) -> None:
    prometheus(lab, {"matchLabels": STACK})
    with lab.operator(prometheus_url=""):
        lab.deploy()
        lab.make_ready()
        only = f"prometheus-operated.{lab.namespace}.svc"
        until("the only server is asked", lambda: only in lab.condition("MetricsAvailable").get("message", ""))
    prometheus(lab, {}, "other")
    with lab.operator(prometheus_url=""):
        found = until("two are found", lambda: "2 Prometheus" in lab.condition("MetricsAvailable").get("message", ""))
        assert found
        said = lab.condition("MetricsAvailable")
        assert said["reason"] == "PrometheusError"
        assert f"({lab.namespace}/k8s, {lab.namespace}/other)" in said["message"]
        assert "prometheus.url" in said["message"]
    lab.delete("prometheus", "other")


def installing(lab: OperatorLab, *settings: str) -> tuple[dict[str, dict[str, Any]], str]:
    """What Helm would install, which looks at the cluster, by kind; and its notes."""
    values = (
        "image.repository=a",
        "crds.enabled=false",
        "metrics.podMonitor.enabled=true",
        "metrics.alerts.enabled=true",
    )
    options = [option for one in (*values, *settings) for option in ("--set", one)]
    text = lab.cluster.helm("install", "probe", CHART, "-n", lab.namespace, "--dry-run=server", *options).stdout
    manifest, _, notes = text.partition("MANIFEST:")[2].partition("NOTES:")
    return {one["kind"]: one for one in yaml.safe_load_all(manifest) if one}, notes


def test_the_chart_takes_the_labels_by_which_the_server_chooses(lab: OperatorLab) -> None:
    """Those of the settings go before; those that a server asks for under a prefix are other programs'."""
    prometheus(
        lab,
        {"matchLabels": {**STACK, "argocd.argoproj.io/instance": "x"}},
        ruleSelector={"matchLabels": {"role": "alerts"}},
    )
    objects, notes = installing(lab)
    labels = {kind: objects[kind]["metadata"]["labels"] for kind in ("PodMonitor", "PrometheusRule")}
    assert labels["PodMonitor"]["release"] == "kube-prometheus-stack"
    assert "argocd.argoproj.io/instance" not in labels["PodMonitor"]
    assert labels["PrometheusRule"]["role"] == "alerts"
    assert "release" not in labels["PrometheusRule"]
    assert "has no label" not in notes
    admitted = re.findall(r"kubernetes.io/metadata.name: (\S+)", yaml.safe_dump(objects["NetworkPolicy"]))
    assert admitted == ["monitoring", lab.namespace]
    own, _ = installing(lab, "metrics.podMonitor.labels.release=mine")
    assert own["PodMonitor"]["metadata"]["labels"]["release"] == "mine"


def test_the_notes_name_the_value_where_no_label_is_found(lab: OperatorLab) -> None:
    prometheus(lab, {"matchLabels": STACK})
    prometheus(lab, {"matchLabels": {"release": "other"}}, "other")
    for found, notes in (installing(lab), installing(lab, "metrics.followPrometheus=false")):
        assert "release" not in found["PodMonitor"]["metadata"]["labels"]
        assert "--set metrics.podMonitor.labels.release=" in notes
        assert "--set metrics.alerts.labels.release=" in notes
    lab.delete("prometheus", "other")
