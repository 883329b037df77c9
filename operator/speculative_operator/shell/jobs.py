"""Looks at the Jobs that inspect and fetch models (`domain.jobs.JobSeen`): at the Job, its pods, their termination
messages and the last lines of their logs. Of serving pods that fetch their weights themselves it reads the last line
alone: the rest is in their status.

Asked by `reconciler` before each tick. Only the last line of a running download is read from the API server, and not
often; without the permission for it a download merely shows no progress.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.jobs import JobSeen, Phase, Progress, Purpose, decode, progress_of
from speculative_operator.domain.reading import seconds_of
from speculative_operator.shell.bodies import JOB_ENDS, Body, end_of, purpose_of
from speculative_operator.shell.cache import Snapshot
from speculative_operator.shell.errors import ApiError, ForbiddenError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import JOB
from speculative_operator.training.seen import ON_ITS_WAY

log = logging.getLogger(__name__)

READ_EVERY = 4.0
"""seconds between two looks at the log of one pod."""
READ_WITHIN = 2.0
"""seconds that such a look may take: it goes through the kubelet, which may hang, and the reconcile waits for it."""
FORBIDDEN_PAUSE = 300.0
"""seconds without a look after one was forbidden: permissions change by hand."""
FORGET_AFTER = 600.0
"""seconds after which a pod that nobody asked about is forgotten."""
NO_POD_AFTER = 15.0
"""seconds after which a Job without a pod is in trouble: a quota or an admission rule stands in its way."""
SETTLES = 30.0
"""seconds that the end of a Job's pod may be seen later than the Job's own: they come by two watches."""
LONGEST = 400
"""Most characters of a message of a kubelet or a controller."""


@dataclass(slots=True)
class _Line:
    """The result of the last look at a pod's log."""

    at: float
    progress: Progress | None


class Jobs:
    """Looks at the Jobs of one object at a time. `clock` gives monotonic seconds."""

    def __init__(self, kube: Kube, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._clock = clock
        self._lines: dict[str, _Line] = {}
        self._not_before = 0.0

    async def observe(self, snapshot: Snapshot, now: float) -> tuple[JobSeen, ...]:
        """The state of the object's Jobs, by name; `now` in unix seconds. Raises nothing: Jobs that cannot be read are
        left out."""
        found = [body for (kind, _), body in sorted(snapshot.children.items()) if kind == JOB.kind and purpose_of(body)]
        return tuple([await self._one(job, snapshot.workers.get(job["metadata"]["name"], ()), now) for job in found])

    async def arriving(self, snapshot: Snapshot) -> Mapping[str, Progress]:
        """Name and progress of one serving pod that fetches its weights itself; empty without one. Raises nothing."""
        bringing = [(pod, runs) for pod in snapshot.pods if (runs := _brings(pod)) is not None]
        for pod, runs in sorted(bringing, key=lambda one: str(one[0]["metadata"]["name"]))[:1]:
            progress = await self._progress(pod, runs)
            return {pod["metadata"]["name"]: progress} if progress is not None else {}
        return {}

    async def _one(self, job: Body, pods: Sequence[Body], now: float) -> JobSeen:
        seen = job_seen(job, pods, now)
        running = next((pod for pod in pods if _phase(pod) == "Running"), None)
        if seen.purpose is not Purpose.FETCH or seen.phase is not Phase.RUNNING or running is None:
            return seen
        return replace(seen, progress=await self._progress(running))

    async def _progress(self, pod: Body, runs: int = 0) -> Progress | None:
        """The download progress that the pod's log told last in run number `runs`; None where it told none, or where
        the operator may not read logs."""
        meta, now = pod["metadata"], self._clock()
        key = f"{meta['uid']}/{runs}"
        line = self._lines.get(key)
        if now < self._not_before or (line is not None and now < line.at + READ_EVERY):
            return line.progress if line else None
        self._lines = {run: one for run, one in self._lines.items() if now < one.at + FORGET_AFTER}
        line = self._lines[key] = _Line(now, line.progress if line else None)
        try:
            async with asyncio.timeout(READ_WITHIN):
                text = await self._kube.last_line(meta["namespace"], meta["name"], names.JOB_CONTAINER)
        except ForbiddenError as error:
            self._not_before = now + FORBIDDEN_PAUSE
            log.warning("cannot show the progress of downloads: %s", error)
        except (ApiError, TimeoutError) as error:
            log.debug("cannot read the progress of pod %s: %s", meta["name"], error)
        else:
            line.progress = progress_of(text) or line.progress
        return line.progress


def _brings(pod: Body) -> int | None:
    """Restarts of the init container that fetches the pod's weights, while it runs; None while it does not."""
    for one in (pod.get("status") or {}).get("initContainerStatuses") or ():
        if one.get("name") == names.JOB_CONTAINER and (one.get("state") or {}).get("running"):
            return int(one.get("restartCount") or 0)
    return None


def job_seen(job: Body, pods: Iterable[Body], now: float) -> JobSeen:
    """The state of a Job of ours and its pods, without its progress; `now` in unix seconds. Raises ValueError for
    another Job."""
    meta, purpose = job["metadata"], purpose_of(job)
    if purpose is None:
        raise ValueError(f"Job {meta['name']} has no label {names.LABEL_JOB}")
    newest = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True)
    phase = phase_of(job, newest, now)
    result = next(filter(None, (_result(pod) for pod in newest)), None) if phase is not Phase.RUNNING else None
    return JobSeen(
        name=meta["name"],
        purpose=purpose,
        wanted=(meta.get("annotations") or {}).get(names.ANNOTATION_WANTED, ""),
        phase=phase,
        result=result,
        trouble="" if result is not None else trouble_of(job, newest, phase, now)[:LONGEST],
    )


