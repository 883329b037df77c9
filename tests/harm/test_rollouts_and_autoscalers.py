"""The harms: spec.replicas is ignored for ever and nobody is told, after an autoscaler of the Deployment was deleted;
and a step of an autoscaler is undone, replaces pods, or makes the tuner forget.

The managed fields go on naming a writer that is gone. Whose word holds is told, with the command that takes it back.
"""

from __future__ import annotations

import pytest
from tests.unit.reconcile.worlds import Cluster, observed, settled, template

from speculative_operator.domain.actions import ApplyChild


def scaled(cluster: Cluster, manager: str, replicas: int) -> None:
    """Somebody sets the replicas through the scale subresource, and holds them from then on."""
    deployment = cluster.children["Deployment", "demo"]
    deployment["spec"]["replicas"] = replicas
    entry = {"manager": manager, "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    deployment["metadata"]["managedFields"] = [entry]


def test_replicas_that_are_not_ours_to_set_are_never_so_in_silence() -> None:
    cluster = settled()
    scaled(cluster, "kube-controller-manager", 5)
    cluster.roll()
    outcome = cluster.tick()
    (warning,) = cluster.status["warnings"]
    assert warning["reason"] == "ScaledElsewhere"
    assert "kube-controller-manager" in warning["message"]
    assert "kubectl scale -n models deployment demo --replicas=" in warning["message"]
    assert "ScaledElsewhere" in [event.reason for event in outcome.events]
    scaled(cluster, "kube-controller-manager", 6)
    cluster.roll()
    cluster.tick()
    assert cluster.status["warnings"] == [warning], "its steps are no news"
    scaled(cluster, "kubectl", 4)
    cluster.settle()
    assert cluster.children["Deployment", "demo"]["spec"]["replicas"] == 2
    assert "warnings" not in cluster.status


@pytest.mark.parametrize("of", ["object", "deployment"])
def test_a_step_of_an_autoscaler_changes_nothing_but_the_number_of_pods(of: str) -> None:
    """Through the scale subresource of the object, as it should be, or of the Deployment."""
    cluster = settled()
    for _ in range(30):
        cluster.tick(observed(cluster))
    pods, memory = {one["metadata"]["name"] for one in cluster.pods}, cluster.memory
    before = template(cluster.children["Deployment", "demo"])
    assert memory is not None
    for replicas in (5, 3, 8, 2):
        if of == "object":
            cluster.edit(replicas=replicas)
        else:
            scaled(cluster, "keda-operator", replicas)
        for _ in range(6):
            outcome = cluster.tick(observed(cluster, batch=16.0 / replicas))
            assert not [one for one in outcome.actions if isinstance(one, ApplyChild) and one.reason == "Repaired"]
            cluster.roll()
        deployment = cluster.children["Deployment", "demo"]
        assert deployment["spec"]["replicas"] == replicas, "nobody undoes it"
        assert template(deployment) == before, "no pod is replaced"
        assert len(cluster.pods) == replicas
        assert cluster.condition("Ready")["status"] == "True"
    assert {one["metadata"]["name"] for one in cluster.pods} <= pods, "those that were there serve on"
    now = cluster.memory
    assert now is not None
    assert now.since == memory.since, "the tuner has not begun anew"
    assert now.windows > memory.windows
