"""Pods are replaced by what a real API server tells of nodes and pods: the new one first where one more fits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.operatorlab import OperatorLab, until

from devcluster import Cluster

pytestmark = pytest.mark.cluster

LABEL = "example.com/room"


@pytest.fixture(scope="module")
def installed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorLab]:
    lab = OperatorLab(cluster, tmp_path_factory.mktemp("room"))
    lab.install()
    with lab.operator():
        yield lab


@pytest.fixture
def lab(installed: OperatorLab) -> Iterator[OperatorLab]:
    installed.enter()
    yield installed
    installed.cluster.kubectl("delete", "namespace", installed.namespace, "--wait=false")
    installed.cluster.kubectl("delete", "node", "-l", f"{LABEL}={installed.namespace}")


def make_node(lab: OperatorLab, accelerators: int) -> None:
    """A ready node that only this test's pods may run on."""
    name = f"gpu-{lab.namespace}"
    taint = {"key": LABEL, "value": lab.namespace, "effect": "NoSchedule"}
    body = {"metadata": {"name": name, "labels": {LABEL: lab.namespace}}, "spec": {"taints": [taint]}}
    lab.cluster.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "Node", **body}))
    amounts = {
        "nvidia.com/gpu": str(accelerators),
        "cpu": "256",
        "memory": "4Ti",
        "ephemeral-storage": "40Ti",
        "pods": "9",
    }
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    lab.cluster.kubectl(
        "patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})
    )


def served(lab: OperatorLab, *arguments: str) -> dict[str, Any]:
    """What a user applies: one replica on that node."""
    return {
        "replicas": 1,
        "engine": {"args": ["--seed=0", *arguments]},
        "template": {
            "spec": {
                "nodeSelector": {LABEL: lab.namespace},
                "tolerations": [{"key": LABEL, "operator": "Exists"}],
            }
        },
    }


@pytest.mark.parametrize(("accelerators", "first"), [(1, False), (2, True)], ids=["none free", "one free"])
def test_the_new_pod_comes_first_where_one_more_fits(lab: OperatorLab, accelerators: int, first: bool) -> None:
    make_node(lab, accelerators)
    lab.deploy(**served(lab))
    lab.pods(1)
    until("the pod has its node", lambda: lab.pods(1)[0]["spec"].get("nodeName"))
    (old,) = lab.make_ready(1)
    until("it serves", lambda: lab.condition("Ready").get("status") == "True")
    lab.deploy(**served(lab, "--enforce-eager"))

    def strategy() -> Any:
        deployment = lab.get("deployment") or {}
        arguments = json.dumps(deployment["spec"]["template"]["spec"]["containers"])
        return deployment["spec"]["strategy"] if "--enforce-eager" in arguments else None

    found = until("the edit reaches the Deployment", strategy)
    if first:
        assert found == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        pods = {pod["metadata"]["name"]: pod for pod in lab.pods(2)}
        assert "deletionTimestamp" not in pods[old]["metadata"], "the old one serves until the new one does"
    else:
        assert found == {"type": "Recreate"}
