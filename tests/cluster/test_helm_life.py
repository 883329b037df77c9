"""The life of a release of the chart on a cluster whose pods run: installed, upgraded, rolled back, uninstalled,
installed again. What serves never notices."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.cluster.operatorlab import until

from demo import scene
from devcluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CHART = scene.ROOT / "charts" / "speculative-operator"
RELEASE, NAMESPACE, MODELS = "speculative-operator", "speculative-system", "models"
VALUES = ("--set", "image.repository=speculative-operator,pairs.check=false,tickSeconds=6,leaderElection=false")
"""Without election no start waits for a Lease to run out: that is of other tests."""
SERVED = "qwen3-8b"


@pytest.fixture(scope="module")
def cluster(enclosures: None) -> Iterator[Cluster]:
    with Cluster.start(scene.options(f"helm-{os.getpid()}")) as started:
        yield started


def helm(cluster: Cluster, verb: str, *arguments: str) -> str:
    return cluster.helm(verb, RELEASE, *arguments, "--namespace", NAMESPACE).stdout


def shown(cluster: Cluster, *what: str) -> dict[str, Any]:
    return dict(json.loads(cluster.kubectl("get", *what, "-o", "json").stdout))


def serving(cluster: Cluster) -> dict[str, Any]:
    """What must not change while the operator comes and goes: pods, their restarts, the object's spec, the rollout."""
    pods = shown(cluster, "pods", "-n", MODELS)["items"]
    owner = shown(cluster, "specdep", SERVED, "-n", MODELS)
    deployment = shown(cluster, "deployment", SERVED, "-n", MODELS)
    return {
        "pods": {
            pod["metadata"]["uid"]: sum(one["restartCount"] for one in pod["status"]["containerStatuses"])
            for pod in pods
        },
        "object": (owner["metadata"]["uid"], owner["metadata"]["generation"], owner["spec"]),
        "template": deployment["spec"]["template"],
        "revision": deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
    }


def operator_runs(cluster: Cluster) -> None:
    cluster.kubectl("rollout", "status", "-n", NAMESPACE, scene.OPERATOR, "--timeout=240s")


def reports_again(cluster: Cluster, replicas: int) -> None:
    """The operator acts on an edit, and the object is ready as it then is."""
    patch = json.dumps({"spec": {"replicas": replicas}})
    cluster.kubectl("patch", "specdep", SERVED, "-n", MODELS, "--type=merge", "-p", patch)
    until(
        "the operator follows",
        lambda: shown(cluster, "deployment", SERVED, "-n", MODELS)["spec"]["replicas"] == replicas,
    )
    scene.wait_ready(cluster, SERVED, 180)


def serve(cluster: Cluster) -> None:
    """Apply the example, and wait for its pod."""
    operator_runs(cluster)
    cluster.kubectl("create", "namespace", MODELS, check=False)
    example = yaml.safe_load(scene.EXAMPLE.read_text())
    example["spec"] |= scene.UNREAD
    cluster.kubectl("apply", "-n", MODELS, "-f", "-", input=json.dumps(example))
    scene.wait_ready(cluster, SERVED, 180)


def test_a_release_comes_and_goes_and_serving_does_not_notice(cluster: Cluster) -> None:
    helm(cluster, "install", str(CHART), "--create-namespace", *VALUES)
    serve(cluster)
    before = serving(cluster)

    helm(cluster, "upgrade", str(CHART), "--reset-then-reuse-values", "--set", "logLevel=DEBUG")
    operator_runs(cluster)
    said = helm(cluster, "test", "--logs")
    assert "the operator reconciles" in said
    assert serving(cluster) == before

    helm(cluster, "rollback", "1")
    operator_runs(cluster)
    assert serving(cluster) == before

    helm(cluster, "uninstall", "--wait")
    gone = "the garbage collector takes what the object of helm test had"
    until(gone, lambda: shown(cluster, "deployments", "-n", NAMESPACE)["items"] == [], 240.0)
    assert serving(cluster) == before
    assert _answers(cluster), "the pods serve without an operator"

    helm(cluster, "install", str(CHART), *VALUES)
    operator_runs(cluster)
    reports_again(cluster, 2)
    assert set(before["pods"]) < set(serving(cluster)["pods"]), "the pod of before is one of the two"


def _answers(cluster: Cluster) -> bool:
    url = scene.service_url(cluster, SERVED)
    script = f"import urllib.request as r; r.urlopen({url!r} + '/health', timeout=30)"
    return cluster.inside(["python3", "-c", script]).wait(90) == 0


def test_what_uninstall_leaves_goes_by_the_commands_of_the_readme(cluster: Cluster) -> None:
    """Until then it is there, weights included."""
    helm(cluster, "upgrade", str(CHART), "--install", "--create-namespace", *VALUES)
    serve(cluster)
    labels = {"app.kubernetes.io/managed-by": "speculative-operator"}
    claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "weights", "labels": labels},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }  # fmt: skip
    cluster.kubectl("apply", "-n", MODELS, "-f", "-", input=json.dumps(claim))
    helm(cluster, "uninstall", "--wait")
    assert shown(cluster, "pods", "-n", MODELS)["items"]
    assert _answers(cluster)
    section = (CHART / "README.md").read_text().partition("## What uninstall leaves")[2]
    commands = section.partition("```bash\n")[2].partition("```")[0].splitlines()
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "kubectl"
        cluster.kubectl(*arguments)
    until("no pod serves", lambda: shown(cluster, "pods", "-n", MODELS)["items"] == [], 240.0)
    kinds = "deployments,services,configmaps,networkpolicies,poddisruptionbudgets,persistentvolumeclaims,jobs"
    left = cluster.kubectl("get", kinds, "-A", "-l", "app.kubernetes.io/managed-by=speculative-operator", "-o", "name")
    assert left.stdout.split() == []
    wide = "clusterroles,clusterrolebindings,validatingadmissionpolicies,customresourcedefinitions,namespaces"
    left = cluster.kubectl("get", wide, "-o", "name")
    assert [one for one in left.stdout.split() if "speculative" in one] == []
