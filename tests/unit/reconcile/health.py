"""Objects as the operator leaves them, with the health that Argo CD and Flux are to show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.reconcile.worlds import SPEC, Cluster, settled

from speculative_operator.domain.spec import EngineSettings


def object_of(cluster: Cluster) -> dict[str, Any]:
    """Metadata and status."""
    return {"metadata": {"name": "demo", "generation": cluster.spec.generation}, "status": cluster.status}


def healthy() -> dict[str, Any]:
    return object_of(settled())


def starting() -> dict[str, Any]:
    cluster = Cluster()
    cluster.tick()
    cluster.tick()
    return object_of(cluster)


def rolling() -> dict[str, Any]:
    cluster = settled()
    cluster.edit(engine=replace(cluster.spec.engine, args=("--seed=1",)))
    cluster.tick()
    return object_of(cluster)


def edited() -> dict[str, Any]:
    """The operator has not seen the newest generation yet."""
    found = object_of(settled())
    found["metadata"]["generation"] += 1
    return found


def refused() -> dict[str, Any]:
    cluster = Cluster(spec=replace(SPEC, engine=EngineSettings(version="0.1.0")))
    cluster.tick()
    return object_of(cluster)


def crashed() -> dict[str, Any]:
    """A pod is not ready any more: another one may be on its way, as for a Deployment."""
    cluster = settled()
    cluster.pods[0]["status"]["conditions"][0]["status"] = "False"
    cluster.children["Deployment", "demo"]["status"] |= {"readyReplicas": 1, "availableReplicas": 1}
    cluster.tick()
    return object_of(cluster)


def stalled() -> dict[str, Any]:
    """No progress within the deadline."""
    cluster = settled()
    cluster.edit(engine=replace(cluster.spec.engine, args=("--seed=1",)))
    cluster.tick()
    deployment = cluster.children["Deployment", "demo"]
    failed = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too late"}
    generation = deployment["metadata"]["generation"]
    deployment["status"] |= {"observedGeneration": generation, "updatedReplicas": 1, "conditions": [failed]}
    cluster.tick()
    return object_of(cluster)


def paused() -> dict[str, Any]:
    cluster = settled()
    cluster.annotate(paused=True)
    cluster.tick()
    return object_of(cluster)


HEALTH = {
    healthy: ("Healthy", "Current"),
    starting: ("Progressing", "InProgress"),
    rolling: ("Progressing", "InProgress"),
    edited: ("Progressing", "InProgress"),
    refused: ("Degraded", "Failed"),
    crashed: ("Progressing", "InProgress"),
    stalled: ("Degraded", "Failed"),
    paused: ("Suspended", "Current"),
}
"""Object -> its health in Argo CD and in Flux. An object that is paused serves: for Flux it is as it should be."""