def phase_of(job: Body, newest: Sequence[Body], now: float) -> Phase:
    """Phase of the Job; Running until its last pod is seen to have ended: only then its termination message is
    there. Also asked by `speculative bench`."""
    condition = end_of(job)
    if condition is None:
        return Phase.RUNNING
    heard = bool(newest) and _phase(newest[0]) in ("Succeeded", "Failed")
    if not heard and now - (seconds_of(str(condition.get("lastTransitionTime"))) or 0.0) < SETTLES:
        return Phase.RUNNING
    return JOB_ENDS[condition["type"]]


def _result(pod: Body) -> Mapping[str, Any] | None:
    """The result that a container of the pod left as its termination message; None where none can be read."""
    words = (str(end.get("message") or "") for end in _terminations(pod))
    return next((found for text in words if text and (found := decode(text)) is not None), None)


def _terminations(pod: Body) -> Iterable[Mapping[str, Any]]:
    """States in which the pod's containers ended, the last ones first."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    for state in ("state", "lastState"):
        for status in statuses:
            end = (status.get(state) or {}).get("terminated")
            if end:
                yield end


def trouble_of(job: Body, newest: Sequence[Body], phase: Phase, now: float) -> str:
    """Why the Job has no result, or will have none; empty where nothing is wrong. `newest`: its pods."""
    if newest and phase is Phase.RUNNING and _phase(newest[0]) in ("Pending", "Running"):
        return _waiting(newest[0])
    if newest and (told := _failure(newest[0])):
        return told
    end = end_of(job)
    if phase is Phase.FAILED and end is not None:
        return f"{end.get('reason', 'Failed')}: {end.get('message', '')}".removesuffix(": ")
    if phase is Phase.SUCCEEDED:
        return "it succeeded but left no result"
    return "" if newest else _unmade(job, now)


def _unmade(job: Body, now: float) -> str:
    """Why the Job has no pod; empty while that is normal."""
    meta = job["metadata"]
    if (job.get("spec") or {}).get("suspend"):
        return f"Job {meta['name']} is suspended"
    made = seconds_of(str(meta.get("creationTimestamp")))
    if made is None or now - made < NO_POD_AFTER:
        return ""
    return f"it has no pod; see: kubectl describe job {meta['name']} -n {meta['namespace']}"


def _waiting(pod: Body) -> str:
    """Why a pod that should run does not; empty where its status names no reason."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason', 'Unschedulable')}: {condition.get('message', '')}"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason", "") not in ON_ITS_WAY:
            return f"{waiting['reason']}: {waiting.get('message', '')}".removesuffix(": ")
    return ""


def _failure(pod: Body) -> str:
    """How the pod or one of its containers failed; empty where none failed."""
    status = pod.get("status") or {}
    for end in _terminations(pod):
        if end.get("exitCode"):
            reason = f"{end.get('reason') or 'Error'}, exit code {end['exitCode']}"
            words = str(end.get("message") or "").strip()
            error = (decode(words) or {}).get("error") if words else None
            if isinstance(error, Mapping):
                return str(error.get("message") or reason)
            return f"{reason}: {words}" if words else reason
    if _phase(pod) == "Failed":
        return f"{status.get('reason') or 'Failed'}: {status.get('message') or ''}".removesuffix(": ")
    return ""


def _phase(pod: Body) -> str:
    return str((pod.get("status") or {}).get("phase") or "")
