"""Pods are replaced by what a real scheduler tells of a new pod: an old one ends only where no node has room."""

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


def test_with_room_no_pod_ends_before_the_new_one_serves(lab: OperatorLab) -> None:
    with ready_node(lab, 2):
        old = begin_rollout(lab)
        until("the new pod has a node", lambda: [one for one in pods(lab).values() if is_placed(one)][1:])
        assert "deletionTimestamp" not in pods(lab)[old]["metadata"]
        assert strategy(lab) == NEW_FIRST


def test_without_room_an_old_pod_ends_after_a_minute(lab: OperatorLab) -> None:
    with ready_node(lab, 1):
        old = begin_rollout(lab)
        until("it waits", lambda: waits(lab), WAITS)
        until("the old pod ends", lambda: "deletionTimestamp" in pods(lab)[old]["metadata"])
        # No kubelet is there to end it.
        lab.cluster.kubectl("delete", "pod", old, "-n", lab.namespace, "--force", "--grace-period=0")
        until("the new pod has its node", lambda: any(is_placed(one) for one in pods(lab).values()))
        until("the strategy is the one at rest", lambda: strategy(lab) == NEW_FIRST)


def test_a_restart_does_not_end_the_only_pod(lab: OperatorLab) -> None:
    with ready_node(lab, 1):
        old = serve_one(lab)
        lab.cluster.kubectl("rollout", "restart", "deployment", "gemma", "-n", lab.namespace)
        until("it waits", lambda: waits(lab), WAITS)
        assert "a restart does not end the only pod" in waits(lab)
        assert "deletionTimestamp" not in pods(lab)[old]["metadata"]


NEW_FIRST = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
WAITS = 120.0
"""Seconds for the minute that a new pod waits, on a busy machine."""


def pods(lab: OperatorLab) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in lab.listed("pods")}


def is_placed(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName"))


def strategy(lab: OperatorLab) -> Any:
    return (lab.get("deployment") or {})["spec"]["strategy"]


def waits(lab: OperatorLab) -> str:
    """What the condition says while the rollout waits; empty else."""
    found = lab.condition("RolloutHealthy")
    return str(found["message"]) if found.get("reason") == "RolloutWaits" else ""


def serve_one(lab: OperatorLab) -> str:
    """Name of the one pod, once it serves."""
    lab.deploy(**served(lab))
    lab.pods(1)
    until("the pod has its node", lambda: is_placed(lab.pods(1)[0]))
    (name,) = lab.make_ready(1)
    until("it serves", lambda: lab.condition("Ready").get("status") == "True")
    return name


def begin_rollout(lab: OperatorLab) -> str:
    """Edit the object once it serves; the name of the old pod."""
    old = serve_one(lab)
    lab.deploy(**served(lab, "--enforce-eager"))
    until("the edit reaches the Deployment", lambda: "--enforce-eager" in json.dumps(lab.get("deployment") or {}))
    assert strategy(lab) == NEW_FIRST
    return old
