"""Phases, conditions and container statuses from container states."""

from typing import Any

import pytest

from devcluster.node.status import ContainerStatus, PodView, Running, Terminated, Waiting, compute, phase

POD: dict[str, Any] = {"metadata": {"name": "p", "generation": 3}, "spec": {}}
OK = Terminated(0, "Completed", 1.0, 2.0)
BAD = Terminated(3, "Error", 1.0, 2.0, "last words", "process://1")


def container(state: Any, **more: Any) -> ContainerStatus:
    return ContainerStatus("c", "image", state, **more)


def view(containers: list[ContainerStatus], init: list[ContainerStatus] | None = None, **more: Any) -> PodView:
    values: dict[str, Any] = {
        "address": "10.88.1.2",
        "node_address": "10.88.0.2",
        "start_time": 0.0,
        "network_ready": True,
    }
    return PodView(init=init or [], containers=containers, **(values | more))


@pytest.mark.parametrize(
    ("containers", "init", "more", "expected"),
    [
        ([container(Waiting())], [], {}, "Pending"),
        ([container(Waiting()), container(Running(1.0))], [], {}, "Pending"),
        ([container(Running(1.0))], [], {}, "Running"),
        ([container(Waiting("CrashLoopBackOff"), last=BAD, restarts=2)], [], {}, "Running"),
        ([container(BAD)], [], {}, "Running"),
        ([container(Running(1.0))], [container(Running(1.0))], {}, "Pending"),
        ([container(Running(1.0))], [container(OK)], {}, "Running"),
        ([container(Waiting())], [container(Running(1.0), sidecar=True, was_started=True)], {}, "Pending"),
        ([container(Running(1.0))], [container(Waiting(), sidecar=True, was_started=True)], {}, "Running"),
        ([container(OK), container(OK)], [], {"ended": True}, "Succeeded"),
        ([container(OK), container(BAD)], [], {"ended": True}, "Failed"),
        ([container(Waiting())], [container(BAD)], {"ended": True}, "Failed"),
        ([container(OK)], [container(BAD, sidecar=True)], {"ended": True}, "Succeeded"),
        ([container(Waiting())], [], {"ended": True}, "Failed"),
    ],
)
def test_phase(
    containers: list[ContainerStatus], init: list[ContainerStatus], more: dict[str, Any], expected: str
) -> None:
    assert phase(view(containers, init, **more)) == expected


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c.get("reason", "")) for c in status["conditions"]}


def test_ready_pod() -> None:
    status = compute(
        POD, view([container(Running(1.0), ready=True, started=True, container_id="process://1")]), [], 100.0
    )
    assert conditions(status)["Ready"] == ("True", "")
    assert status["observedGeneration"] == 3
    assert status["podIPs"] == [{"ip": "10.88.1.2"}]
    assert status["containerStatuses"] == [
        {
            "name": "c",
            "image": "image",
            "imageID": "local/image",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": "1970-01-01T00:00:01Z"}},
            "lastState": {},
            "containerID": "process://1",
        }
    ]


def test_unready_says_which_containers() -> None:
    status = compute(POD, view([container(Running(1.0))], [container(Running(1.0))]), [], 100.0)
    assert conditions(status)["Ready"] == ("False", "ContainersNotReady")
    assert conditions(status)["Initialized"] == ("False", "ContainersNotInitialized")
    assert (
        next(c for c in status["conditions"] if c["type"] == "Ready")["message"]
        == "containers with unready status: [c]"
    )


def test_completed_pod_is_not_ready_because_it_is_done() -> None:
    status = compute(POD, view([container(OK)], ended=True), [], 100.0)
    assert conditions(status)["Ready"] == ("False", "PodCompleted")
    assert conditions(status)["Initialized"] == ("True", "")


def test_transition_time_moves_only_with_the_status() -> None:
    before = compute(POD, view([container(Running(1.0))]), [], 100.0)["conditions"]
    later = compute(POD, view([container(Running(1.0))]), before, 200.0)["conditions"]
    assert later == before
    ready = compute(POD, view([container(Running(1.0), ready=True)]), before, 300.0)["conditions"]
    moved = {c["type"] for c in ready if c["lastTransitionTime"] == "1970-01-01T00:05:00Z"}
    assert moved == {"Ready", "ContainersReady"}


def test_terminated_state_carries_code_times_and_last_words() -> None:
    status = compute(POD, view([container(Waiting("CrashLoopBackOff", "back-off 10s"), last=BAD, restarts=1)]), [], 0.0)
    shown = status["containerStatuses"][0]
    assert shown["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    assert shown["lastState"]["terminated"]["exitCode"] == 3
    assert shown["lastState"]["terminated"]["message"] == "last words"
    assert shown["restartCount"] == 1
