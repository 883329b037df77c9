"""Tells how far pods are that fetch their weights themselves (`render.bringing`), as their init containers report it.
Used by `pairing`; `stages` writes the messages.

The init container reports its result when it ends, as a Job does, and the kubelet restarts it until it succeeds. So a
failure is reported until the next download makes progress.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from speculative_operator.domain import formats, names
from speculative_operator.domain.formats import quantity
from speculative_operator.domain.jobs import Progress
from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import EMPTY_DIR, MOUNTED, Cache, Medium
from speculative_operator.reconcile.pair.jobs import explain_error
from speculative_operator.reconcile.snapshot.pods import Container, Pod
from speculative_operator.reconcile.snapshot.results import failure_in
from speculative_operator.reconcile.snapshot.status import KnownCondition

MARGIN_SHARE, LEAST_MARGIN = 100, 16 << 20
"""Free space that a cache needs beside the weights, as `weights.disk` demands: a hundredth of their size, and at least
this many bytes."""
_ON_ITS_WAY = frozenset({"", "ContainerCreating", "PodInitializing"})
_CANNOT_START = frozenset({"CreateContainerConfigError", "CreateContainerError"})
RESTARTS = 2
"""Restarts from which on an engine that is not ready counts as not starting; a single one may be chance."""
_POD_NAME = re.compile(r'pods? "[^"]*"')


@dataclass(frozen=True, slots=True)
class Arrival:
    """Where the weights are in the pods of one pair."""

    place: str
    """`Cache.place`"""
    pods: int = 0
    there: int = 0
    """Number of pods that have their weights."""
    progress: Progress | None = None
    """Progress of the first pod that still fetches its weights; None where no pod reports any."""
    reason: Reason | None = None
    message: str = ""
    """Why the weights of one pod do not arrive; empty while no pod reports a failure."""


def arrival(
    cache: Cache,
    pods: Iterable[Pod],
    pairs: Collection[str],
    progress: Mapping[str, Progress],
    before: KnownCondition,
) -> Arrival:
    """The arrival of the weights in the pods that were made of one of `pairs` (hashes). `progress` by name of the pod.
    `before` is the condition WeightsReady as it was: the same failure of the same pod keeps its message, so that a
    retry does not change the status."""
    ours = [pod for pod in pods if _lives(pod, pairs)]
    there = sum(1 for pod in ours if pod.helper.ended is not None and pod.helper.ended.exit_code == 0)
    coming = next((progress[pod.name] for pod in ours if pod.name in progress), None)
    found = Arrival(cache.place, len(ours), there, coming)
    for pod in ours:
        failed = _failure(cache, pod.helper) if pod.name not in progress else None
        if failed is not None:
            reason, message = failed
            whose = f"pod {pod.name} on {pod.node}: " if pod.node else f"pod {pod.name}: "
            same = before.why is reason and before.message.startswith(whose)
            return replace(found, reason=reason, message=before.message if same else whose + message)
    return found


def stuck(pods: Iterable[Pod], pairs: Collection[str]) -> str:
    """A sentence about the first pod made of one of `pairs` that does not start; empty where all start. It tells no
    cause: only a look into the cache shows whether weights are missing."""
    for pod in pods:
        if not _lives(pod, pairs):
            continue
        if pod.engine.waiting in _CANNOT_START:
            return f"pod {pod.name} does not start ({pod.engine.waiting})"
        if not pod.engine.ready and pod.engine.restarts >= RESTARTS:
            return f"pod {pod.name} does not start (its engine keeps ending)"
    return ""


def refusal_of_pods(cache: Cache, why: str) -> tuple[Reason, str] | None:
    """Reason and message where Kubernetes refuses to create pods (`why`) because of the cache's hostPath; None for any
    other refusal."""
    if not cache.node_path or "hostPath" not in why:
        return None
    message = (
        f"no pod can be created: {_POD_NAME.sub('pods', why)}; for weights.cache.nodePath set the namespace's label "
        "pod-security.kubernetes.io/enforce: privileged, or use emptyDir or a claim"
    )
    return Reason.CACHE_UNWRITABLE, message


def too_small(cache: Cache, models: tuple[ModelFacts, ...]) -> str:
    """Why the weights of `models` do not fit into the cache's emptyDir; empty where they fit, or where its limit or
    their size is unknown."""
    limit = quantity(cache.empty_dir.size_limit) if cache.empty_dir is not None else None
    size = sum(facts.weights.bytes for facts in models if facts.pin.scheme not in MOUNTED)
    needed = size + max(size // MARGIN_SHARE, LEAST_MARGIN)
    if limit is None or cache.empty_dir is None or not size or limit >= needed:
        return ""
    return (
        f"weights.cache.emptyDir.sizeLimit {cache.empty_dir.size_limit} is too small for both models, which "
        f"need {formats.size(size)}; set it to {-(-needed // (1 << 30))}Gi or more"
    )


def place_text(place: str) -> str:
    """The place of a cache in words, for messages."""
    if place.startswith("/"):
        return f"folder {place} on the node"
    return "the emptyDir of each pod" if place == EMPTY_DIR else f"claim {place}"


def _lives(pod: Pod, pairs: Collection[str]) -> bool:
    """True for a pod that was made of one of `pairs`, and is not at its end."""
    return pod.pair in pairs and not pod.terminating and not pod.over


def _failure(cache: Cache, helper: Container) -> tuple[Reason, str] | None:
    """Why the pod's last download failed, or why the pod has begun none; None without a failure."""
    if helper.waiting not in (*_ON_ITS_WAY, "CrashLoopBackOff"):
        return Reason.PODS_NOT_READY, f"{helper.waiting}: {helper.message}".removesuffix(": ")
    end = helper.ended or helper.last
    if end is None or end.exit_code == 0:
        return None
    error = failure_in(end.message)
    if error is not None:
        return explain_error(replace(error, remedy=_remedy(cache, error.reason) or error.remedy))
    why = end.reason or "Error"
    more = "; give it more memory in spec.template.spec.initContainers" if why == "OOMKilled" else ""
    return Reason.SOURCE_UNREACHABLE, f"container {names.JOB_CONTAINER} ended: {why}, {end.exit_code}{more}"


def _remedy(cache: Cache, reason: Reason | None) -> str:
    """The remedy for an error in an emptyDir or a folder of the node, in place of the program's, which speaks of
    claims; empty for other errors."""
    if reason is Reason.CACHE_FULL and cache.empty_dir is not None:
        more = ", or remove medium" if cache.empty_dir.medium is Medium.MEMORY else ", on nodes with that much disk"
        return f"raise spec.weights.cache.emptyDir.sizeLimit{more}"
    if reason is Reason.CACHE_FULL:
        return f"free space below {cache.node_path} on that node, or set nodePath to a larger disk"
    if reason is Reason.CACHE_UNWRITABLE and cache.node_path:
        owned = f"make the node's root user the owner of {cache.node_path}, on a writable disk"
        return f"{owned}; where SELinux is enforced, label it container_file_t"
    return ""
