"""Pods are replaced by what a real API server tells of nodes and pods: the new one first where one more fits."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.cluster.operatorlab import OperatorLab, until

from devcluster import Cluster

pytestmark = pytest.mark.cluster

LABEL = "example.com/room"
HEARTBEAT_SECONDS = 5.0
"""Between those of the node: without one for about 40 seconds a control plane takes it for lost."""


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


@contextmanager
def ready_node(lab: OperatorLab, accelerators: int) -> Iterator[None]:
    """Make a node that only this test's pods may run on, and keep it ready as a kubelet would."""
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
    stop = threading.Event()

    def post() -> None:
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
        body = json.dumps({"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}})
        lab.cluster.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", body)

    def beat() -> None:
        while not stop.wait(HEARTBEAT_SECONDS):
            post()

    post()
    heart = threading.Thread(target=beat)
    heart.start()
    try:
        yield
    finally:
        stop.set()
        heart.join()


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
    with ready_node(lab, accelerators):
        assert_first(lab, first)


def make_pod_that_waits(lab: OperatorLab) -> None:
    """Somebody's pod that wants an accelerator and may not have that of the node: it does not count."""
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    spec = {"containers": [{"name": "theirs", "image": "theirs", "resources": limits}]}
    metadata = {"name": "theirs", "namespace": lab.namespace}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    lab.cluster.kubectl("create", "-f", "-", input=json.dumps(body))


def assert_first(lab: OperatorLab, first: bool) -> None:
    """Edit the object once it serves, and look which pod comes first."""
    make_pod_that_waits(lab)
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
