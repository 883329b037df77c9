"""Serving pods as the API server has them. Read by `take`, and by the command line."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import at, mapping, mappings, seconds_of, text, whole
from speculative_operator.reconcile.snapshot.requests import Amounts, request_of

SLACK_SECONDS = 60.0
"""Between the end of a probe's budget and the end of what it ended, and between what clocks tell."""
_PERIOD, _FAILURES = 10, 3
"""Seconds and number of attempts of a probe that names none."""
_TEMPLATES = ("pod-template-hash", "leaderworkerset.sigs.k8s.io/template-revision-hash")
"""Labels by which controllers tell pods of one template from those of another."""
_RESTARTED = "kubectl.kubernetes.io/restartedAt"
_PLACEMENT = (
    "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "schedulerName", "runtimeClassName",
    "resourceClaims", "hostNetwork", "priority",
)  # fmt: skip
"""Fields of a pod's spec that decide on which nodes it may run."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How the last run of a container ended."""

    exit_code: int | None
    reason: str
    message: str
    started: float | None
    finished: float | None
    """unix seconds"""


@dataclass(frozen=True, slots=True)
class Container:
    """The status of one container of a pod."""

    name: str = ""
    ready: bool = False
    started: bool | None = None
    """False until the startup probe has succeeded; None where the kubelet does not say."""
    restarts: int = 0
    waiting: str = ""
    """Why it waits, such as `ImagePullBackOff`; empty where it does not."""
    message: str = ""
    """The kubelet's words on why it waits."""
    since: str = ""
    """Start of the present run, RFC 3339; empty where it does not run."""
    ended: Ended | None = None
    """End of its last run, where it does not run; else None."""
    last: Ended | None = None
    """End of the run before."""

    @property
    def trouble(self) -> str:
        """What keeps it from running; empty where nothing does, or it only starts."""
        if self.waiting == "CrashLoopBackOff":
            # The waiting message counts the back-off up: it would make a new status every few minutes.
            reason, code = (self.last.reason, self.last.exit_code) if self.last is not None else ("", None)
            return _sentence(self.waiting, f"last ended with {reason or 'Error'}, exit code {code}")
        if self.waiting and self.waiting not in ("ContainerCreating", "PodInitializing"):
            return _sentence(self.waiting, self.message)
        if self.ended is not None and self.ended.exit_code not in (0, None):
            return _sentence(self.ended.reason or "Error", f"exit code {self.ended.exit_code}")
        return ""


@dataclass(frozen=True, slots=True)
class Pod:
    """One serving pod."""

    name: str
    ready: bool = False
    running: bool = False
    """Its volumes are mounted and it is not on its way out."""
    terminating: bool = False
    over: bool = False
    """It has ended, for better or worse, and starts no more."""
    pair: str = ""
    """Hash of the pair that its template was made for; empty if it bears none."""
    poked: str = ""
    """Table version that it was last poked with; empty if never."""
    trouble: str = ""
    """Why it is not ready, such as `ImagePullBackOff: ...`; empty when its status does not say."""
    outlasted: int = 0
    """Startup budget in seconds, where the startup probe ended the engine before it was ready; else 0."""
    node: str = ""
    template: str = ""
    """What its controller tells pods of one template by; empty if it bears none."""
    restarted: str = ""
    """When somebody restarted the pods with kubectl, in kubectl's words; empty if nobody did."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Volume -> ConfigMap that it mounts."""
    engine: Container = field(default_factory=Container)
    helper: Container = field(default_factory=Container)
    """The container of the operator that brings the weights."""
    started: str = ""
    """Start of its engine, RFC 3339, where the pod is ready and tells how long that took; else empty."""
    start_seconds: float = 0.0
    """Seconds that it took to become ready."""
    displaces: bool = False
    """By its priority it may displace pods of others."""
    unschedulable: str = ""
    """What the scheduler says of a pod that it finds no node for; empty for others."""
    unschedulable_since: float | None = None
    """unix seconds"""
    placement: tuple[Any, ...] = ()
    """The fields that decide on which nodes it may run: to be compared, not read."""
    claims: frozenset[str] = frozenset()
    """Names of the claims that it mounts."""
    requests: Amounts | None = None
    """What it asks a node for; None where a quantity is none, or no pod waits for a node."""


