"""The harm: a node, network or probe incident during the operator's upgrade turns into a restart of every engine.

A new release renders pods differently. Pods that were made of what is still asked for stay, whether they are ready at
that instant or not: they may be loading for half an hour, or come back with their node.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.reconcile import worlds
from tests.unit.reconcile.releases import install
from tests.unit.reconcile.worlds import Cluster, pod

COMPLETE = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
LOADING = {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"}
STALLED = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}


def unready(condition: dict[str, str]) -> Cluster:
    """Both pods run and neither is ready; the Deployment says of its rollout what `condition` does."""
    cluster = worlds.settled(upgraded=True)
    cluster.pods = [
        pod(one["metadata"]["name"], one["metadata"]["labels"], ready=False) | {"spec": one.get("spec", {})}
        for one in cluster.pods
    ]
    cluster.children["Deployment", "demo"]["status"] |= {
        "readyReplicas": 0, "availableReplicas": 0, "conditions": [condition]
    }  # fmt: skip
    return cluster


def served_lately(cluster: Cluster) -> dict[str, Any]:
    start = {"pod": cluster.pods[0]["metadata"]["name"], "started": "2026-11-22T10:00:00Z", "seconds": 600}
    return {**cluster.status, "startup": {"loadSeconds": 600, "starts": [start]}}


@pytest.mark.parametrize("condition", [COMPLETE, LOADING], ids=["served before", "still loading"])
def test_an_upgrade_never_replaces_pods_that_are_not_ready_at_that_instant(
    monkeypatch: pytest.MonkeyPatch, condition: dict[str, str]
) -> None:
    cluster = unready(condition)
    made = cluster.templates
    install(monkeypatch, "--anew")
    for _ in range(5):
        cluster.tick()
    assert cluster.templates == made
    assert [one["reason"] for one in cluster.status["warnings"]] == ["UpgradeWaits"]


def test_an_upgrade_never_replaces_a_pod_that_serves_because_nobody_noted_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operator that was away meanwhile knows of no start; the second pod never came up."""
    cluster = unready(STALLED)
    cluster.children["Deployment", "demo"]["status"] |= {"readyReplicas": 1, "availableReplicas": 1}
    cluster.status = {key: value for key, value in cluster.status.items() if key != "startup"}
    made = cluster.templates
    install(monkeypatch, "--anew")
    for _ in range(5):
        cluster.tick()
    assert cluster.templates == made


def test_an_upgrade_never_replaces_a_pod_that_served_because_another_never_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = unready(STALLED)
    cluster.status = served_lately(cluster)
    made = cluster.templates
    install(monkeypatch, "--anew")
    for _ in range(5):
        cluster.tick()
    assert cluster.templates == made
