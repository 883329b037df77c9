"""The life of a release of the chart on a cluster whose pods run: an earlier chart installed, upgraded with changes of
the CRD, rolled back, uninstalled, installed again. What serves never notices.

`stored/` holds the chart as it was when objects were stored (tests/golden/stored). The operator's program is the same
before and after; what its own releases leave behind is held by tests/golden.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo import scene
from devcluster import Cluster
from speculative_operator.api.crd import NAME as CRD

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

STORED = Path(__file__).parent / "stored" / "speculative-operator-0.1.0.tgz"
CHART = scene.ROOT / "charts" / "speculative-operator"
RELEASE, NAMESPACE, MODELS = "speculative-operator", "speculative-system", "models"
VALUES = ("--set", "image.repository=speculative-operator,pairs.check=false,tickSeconds=6,leaderElection=false")
"""Without election no start waits for a Lease to run out: that is of other tests."""
SERVED = "qwen3-8b"
AS_BEFORE = {"weights": {"check": "Off"}}
"""As scene.UNREAD, in the words that the earlier definition accepts."""


@pytest.fixture(scope="module")
def cluster(enclosures: None) -> Iterator[Cluster]:
    with Cluster.start(scene.options(f"helm-{os.getpid()}")) as started:
        yield started


def helm(cluster: Cluster, verb: str, *arguments: str) -> str:
    return cluster.helm(verb, RELEASE, *arguments, "--namespace", NAMESPACE).stdout


def shown(cluster: Cluster, *what: str) -> dict[str, Any]:
    return dict(json.loads(cluster.kubectl("get", *what, "-o", "json").stdout))


def until(what: str, condition: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not after {seconds:g} s: {what}"
        time.sleep(0.3)


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


def columns(cluster: Cluster) -> set[str]:
    """Of the CRD as the cluster has it."""
    (version,) = shown(cluster, "crd", CRD)["spec"]["versions"]
    return {one["name"] for one in version["additionalPrinterColumns"]}


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
    example["spec"] |= AS_BEFORE
    example["spec"]["speculation"]["offPolicy"] = "Never"  # a policy that both definitions have
    cluster.kubectl("apply", "-n", MODELS, "-f", "-", input=json.dumps(example))
    scene.wait_ready(cluster, SERVED, 180)


def test_a_release_comes_and_goes_and_serving_does_not_notice(cluster: Cluster) -> None:
    helm(cluster, "install", str(STORED), "--create-namespace", *VALUES)
    serve(cluster)
    before, old_columns = serving(cluster), columns(cluster)

    helm(cluster, "upgrade", str(CHART), "--reset-then-reuse-values", "--set", "logLevel=DEBUG")
    operator_runs(cluster)
    assert columns(cluster) == {one["name"] for one in _current()["additionalPrinterColumns"]} != old_columns
    said = helm(cluster, "test", "--logs")
    assert "the operator reconciles" in said
    assert serving(cluster) == before

    helm(cluster, "rollback", "1")
    operator_runs(cluster)
    assert columns(cluster) == old_columns
    assert serving(cluster) == before

    helm(cluster, "uninstall", "--wait")
    gone = "the garbage collector takes what the object of helm test had"
    until(gone, lambda: shown(cluster, "deployments", "-n", NAMESPACE)["items"] == [])
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


def _current() -> dict[str, Any]:
    (version,) = yaml.safe_load((CHART / "files" / "crd.yaml").read_text())["spec"]["versions"]
    return dict(version)


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
    until("no pod serves", lambda: shown(cluster, "pods", "-n", MODELS)["items"] == [])
    kinds = "deployments,services,configmaps,networkpolicies,poddisruptionbudgets,persistentvolumeclaims,jobs"
    left = cluster.kubectl("get", kinds, "-A", "-l", "app.kubernetes.io/managed-by=speculative-operator", "-o", "name")
    assert left.stdout.split() == []
    wide = "clusterroles,clusterrolebindings,validatingadmissionpolicies,customresourcedefinitions,namespaces"
    left = cluster.kubectl("get", wide, "-o", "name")
    assert [one for one in left.stdout.split() if "speculative" in one] == []
