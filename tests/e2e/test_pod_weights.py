"""Weights that pods bring themselves, from a hub in the cluster's network: into a folder of the node, or emptyDirs."""

from __future__ import annotations

import copy
import os
import shutil
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LONG, NAMESPACE, Stage, until, with_hub

from demo import hub, pairs, scene
from speculative_operator.domain import names

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

EMPTY = {"emptyDir": {"sizeLimit": "1Gi"}}
SLOW = {"path": "target.*safetensors", "slow_to": 15_000}
"""Minutes, so that a busy operator sees it too."""


@pytest.fixture(scope="module")
def stage(enclosures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Cluster, operator that inspects pairs, and a hub."""
    with with_hub("pods", tmp_path_factory.mktemp("stage")) as (stage, _):
        yield stage


@pytest.fixture
def node_path() -> Iterator[Path]:
    """A folder of the node that is not there yet: pods of an earlier test may still write into theirs."""
    folder = Path("/var/lib/speculative-cache") / f"node-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    yield folder / "models"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def swept(stage: Stage) -> Iterator[None]:
    """Nothing of one test outlives it."""
    yield
    stage.order()
    stage.clear()


def deploy(stage: Stage, name: str, cache: dict[str, Any], replicas: int = 1) -> None:
    body = copy.deepcopy(pairs.manifest(name, f"hf://tiny/{hub.TARGET}", hub.DRAFT))
    body["spec"]["weights"]["cache"] = cache
    body["spec"]["replicas"] = replicas
    stage.apply(body)


def bringing(pod: dict[str, Any]) -> dict[str, Any]:
    """Status of the container that brings a pod's weights."""
    found = pod["status"].get("initContainerStatuses") or ()
    return next((one for one in found if one["name"] == names.JOB_CONTAINER), {})


def arriving(stage: Stage, name: str) -> dict[str, Any]:
    """The condition, once a pod of the object fetches and the operator has said so."""
    until(lambda: any((bringing(pod).get("state") or {}).get("running") for pod in stage.pods(name)), LONG)
    until(lambda: stage.condition(name, "WeightsReady").get("reason") == "Downloading", LONG)
    return stage.condition(name, "WeightsReady")


def process(name: str) -> int:
    """The fetch of an object's pod, as this machine sees it; 0 where it does not run."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        wants = any(word.startswith(f"{NAMESPACE}/{name}/".encode()) for word in words)
        if wants and b"fetch" in words and b"--cache" in words:
            return int(entry.name)
    return 0


def test_pods_of_a_node_share_what_the_first_one_brought(stage: Stage, node_path: Path) -> None:
    before = stage.sent(hub.TARGET)
    deploy(stage, "shelf", {"nodePath": str(node_path)})
    scene.wait_ready(stage.cluster, "shelf", LONG)
    told = until(lambda: (c := stage.condition("shelf", "WeightsReady")).get("status") == "True" and c, 180)
    assert str(node_path) in told["message"]
    assert not stage.items("jobs", f"{names.LABEL_JOB}=fetch")
    once = stage.sent(hub.TARGET)
    assert 0.9 < once - before < 1.4, "headers are read by a Job, weights by the pod"
    deploy(stage, "shelf", {"nodePath": str(node_path)}, replicas=2)
    until(lambda: len(stage.pods("shelf")) == 2, LONG)
    scene.wait_ready(stage.cluster, "shelf", LONG)
    assert stage.sent(hub.TARGET) == once, "the second pod finds all of it"
    (pod, *_) = stage.pods("shelf")
    (engine,) = pod["spec"]["containers"]
    assert engine["args"][0].startswith(f"/mnt/weights/{names.CACHE_FOLDER}/models/")
    assert any(one["mountPath"] == "/mnt/weights" and one.get("readOnly") for one in engine["volumeMounts"])
    keys = [one["key"] for one in (stage.get("specdep", "shelf")["status"]["pair"][f"{side}Pin"]
                                   for side in ("verifier", "speculator"))]  # fmt: skip
    assert {path.name for path in (node_path / names.CACHE_FOLDER / "models").iterdir()} == set(keys)
    uid = stage.get("specdep", "shelf")["metadata"]["uid"]
    marks = [node_path / names.CACHE_FOLDER / "uses" / key / f"{NAMESPACE}.shelf.{uid}" for key in keys]
    for mark in marks:
        os.utime(mark, (0, 0))
    stage.cluster.kubectl("delete", "pod", pod["metadata"]["name"], "-n", NAMESPACE)
    until(lambda: all(mark.stat().st_mtime > 0 for mark in marks), LONG)


def test_a_killed_download_into_an_empty_dir_goes_on_where_it_was(stage: Stage) -> None:
    before = stage.sent(hub.TARGET)
    stage.order(SLOW)
    deploy(stage, "own", EMPTY)
    told = arriving(stage, "own")
    assert told["status"] == "False"
    until(lambda: "%" in ((stage.get("specdep", "own").get("status") or {}).get("weights") or {}).get("text", ""), LONG)
    assert stage.condition("own", "WeightsReady")["reason"] == "Downloading"
    (pod,) = stage.pods("own")
    assert not pod["status"]["containerStatuses"][0].get("started"), "no engine before both models are there"
    os.kill(until(lambda: process("own"), LONG), signal.SIGKILL)
    until(lambda: any(bringing(pod).get("restartCount", 0) > 0 for pod in stage.pods("own")), LONG)
    stage.order()
    scene.wait_ready(stage.cluster, "own", LONG)
    (after,) = stage.pods("own")
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert stage.sent(hub.TARGET) - before < 2.4
    until(lambda: stage.condition("own", "WeightsReady").get("status") == "True", 180)
    assert "emptyDir" in stage.condition("own", "WeightsReady")["message"]


def test_what_pod_security_does_not_admit_is_told_with_the_remedy(stage: Stage, node_path: Path) -> None:
    level = "pod-security.kubernetes.io/enforce"
    stage.cluster.kubectl("label", "namespace", NAMESPACE, f"{level}=baseline")
    try:
        deploy(stage, "barred", {"nodePath": str(node_path)})
        told = until(lambda: (c := stage.condition("barred", "WeightsReady")).get("status") == "False" and
                     "privileged" in c["message"] and c, LONG)  # fmt: skip
        assert "hostPath" in told["message"]
        assert not stage.pods("barred")
        assert not node_path.exists()
        deploy(stage, "barred", EMPTY)
        scene.wait_ready(stage.cluster, "barred", LONG)
    finally:
        stage.cluster.kubectl("label", "namespace", NAMESPACE, f"{level}-")
