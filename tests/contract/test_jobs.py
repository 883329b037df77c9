"""Jobs and claims on a real API server: taken as they are, and their pods where the restricted profile is enforced."""

from __future__ import annotations

import json

import pytest
from tests.golden.test_jobs import make_jobs

from devcluster import Cluster

pytestmark = pytest.mark.cluster
JOBS = ("inspect", "inspect-claim", "inspect-everything", "fetch-everything")


@pytest.fixture(scope="module")
def namespace(bare_cluster: Cluster) -> str:
    """Enforces restricted Pod Security, and warns of Jobs whose pods it would refuse."""
    mode = "pod-security.kubernetes.io"
    metadata = {"name": "jobs", "labels": {f"{mode}/enforce": "restricted", f"{mode}/warn": "restricted"}}
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "jobs"}},
    ]
    for one in objects:
        bare_cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(one))
    return "jobs"


@pytest.mark.parametrize("name", [*JOBS, "claim"])
def test_a_manifest_is_taken_as_it_is(bare_cluster: Cluster, namespace: str, name: str) -> None:
    manifest = make_jobs()[name]
    body = json.dumps({**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}})
    arguments = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-n", namespace, "-f", "-")
    done = bare_cluster.kubectl(*arguments, input=body)
    assert "applied" in done.stdout
    assert "Warning" not in done.stderr, "such as: would violate PodSecurity"


@pytest.mark.parametrize("name", JOBS)
def test_their_pods_are_admitted_where_restricted_is_enforced(bare_cluster: Cluster, namespace: str, name: str) -> None:
    template = make_jobs()[name]["spec"]["template"]
    metadata = {**template["metadata"], "name": name, "namespace": namespace}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    arguments = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    done = bare_cluster.kubectl(*arguments, input=json.dumps(pod))
    assert "created" in done.stdout
    assert "Warning" not in done.stderr
