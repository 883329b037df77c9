"""The harm: spec.replicas is ignored for ever and nobody is told, after an autoscaler of the Deployment was deleted.

The managed fields go on naming it. Whose word holds is told, with the command that takes it back.
"""

from __future__ import annotations

from tests.unit.reconcile.worlds import Cluster, settled


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
