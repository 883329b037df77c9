"""Pods and Deployment as they describe themselves."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.domain import names
from speculative_operator.domain.reading import at, items, mapping, mappings, text, whole
from speculative_operator.reconcile.snapshot.pods import first_trouble, read_pods
from speculative_operator.reconcile.snapshot.requests import request_of
from speculative_operator.reconcile.snapshot.workload import read_rollout, read_workload

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "status": status}


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    return pod(
        phase="Pending", containerStatuses=[{"state": {"waiting": {"reason": reason, "message": message}}, **more}]
    )


@pytest.mark.parametrize(
    ("body", "trouble"),
    [
        (waiting("ImagePullBackOff", "no such image"), "p ImagePullBackOff: no such image"),
        (waiting("CreateContainerConfigError"), "p CreateContainerConfigError"),
        (
            waiting("CrashLoopBackOff", "back-off 40s", lastState={"terminated": {"reason": "Error", "exitCode": 2}}),
            "p CrashLoopBackOff: last ended with Error, exit code 2",
        ),
        (
            pod(
                conditions=[
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
                ]
            ),
            "p Unschedulable: 0/3 nodes",
        ),
        (
            pod(containerStatuses=[{"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]),
            "p OOMKilled: exit code 137",
        ),
        (pod(phase="Running"), "p is starting: its probe does not succeed yet"),
        (waiting("ContainerCreating"), "p Pending"),
        (pod(phase="Failed", reason="Evicted", message="node was low"), "p Evicted: node was low"),
        ({"metadata": {"name": "p", "deletionTimestamp": "t"}}, "p is terminating"),
        (pod(), ""),
    ],
)
def test_the_first_trouble_is_told(body: dict[str, Any], trouble: str) -> None:
    assert first_trouble(read_pods([body])) == trouble


def test_ready_running_and_poked() -> None:
    body = pod(phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    body["metadata"]["annotations"] = {names.ANNOTATION_POKE: "7"}
    (found,) = read_pods([body])
    assert (found.ready, found.running, found.poked) == (True, True, "7")
    body["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    (found,) = read_pods([body])
    assert (found.ready, found.running) == (False, False)


def deployment(generation: int = 2, observed: int = 2, replicas: int = 2, **status: int) -> dict[str, Any]:
    base = {
        "observedGeneration": observed,
        "replicas": 2,
        "updatedReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
    }
    return {"metadata": {"generation": generation}, "spec": {"replicas": replicas}, "status": base | status}


@pytest.mark.parametrize(
    ("body", "complete"),
    [
        (deployment(), True),
        (deployment(observed=1), False),
        (deployment(updatedReplicas=1), False),
        (deployment(replicas=3), False),
        (deployment(replicas=2) | {"status": {}}, False),
        (deployment(availableReplicas=1), False),
        ({"metadata": {}, "spec": {"replicas": 0}, "status": {}}, True),
        ({"metadata": {"generation": 1}, "spec": {"replicas": 1}, "status": {"observedGeneration": 1}}, False),
    ],
)
def test_a_rollout_is_complete_when_nothing_else_runs(body: dict[str, Any], complete: bool) -> None:
    assert read_rollout(body, 2).complete is complete


def test_old_pods_left_over_are_no_complete_rollout() -> None:
    body = deployment()
    body["status"]["replicas"] = 3
    assert not read_rollout(body, 2).complete


def test_a_stalled_rollout_says_so() -> None:
    body = deployment(updatedReplicas=1)
    body["status"]["conditions"] = [
        {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    ]
    assert read_rollout(body, 2).stalled == "timed out"
    body["metadata"]["generation"] = 3
    assert read_rollout(body, 2).stalled == "", "the message is about an older template"


@pytest.mark.parametrize(
    ("manager", "subresource", "field", "expected"),
    [
        ("kube-controller-manager", "scale", "f:replicas", True),
        ("keda", "scale", "f:replicas", True),
        ("kubectl", "scale", "f:replicas", False),
        ("kubectl-edit", "", "f:replicas", False),
        ("kube-controller-manager", "status", "f:replicas", False),
        ("kube-controller-manager", "scale", "f:paused", False),
    ],
)
def test_an_autoscaler_is_told_from_a_hand(manager: str, subresource: str, field: str, expected: bool) -> None:
    entry = {"manager": manager, "subresource": subresource, "fieldsV1": {"f:spec": {field: {}}}}
    assert bool(read_workload({"metadata": {"managedFields": [entry]}}, "uid").scaler) is expected


@given(value=ANYTHING, path=st.lists(st.text(max_size=4), max_size=3))
def test_reading_never_fails(value: Any, path: list[str]) -> None:
    at(value, *path)
    assert isinstance(text(value, *path), str)
    assert isinstance(whole(value, *path), int)
    assert hasattr(mapping(value, *path), "items")
    assert len(items(value, *path)) >= len(list(mappings(value, *path)))


def amounts(**asked: Any) -> dict[str, Any]:
    return {"name": "engine", "resources": {"limits": asked}}


def test_what_a_pod_asks_for_is_counted_as_the_scheduler_does() -> None:
    init = [amounts(cpu=3), {**amounts(cpu=1), "restartPolicy": "Always"}]
    spec = {"containers": [amounts(cpu=2), amounts(cpu="500m")], "initContainers": init, "overhead": {"cpu": "250m"}}
    assert request_of({"spec": spec}) == {"cpu": Decimal("4.25")}, "the first init container beside the one that stays"
    asked = {"resources": {"limits": {"cpu": 8}, "requests": {"cpu": 1}}}
    assert request_of({"spec": {"containers": [asked]}}) == {"cpu": Decimal(1)}


@pytest.mark.parametrize("amount", ["many", -1, None, [], "1e999999"])
def test_what_is_no_amount_counts_for_nothing_known(amount: Any) -> None:
    assert request_of({"spec": {"containers": [amounts(cpu=1), amounts(cpu=amount)]}}) is None
