"""PodMonitors and PrometheusRules on prometheus-operator's own definitions: what operator and chart make is taken
strictly and stored as it was written. KEDA's ScaledObject is an example: test_status_and_views.py."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests import definitions
from tests.contract.conftest import ROOT
from tests.golden.case import every

from devcluster import Cluster
from speculative_operator.reconcile.observed.drift import first_difference

pytestmark = pytest.mark.cluster

CHART = str(ROOT / "charts" / "speculative-operator")
OF_OBJECTS = {
    case.name: one for case in every() for one in case.children() if one["apiVersion"].startswith("monitoring.")
}


@pytest.fixture(scope="module")
def monitored(bare_cluster: Cluster) -> Cluster:
    definitions.install(bare_cluster, definitions.read("monitoring"))
    bare_cluster.kubectl("create", "namespace", "models", check=False)
    return bare_cluster


@pytest.mark.parametrize("case", sorted(OF_OBJECTS))
def test_monitors_of_serving_pods_are_taken(monitored: Cluster, case: str) -> None:
    made = OF_OBJECTS[case]
    assert first_difference(made, definitions.accepted(monitored, made)) == ""


def test_what_the_chart_makes_is_taken(monitored: Cluster) -> None:
    values = (
        "image.repository=a,metrics.podMonitor.enabled=true,metrics.podMonitor.labels.release=kps,"
        "metrics.alerts.enabled=true,metrics.alerts.labels.release=kps,metrics.alerts.runbookUrl=https://example.org"
    )
    text = monitored.helm("template", "a", CHART, "--namespace", "default", "--set", values).stdout
    objects: list[dict[str, Any]] = [one for one in yaml.safe_load_all(text) if one]
    made = {one["kind"]: one for one in objects if one["apiVersion"] == f"{definitions.MONITORING}/v1"}
    assert made.keys() == {"PodMonitor", "PrometheusRule"}
    for one in made.values():
        assert first_difference(one, definitions.accepted(monitored, one)) == ""
