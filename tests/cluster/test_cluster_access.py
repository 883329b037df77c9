"""What a cluster of our own gives that another one may not: its version, objects by any name, the audit record.

What Kubernetes, helm and Prometheus do on it is used by every other test here.
"""

import http.client
from typing import Any

import pytest
from tests import definitions
from tests.cluster.operatorlab import until
from tests.e2e import audit

from devcluster import Cluster, DevClusterError

pytestmark = pytest.mark.cluster


def _only_ours(cluster: Cluster) -> None:
    """For what only a cluster of our own making has."""
    if cluster.enclosure is None:
        pytest.skip("an existing cluster is made as it is made")


def _audit(cluster: Cluster) -> list[dict[str, Any]]:
    _only_ours(cluster)
    return list(audit.events(cluster.audit_log))


def test_objects_are_read_by_the_names_that_kubectl_takes(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "read")
    cluster.kubectl("create", "configmap", "one", "--from-literal=a=b", "-n", "read")
    cluster.kubectl("create", "deployment", "one", "--image=any", "-n", "read")
    cluster.kubectl("label", "configmap", "one", "mark=yes", "-n", "read")
    for resource in ("cm", "configmap", "ConfigMap", "configmaps"):
        assert cluster.objects.get(resource, "one", "read")["data"] == {"a": "b"}
    both = [(one["kind"], one["metadata"]["name"]) for one in cluster.objects.list("deploy,configmaps", "read")]
    assert both[0] == ("Deployment", "one")
    assert ("ConfigMap", "one") in both
    (marked,) = cluster.objects.list("configmaps", "read", "mark=yes")
    assert marked["apiVersion"] == "v1"
    assert cluster.objects.get("crd", "none", "") == {} == cluster.objects.get("nonesuch", "one", "read")
    with pytest.raises(DevClusterError, match="nonesuch"):
        cluster.objects.list("nonesuch", "read")
    new = definitions.stand_in("example.com", "v1", "Late", "lates")
    definitions.install(cluster, [new])
    assert until("the new kind is known", lambda: not cluster.objects.list("lates", "read"))
    cluster.kubectl("delete", "crd", new["metadata"]["name"])


def test_audit_log_records_writes_with_their_user_and_no_content(cluster: Cluster) -> None:
    cluster.kubectl("create", "secret", "generic", "watched", "--from-literal=key=confidential")

    def creations() -> list[dict[str, Any]]:
        found = (event for event in _audit(cluster) if event["verb"] == "create")
        return [event for event in found if event.get("objectRef", {}).get("name") == "watched"]

    mine = until("the record of it", creations)
    assert [event["responseStatus"]["code"] for event in mine] == [http.client.CREATED]
    assert mine[0]["user"]["groups"] == ["system:masters", "system:authenticated"]
    assert "confidential" not in cluster.audit_log.read_text()


def test_bare_cluster_keeps_objects_and_acts_on_nothing(bare_cluster: Cluster) -> None:
    _only_ours(bare_cluster)
    bare_cluster.kubectl("create", "deployment", "idle", "--image=any")
    assert bare_cluster.kubectl("get", "deployment", "idle", "-o", "jsonpath={.status}").stdout in {"", "{}"}
    assert set(bare_cluster.components()) == {"etcd", "kube-apiserver"}