def read_pods(
    pods: Iterable[Mapping[str, Any]], container: str = names.CONTAINER, noted: Collection[str] = ()
) -> tuple[Pod, ...]:
    """The pods that have a name, sorted by name. `container`: name of the engine's container; `noted`: labels that
    pods bear as annotations."""
    bodies = [pod for pod in pods if text(pod, "metadata", "name")]
    waiting = any(_find_unschedulable(pod) for pod in bodies)
    found = (_pod(pod, container, noted, weighed=waiting) for pod in bodies)
    return tuple(sorted(found, key=lambda pod: pod.name))


def first_trouble(pods: Iterable[Pod]) -> str:
    """Name and state of the first pod that is not ready and says why; empty when none does."""
    return next((f"{pod.name} {pod.trouble}" for pod in pods if not pod.ready and pod.trouble), "")


def first_ended_by_probe(pods: Iterable[Pod]) -> Pod | None:
    """The first pod whose engine was ended by its startup probe; None without one."""
    return next((pod for pod in pods if pod.outlasted), None)


def configs_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """Volume -> ConfigMap that a pod, or a pod template, mounts."""
    found = ((text(one, "name"), text(one, "configMap", "name")) for one in mappings(pod, "spec", "volumes"))
    return {volume: config for volume, config in found if config}


def _pod(pod: Mapping[str, Any], container: str, noted: Collection[str], *, weighed: bool) -> Pod:
    annotations = mapping(pod, "metadata", "annotations")
    labels = {**mapping(pod, "metadata", "labels"), **{key: annotations[key] for key in noted if key in annotations}}
    terminating, phase = bool(text(pod, "metadata", "deletionTimestamp")), text(pod, "status", "phase")
    true = {text(one, "type"): one for one in mappings(pod, "status", "conditions") if text(one, "status") == "True"}
    containers = [_container(one) for one in mappings(pod, "status", "containerStatuses")]
    helpers = [_container(one) for one in mappings(pod, "status", "initContainerStatuses")]
    engine = next((one for one in containers if one.name == container), Container())
    refusal, ready = _find_unschedulable(pod), "Ready" in true and not terminating
    budget, longest = _budget_of(pod, container)
    outlasted = 0 if ready or terminating else _outlasted(engine, budget, longest)
    up = text(true.get("ContainersReady"), "lastTransitionTime") if ready else ""
    started, seconds = _start_of(engine, up, budget)
    return Pod(
        name=text(pod, "metadata", "name"),
        ready=ready,
        running=phase == "Running" and not terminating,
        terminating=terminating,
        over=phase in ("Succeeded", "Failed"),
        pair=text(labels, names.LABEL_PAIR),
        poked=text(annotations, names.ANNOTATION_POKE),
        trouble="is terminating" if terminating else _trouble(pod, outlasted, (*helpers, *containers)),
        outlasted=outlasted,
        node=text(pod, "spec", "nodeName"),
        template=next((found for label in _TEMPLATES if (found := text(labels, label))), ""),
        restarted=text(annotations, _RESTARTED),
        configs=configs_of(pod),
        engine=engine,
        helper=next((one for one in helpers if one.name == names.JOB_CONTAINER), Container()),
        started=started,
        start_seconds=seconds,
        displaces=whole(pod, "spec", "priority") > 0 and text(pod, "spec", "preemptionPolicy") != "Never",
        unschedulable=(text(refusal, "message") or "Unschedulable") if refusal else "",
        unschedulable_since=seconds_of(text(refusal, "lastTransitionTime")),
        placement=tuple(at(pod, "spec", part) for part in _PLACEMENT) if weighed else (),
        claims=_claims_of(pod),
        requests=request_of(pod) if weighed else None,
    )


