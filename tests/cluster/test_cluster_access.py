"""What a cluster gives to those who use it: API, RBAC, admission, helm, Prometheus, the audit record."""

import http.client
import json
import time
import urllib.parse
import urllib.request
from typing import Any

import pytest

from devcluster import Cluster, DevClusterError

pytestmark = pytest.mark.cluster


def _only_ours(cluster: Cluster) -> None:
    """For what only a cluster of our own making has."""
    if cluster.enclosure is None:
        pytest.skip("an existing cluster is made as it is made")


def _audit(cluster: Cluster) -> list[dict[str, Any]]:
    _only_ours(cluster)
    return [json.loads(line) for line in cluster.audit_log.read_text().splitlines()]


def test_server_reports_the_pinned_version(cluster: Cluster) -> None:
    _only_ours(cluster)
    version = json.loads(cluster.kubectl("version", "-o", "json").stdout)
    assert version["serverVersion"]["gitVersion"] == version["clientVersion"]["gitVersion"] == "v1.36.3"


def test_failing_kubectl_tells_what_it_said(cluster: Cluster) -> None:
    with pytest.raises(DevClusterError, match="nonesuch"):
        cluster.kubectl("get", "nonesuch")
    assert cluster.kubectl("get", "nonesuch", check=False).returncode == 1


def test_objects_are_given_on_standard_input(cluster: Cluster) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "given"}, "data": {"a": "b"}}
    cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(config_map))
    assert cluster.kubectl("get", "configmap", "given", "-o", "jsonpath={.data.a}").stdout == "b"


def test_rbac_denies_a_service_account_without_a_role(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "rbac")
    cluster.kubectl("create", "serviceaccount", "nobody", "-n", "rbac")
    token = cluster.kubectl("create", "token", "nobody", "-n", "rbac").stdout.strip()
    asked = ("get", "pods", "-n", "rbac", f"--token={token}", "--kubeconfig=/dev/null", f"--server={cluster.server}")
    trusting = "--insecure-skip-tls-verify"
    denied = cluster.kubectl(*asked, trusting, check=False)
    assert denied.returncode == 1
    assert 'system:serviceaccount:rbac:nobody" cannot list resource "pods"' in denied.stderr
    cluster.kubectl("create", "role", "reader", "--verb=list", "--resource=pods", "-n", "rbac")
    cluster.kubectl("create", "rolebinding", "reader", "--role=reader", "--serviceaccount=rbac:nobody", "-n", "rbac")
    assert cluster.kubectl(*asked, trusting).returncode == 0


def test_pod_security_is_enforced_where_a_namespace_asks_for_it(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "restricted")
    cluster.kubectl("label", "namespace", "restricted", "pod-security.kubernetes.io/enforce=restricted")
    refused = cluster.kubectl("run", "loose", "--image=any", "-n", "restricted", check=False)
    assert "violates PodSecurity" in refused.stderr


def test_controllers_make_pods_of_a_deployment(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "acting")
    cluster.kubectl("create", "deployment", "web", "--image=any", "--replicas=2", "-n", "acting")
    deadline = time.monotonic() + 30
    while len(cluster.kubectl("get", "pods", "-n", "acting", "-o", "name").stdout.split()) != 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_helm_lists(cluster: Cluster) -> None:
    assert json.loads(cluster.helm("list", "--namespace", "default", "-o", "json").stdout) == []


def test_prometheus_answers_up(cluster: Cluster) -> None:
    if not cluster.prometheus_url:
        pytest.skip("no Prometheus given: set PROMETHEUS_URL")
    deadline = time.monotonic() + 30
    result: list[dict[str, Any]] = []
    while not result:
        assert time.monotonic() < deadline
        time.sleep(0.2)
        query = urllib.parse.urlencode({"query": 'up{job="prometheus"}'})
        with urllib.request.urlopen(f"{cluster.prometheus_url}/api/v1/query?{query}", timeout=5) as answer:
            result = json.load(answer)["data"]["result"]
    assert result[0]["value"][1] == "1"


def test_prometheus_discovers_with_its_own_service_account(cluster: Cluster) -> None:
    users = {
        event["user"]["username"]
        for event in _audit(cluster)
        if event.get("objectRef", {}).get("resource") == "pods" and event["responseStatus"]["code"] == http.client.OK
    }
    assert "system:serviceaccount:monitoring:prometheus" in users


def test_prometheus_has_a_service_for_pods(cluster: Cluster) -> None:
    _only_ours(cluster)
    service = "prometheus-operated"
    slices = json.loads(
        cluster.kubectl(
            "get", "endpointslices", "-n", "monitoring", "-l", f"kubernetes.io/service-name={service}", "-o", "json"
        ).stdout
    )["items"]
    assert [item["endpoints"][0]["addresses"] for item in slices] == [["10.88.0.3"]]
    ports = cluster.kubectl("get", "service", service, "-n", "monitoring", "-o", "jsonpath={.spec.ports[*].port}")
    assert ports.stdout == "9090"


def test_audit_log_records_writes_with_their_user_and_no_content(cluster: Cluster) -> None:
    cluster.kubectl("create", "secret", "generic", "watched", "--from-literal=key=confidential")
    mine = [
        event
        for event in _audit(cluster)
        if event["verb"] == "create" and event.get("objectRef", {}).get("name") == "watched"
    ]
    assert [event["responseStatus"]["code"] for event in mine] == [http.client.CREATED]
    assert mine[0]["user"]["groups"] == ["system:masters", "system:authenticated"]
    assert "confidential" not in cluster.audit_log.read_text()


def test_bare_cluster_keeps_objects_and_acts_on_nothing(bare_cluster: Cluster) -> None:
    _only_ours(bare_cluster)
    bare_cluster.kubectl("create", "deployment", "idle", "--image=any")
    assert bare_cluster.kubectl("get", "deployment", "idle", "-o", "jsonpath={.status}").stdout in {"", "{}"}
    assert set(bare_cluster.components()) == {"etcd", "kube-apiserver"}
