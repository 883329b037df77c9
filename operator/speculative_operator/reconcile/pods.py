"""What the serving pods say of themselves. Used by `conditions` (the first one in trouble), `plan` and `tick`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import mapping, mappings, text
from speculative_operator.reconcile import startup


@dataclass(frozen=True, slots=True)
class Pod:
    """One serving pod."""

    name: str
    ready: bool
    running: bool
    """Its volumes are mounted and it is not on its way out."""
    terminating: bool
    pair: str
    """Hash of the pair that its template was made for; empty if it bears none."""
    poked: str
    """Table version that it was last poked with; empty if never."""
    trouble: str
    """Why it is not ready, such as `ImagePullBackOff: ...`; empty when its status does not say."""
    outlasted: int = 0
    """Startup budget in seconds, where the startup probe ended the engine before it was ready; else 0."""


def read_pods(pods: Iterable[Mapping[str, Any]]) -> tuple[Pod, ...]:
    """The pods that have a name, sorted by name."""
    found = (_pod(pod) for pod in pods)
    return tuple(sorted((pod for pod in found if pod.name), key=lambda pod: pod.name))


def configs_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """Volume -> ConfigMap that a pod, or a pod template, mounts."""
    found = ((text(one, "name"), text(one, "configMap", "name")) for one in mappings(pod, "spec", "volumes"))
    return {volume: config for volume, config in found if config}


def first_trouble(pods: Iterable[Pod]) -> str:
    """Name and state of the first pod that is not ready and says why; empty when none does."""
    return next((f"{pod.name} {pod.trouble}" for pod in pods if not pod.ready and pod.trouble), "")


def first_ended_by_probe(pods: Iterable[Pod]) -> Pod | None:
    """The first pod whose engine was ended by its startup probe; None without one."""
    return next((pod for pod in pods if pod.outlasted), None)


def _pod(pod: Mapping[str, Any]) -> Pod:
    terminating = bool(text(pod, "metadata", "deletionTimestamp"))
    ready = any(
        text(condition, "type") == "Ready" and text(condition, "status") == "True"
        for condition in mappings(pod, "status", "conditions")
    )
    outlasted = 0 if ready or terminating else startup.outlasted_budget(pod)
    return Pod(
        name=text(pod, "metadata", "name"),
        ready=ready and not terminating,
        running=text(pod, "status", "phase") == "Running" and not terminating,
        terminating=terminating,
        pair=text(pod, "metadata", "labels", names.LABEL_PAIR),
        poked=text(pod, "metadata", "annotations", names.ANNOTATION_POKE),
        trouble="is terminating" if terminating else _late(outlasted) or _trouble(pod),
        outlasted=outlasted,
    )


def _late(outlasted: int) -> str:
    return f"was stopped by its startup probe: it was not ready within {outlasted} s" if outlasted else ""


def _trouble(pod: Mapping[str, Any]) -> str:
    for condition in mappings(pod, "status", "conditions"):
        if text(condition, "type") == "PodScheduled" and text(condition, "status") == "False":
            return _sentence(text(condition, "reason") or "Unschedulable", text(condition, "message"))
    statuses = (*mappings(pod, "status", "initContainerStatuses"), *mappings(pod, "status", "containerStatuses"))
    for container in statuses:
        state = _container_trouble(container)
        if state:
            return state
    phase = text(pod, "status", "phase")
    if phase == "Running":
        return "is starting: its probe does not succeed yet"
    return _sentence(text(pod, "status", "reason") or phase, text(pod, "status", "message"))


def _container_trouble(container: Mapping[str, Any]) -> str:
    waiting = mapping(container, "state", "waiting")
    reason = text(waiting, "reason")
    if reason == "CrashLoopBackOff":
        last = mapping(container, "lastState", "terminated")
        # The waiting message counts the back-off up: it would make a new status every few minutes.
        return _sentence(reason, f"last ended with {text(last, 'reason') or 'Error'}, exit code {last.get('exitCode')}")
    if reason and reason not in ("ContainerCreating", "PodInitializing"):
        return _sentence(reason, text(waiting, "message"))
    terminated = mapping(container, "state", "terminated")
    if terminated and terminated.get("exitCode") not in (0, None):
        return _sentence(text(terminated, "reason") or "Error", f"exit code {terminated.get('exitCode')}")
    return ""


def _sentence(reason: str, message: str) -> str:
    message = " ".join(message.split())[:300]
    return f"{reason}: {message}" if message else reason
