"""From container states to a pod's ``status``: phase, conditions, container statuses as a kubelet has them. Pure.

Container runners keep a ContainerStatus each; the pod worker assembles a PodView; the reporter patches what `compute`
returns when it differs from what it patched last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

Phase = Literal["Pending", "Running", "Succeeded", "Failed"]


@dataclass(frozen=True)
class Waiting:
    reason: str = "ContainerCreating"
    message: str = ""


@dataclass(frozen=True)
class Running:
    started_at: float


@dataclass(frozen=True)
class Terminated:
    """How a container ended. Times are seconds since the epoch; exit code 128 + signal where it was killed."""

    exit_code: int
    reason: str
    started_at: float
    finished_at: float
    message: str = ""
    container_id: str = ""


@dataclass
class ContainerStatus:
    """What is known of one container; owned by its runner."""

    name: str
    image: str
    state: Waiting | Running | Terminated
    last: Terminated | None = None
    restarts: int = 0
    started: bool = False
    ready: bool = False
    container_id: str = ""
    sidecar: bool = False
    was_started: bool = False


@dataclass(frozen=True)
class PodView:
    """A pod as its worker sees it."""

    address: str
    node_address: str
    start_time: float
    init: Sequence[ContainerStatus]
    containers: Sequence[ContainerStatus]
    network_ready: bool
    ended: bool = False


def timestamp(seconds: float) -> str:
    """RFC 3339 with whole seconds, the API's usual form."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def phase(view: PodView) -> Phase:
    """The phase. `view.ended` says that no container of the pod will run again."""
    if view.ended:
        well = all(_succeeded(c) for c in view.containers) and all(_succeeded(c) for c in view.init if not c.sidecar)
        return "Succeeded" if well else "Failed"
    if not all(initialized(c) for c in view.init):
        return "Pending"
    unborn = any(isinstance(c.state, Waiting) and c.last is None and c.restarts == 0 for c in view.containers)
    return "Pending" if unborn else "Running"


def _succeeded(container: ContainerStatus) -> bool:
    return isinstance(container.state, Terminated) and container.state.exit_code == 0


def initialized(container: ContainerStatus) -> bool:
    """Has this init container done its part: ended well, or as a sidecar once been started?"""
    if container.sidecar:
        return container.was_started
    return _succeeded(container)


def compute(pod: Mapping[str, Any], view: PodView, previous: Sequence[Mapping[str, Any]], now: float) -> dict[str, Any]:
    """The status to report. `previous` are the conditions reported last: unchanged ones keep their transition time."""
    now_phase = phase(view)
    status: dict[str, Any] = {
        "phase": now_phase,
        "hostIP": view.node_address,
        "hostIPs": [{"ip": view.node_address}],
        "startTime": timestamp(view.start_time),
        "conditions": _dated(_conditions(view, now_phase), previous, now),
        "containerStatuses": [_container(c) for c in view.containers],
    }
    if view.address:
        status |= {"podIP": view.address, "podIPs": [{"ip": view.address}]}
    if view.init:
        status["initContainerStatuses"] = [_container(c) for c in view.init]
    if "generation" in pod["metadata"]:
        status["observedGeneration"] = pod["metadata"]["generation"]
    return status


def _conditions(view: PodView, now_phase: Phase) -> list[dict[str, str]]:
    unready = [c.name for c in view.containers if not c.ready]
    waiting = [c.name for c in view.init if not initialized(c)]
    done = now_phase in ("Succeeded", "Failed")
    why = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(now_phase, "ContainersNotReady")
    detail = f"containers with unready status: [{' '.join(unready)}]"
    ready = not unready and not waiting and not done
    return [
        _condition("PodReadyToStartContainers", view.network_ready),
        _condition(
            "Initialized",
            not waiting,
            "ContainersNotInitialized",
            f"containers with incomplete status: [{' '.join(waiting)}]",
        ),
        _condition("Ready", ready, why, detail),
        _condition("ContainersReady", ready, why, detail),
        {"type": "PodScheduled", "status": "True"},
    ]


def _condition(name: str, true: bool, reason: str = "", message: str = "") -> dict[str, str]:
    if true:
        return {"type": name, "status": "True"}
    return {"type": name, "status": "False"} | ({"reason": reason, "message": message} if reason else {})


def _dated(conditions: list[dict[str, str]], previous: Sequence[Mapping[str, Any]], now: float) -> list[dict[str, str]]:
    known = {c["type"]: c for c in previous}
    for condition in conditions:
        old = known.get(condition["type"])
        same = old is not None and old["status"] == condition["status"] and "lastTransitionTime" in old
        condition["lastTransitionTime"] = str(old["lastTransitionTime"]) if same and old else timestamp(now)
    return conditions


def _container(container: ContainerStatus) -> dict[str, Any]:
    status: dict[str, Any] = {
        "name": container.name,
        "image": container.image,
        "imageID": f"local/{container.image}" if container.container_id else "",
        "ready": container.ready,
        "started": container.started,
        "restartCount": container.restarts,
        "state": _state(container.state),
        "lastState": _state(container.last) if container.last else {},
    }
    return status | ({"containerID": container.container_id} if container.container_id else {})


def _state(state: Waiting | Running | Terminated) -> dict[str, Any]:
    if isinstance(state, Waiting):
        return {"waiting": {"reason": state.reason} | ({"message": state.message} if state.message else {})}
    if isinstance(state, Running):
        return {"running": {"startedAt": timestamp(state.started_at)}}
    ended: dict[str, Any] = {
        "exitCode": state.exit_code,
        "reason": state.reason,
        "startedAt": timestamp(state.started_at),
        "finishedAt": timestamp(state.finished_at),
    }
    ended |= {"message": state.message} if state.message else {}
    return {"terminated": ended | ({"containerID": state.container_id} if state.container_id else {})}