def _container(status: Mapping[str, Any]) -> Container:
    waiting, started = mapping(status, "state", "waiting"), at(status, "started")
    return Container(
        name=text(status, "name"),
        ready=at(status, "ready") is True,
        started=started if isinstance(started, bool) else None,
        restarts=whole(status, "restartCount"),
        waiting=text(waiting, "reason"),
        message=text(waiting, "message"),
        since=text(status, "state", "running", "startedAt"),
        ended=_ended(mapping(status, "state", "terminated")),
        last=_ended(mapping(status, "lastState", "terminated")),
    )


def _ended(state: Mapping[str, Any]) -> Ended | None:
    if not state:
        return None
    code = at(state, "exitCode")
    return Ended(
        code if isinstance(code, int) and not isinstance(code, bool) else None,
        text(state, "reason"),
        text(state, "message"),
        seconds_of(text(state, "startedAt")),
        seconds_of(text(state, "finishedAt")),
    )


def _find_unschedulable(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The condition by which the scheduler says that it has found no node for a pod; empty without one."""
    wanted = ("PodScheduled", "False", "Unschedulable")
    found = mappings(pod, "status", "conditions")
    return next((one for one in found if (text(one, "type"), text(one, "status"), text(one, "reason")) == wanted), {})


def _claims_of(pod: Mapping[str, Any]) -> frozenset[str]:
    found = (text(one, "persistentVolumeClaim", "claimName") for one in mappings(pod, "spec", "volumes"))
    return frozenset(found) - {""}


def _trouble(pod: Mapping[str, Any], outlasted: int, containers: Iterable[Container]) -> str:
    if outlasted:
        return f"was stopped by its startup probe: it was not ready within {outlasted} s"
    for condition in mappings(pod, "status", "conditions"):
        if text(condition, "type") == "PodScheduled" and text(condition, "status") == "False":
            return _sentence(text(condition, "reason") or "Unschedulable", text(condition, "message"))
    trouble = next((one.trouble for one in containers if one.trouble), "")
    phase = text(pod, "status", "phase")
    if trouble or phase == "Running":
        return trouble or "is starting: its probe does not succeed yet"
    return _sentence(text(pod, "status", "reason") or phase, text(pod, "status", "message"))


def _sentence(reason: str, message: str) -> str:
    message = " ".join(message.split())[:300]
    return f"{reason}: {message}" if message else reason


def _start_of(engine: Container, up: str, budget: int) -> tuple[str, float]:
    """When the engine of a ready pod was started, and the seconds until its containers were ready, at the time `up`.
    Nothing where its status tells none, or a longer start than its own probe allows."""
    begin, end = seconds_of(engine.since), seconds_of(up)
    if begin is None or end is None or not 0 <= end - begin <= budget + SLACK_SECONDS:
        return "", 0.0
    return engine.since, end - begin


def _outlasted(engine: Container, budget: int, longest: float) -> int:
    """Budget of the startup probe that ended the engine before it was ready; 0 where none did.

    The status of a container says no more than that it ended: it is the probe's doing where that took the whole budget.
    """
    for ended in (engine.ended, engine.last) if engine.started is not True else ():
        if ended is None or ended.started is None or ended.finished is None or ended.reason == "OOMKilled":
            continue
        if budget and budget - _PERIOD <= ended.finished - ended.started <= longest:
            return budget
    return 0


def _budget_of(pod: Mapping[str, Any], container: str) -> tuple[int, float]:
    """Startup budget by the pod's own probe, and the longest run of an engine that the probe ends, in seconds; zeros
    without a probe."""
    engine = next((one for one in mappings(pod, "spec", "containers") if text(one, "name") == container), None)
    probe = mapping(engine, "startupProbe")
    if not probe:
        return 0, 0.0
    period, failures = whole(probe, "periodSeconds") or _PERIOD, whole(probe, "failureThreshold") or _FAILURES
    slowest = max(period, whole(probe, "timeoutSeconds"))
    grace = max(whole(pod, "spec", "terminationGracePeriodSeconds"), 0)
    delay = max(whole(probe, "initialDelaySeconds"), 0)
    return delay + period * failures, delay + slowest * failures + grace + SLACK_SECONDS
