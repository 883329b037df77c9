"""A training as the API server has it at one moment: its object, its two Jobs and how their pods end. Made by
`shell.trainings` of what it has read, asked by `follow`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from speculative_operator.domain.jobs import Phase, decode
from speculative_operator.domain.reading import at, is_controlled_by, mapping, mappings, seconds_of, text, whole
from speculative_operator.domain.training import Training
from speculative_operator.training.progress import Progress

LAST_WORDS = 600
"""Characters of the end of a log that are told of a container that failed."""
BESIDE = frozenset({"states"})
"""Containers that run beside the one that does the work, until the pod ends."""
ON_ITS_WAY = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Why a container waits where nothing is wrong."""


@dataclass(frozen=True, slots=True)
class JobSeen:
    """One Job of a training. Times in unix seconds."""

    phase: Phase
    owned: bool = True
    """False for a Job by this name that somebody else made: it is left alone."""
    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Container -> what it left as its termination message."""
    running: str = ""
    """The container of the newest pod that does the work now; empty where none runs."""
    trouble: str = ""
    """Why its pod does not run, or how it failed."""
    cause: str = ""
    """Reason of its end as the Job controller gives it, such as DeadlineExceeded."""
    ends: frozenset[str] = frozenset()
    """Reasons by which its newest pod and its containers ended, such as OOMKilled, Evicted or Error."""
    started: float | None = None
    ended: float | None = None
    pod_started: float | None = None
    """Start of its first pod on a node."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One training: what it asks for, its status as stored, and its Jobs, None where there is none by that name."""

    training: Training
    status: Mapping[str, Any]
    look: JobSeen | None = None
    """The Job without accelerators."""
    train: JobSeen | None = None
    progress: Progress | None = None
    """What the log of the running container told last."""


def job_seen(
    job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], uid: str, phase: Phase, trouble: str
) -> JobSeen:
    """A Job and its pods, newest first, as `follow` asks of them. `uid`: of the training; `trouble`: what the Job tells
    where its pods tell nothing."""
    status = at(job, "status")
    held = {text(one, "type"): one for one in mappings(status, "conditions") if text(one, "status") == "True"}
    end = held.get("Failed") or held.get("Complete") or {}
    times = [seconds_of(text(pod, "status", "startTime")) for pod in pods]
    # By its newest end: what a container left in an earlier pod is over, even if it leaves nothing now.
    left = {name: text(_end(one), "message") for pod in reversed(pods) for name, one in _containers(pod) if _end(one)}
    return JobSeen(
        phase=phase,
        owned=is_controlled_by(job, uid),
        results={name: found for name, message in left.items() if (found := decode(message)) is not None},
        running=_running(pods[0]) if pods else "",
        trouble=(_trouble(pods[0]) if pods else "") or trouble,
        cause=text(held.get("Failed"), "reason"),
        ends=frozenset(_ends(pods[0])) if pods else frozenset(),
        started=seconds_of(text(status, "startTime")),
        ended=seconds_of(text(status, "completionTime") or text(end, "lastTransitionTime")),
        pod_started=min((time for time in times if time is not None), default=None),
    )


def _end(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """How a container ended; empty where it waits, runs or never began."""
    return mapping(container, "state", "terminated")


def _containers(pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name and status of the pod's containers, in the order in which they run."""
    for kind in ("initContainerStatuses", "containerStatuses"):
        yield from ((text(one, "name"), one) for one in mappings(pod, "status", kind))


def _running(pod: Mapping[str, Any]) -> str:
    runs = (name for name, one in _containers(pod) if at(one, "state", "running") is not None)
    return next((name for name in runs if name not in BESIDE), "")


def _trouble(pod: Mapping[str, Any]) -> str:
    """Why a pod does not run, or how it failed; empty where nothing is wrong."""
    for one in mappings(pod, "status", "conditions"):
        if text(one, "type") == "PodScheduled" and text(one, "status") == "False":
            return f"{text(one, 'reason')}: {text(one, 'message')}"
    for name, one in _containers(pod):
        waiting, end = mapping(one, "state", "waiting"), mapping(one, "state", "terminated")
        if waiting and text(waiting, "reason") not in ON_ITS_WAY:
            return f"container {name}: {text(waiting, 'reason')}: {text(waiting, 'message')}".removesuffix(": ")
        if whole(end, "exitCode") and name not in BESIDE:
            told = text(mapping(decode(text(end, "message")), "error"), "message")
            words = told or text(end, "message").strip()[-LAST_WORDS:]
            ended = f"container {name} ended: {text(end, 'reason')}, exit code {whole(end, 'exitCode')}"
            return f"{ended}: {words}" if words else ended
    return ""


def _ends(pod: Mapping[str, Any]) -> set[str]:
    status = at(pod, "status")
    found = {text(status, "reason")}
    found |= {text(one, "reason") for one in mappings(status, "conditions") if text(one, "type") == "DisruptionTarget"}
    for _, one in _containers(pod):
        found |= {text(one, state, "terminated", "reason") for state in ("state", "lastState")}
    return found - {""}
