"""Pairs on the whole way: from a hub in the cluster's network through claim and pods, and what may go wrong on it."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LONG, NAMESPACE, Stage, until, with_hub

from demo import hub, pairs, scene
from speculative_operator.domain import names

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

TARGET = f"hf://tiny/{hub.TARGET}"
JOB = names.LABEL_JOB
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def stage(enclosures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Cluster, operator that inspects pairs, and a hub."""
    directory = tmp_path_factory.mktemp("stage")
    with with_hub("pairs", directory) as (stage, _):
        yield stage


@pytest.fixture(autouse=True)
def swept(stage: Stage) -> Iterator[None]:
    """Nothing of one test outlives it, but for the claim."""
    yield
    stage.order()
    stage.clear()


def deploy(stage: Stage, name: str, speculator: str = hub.DRAFT, verifier: str = TARGET, **weights: Any) -> None:
    body = copy.deepcopy(pairs.manifest(name, verifier, hub.DRAFT))
    body["spec"]["speculator"]["model"] = f"hf://tiny/{speculator}"
    body["spec"]["weights"] |= weights
    stage.apply(body)


def fetching(stage: Stage, name: str) -> list[dict[str, Any]]:
    """Pods that fetch for an object; those for others may still be going away."""
    (job,) = stage.items("jobs", f"{JOB}=fetch,{names.LABEL_DEPLOYMENT}={name}") or ({},)
    found = stage.items("pods", f"{JOB}=fetch,job-name={job['metadata']['name']}") if job else []
    return [pod for pod in found if pod["status"].get("phase") == "Running"]


def status(stage: Stage, name: str) -> dict[str, Any]:
    return dict(stage.get("specdep", name).get("status") or {})


def test_arrival_roll_and_refusal(stage: Stage, tmp_path: Path) -> None:
    """As the demo plays it."""
    folder = scene.ROOT / "build" / f"pairs-{os.getpid()}"
    folder.mkdir(parents=True)
    try:
        seen = pairs.roundtrip(stage.cluster, folder, print)
    finally:
        shutil.rmtree(folder)
    checks = seen.checks()
    assert all(checks.values()), (checks, seen)
    assert "HiddenSizeDiffers" in {one["code"] for one in seen.findings}


def test_pods_of_jobs_serve_nobody(stage: Stage) -> None:
    stage.order({"path": "safetensors", "slow_to": 15_000})  # minutes, so that a busy operator sees it too
    deploy(
        stage,
        "slow",
        verifier=f"hf://tiny/{hub.TARGET}",
        cache={"claimName": "other", "size": "1Gi", "accessMode": "ReadWriteOnce"},
    )
    (pod,) = until(lambda: fetching(stage, "slow"), LONG)
    assert names.LABEL_DEPLOYMENT not in pod["metadata"]["labels"]
    assert not stage.pods("slow"), "no pod before both models lie there"
    until(lambda: "%" in ((status(stage, "slow").get("weights") or {}).get("text") or ""), LONG)
    wide = stage.cluster.kubectl("get", "specdep", "slow", "-n", NAMESPACE, "-o", "wide").stdout
    assert "WEIGHTS" in wide
    assert "%" in wide
    # Killed in the middle, it is made again.
    stage.cluster.kubectl("delete", "pod", pod["metadata"]["name"], "-n", NAMESPACE, "--grace-period=0", "--force")
    stage.order()
    scene.wait_ready(stage.cluster, "slow", LONG)


def test_three_objects_share_one_verifier(stage: Stage) -> None:
    before = stage.sent(hub.TARGET)
    fresh = {"claimName": "shared", "size": "1Gi", "accessMode": "ReadWriteOnce"}
    for name in ("one", "two", "three"):
        deploy(stage, name, cache=fresh)
    for name in ("one", "two", "three"):
        scene.wait_ready(stage.cluster, name, LONG)
    read = stage.sent(hub.TARGET) - before
    assert 0.9 < read < 1.4, "headers are read by each, weights once"


def test_the_way_back_to_the_pair_before_downloads_nothing(stage: Stage) -> None:
    weights: dict[str, Any] = {"cache": {"claimName": "back", "size": "1Gi", "accessMode": "ReadWriteOnce"}}

    def arrived(speculator: str) -> str:
        """Hash of the pair, once one pod of it serves and no other is left."""
        pair = status(stage, "back").get("pair") or {}
        here = [pod["metadata"]["labels"][names.LABEL_PAIR] for pod in stage.pods("back")]
        named = (pair.get("speculatorPin") or {}).get("uri") == f"hf://tiny/{speculator}"
        ready = stage.condition("back", "Ready").get("status") == "True"
        return str(pair["hash"]) if named and ready and here == [pair["hash"]] else ""

    def serve(speculator: str) -> str:
        body = pairs.manifest("back", TARGET, speculator)
        body["spec"]["weights"] |= weights
        stage.apply(body)
        return str(until(lambda: arrived(speculator), LONG))

    first, before = serve(hub.DRAFT), status(stage, "back")["pair"]
    assert serve(hub.HEAD) != first
    sent_before = {path: count for path, count in hub.asked(stage.cluster)["bytesByPath"].items() if WEIGHTS in path}
    assert any(f"tiny/{hub.HEAD}" in path for path in sent_before), "the log tells of what is fetched"
    assert serve(hub.DRAFT) == first
    after = {path: count for path, count in hub.asked(stage.cluster)["bytesByPath"].items() if WEIGHTS in path}
    told = status(stage, "back")
    assert [told["pair"][side]["key"] for side in ("verifierPin", "speculatorPin")] == [
        before[side]["key"] for side in ("verifierPin", "speculatorPin")
    ]
    (pod,) = stage.pods("back")
    assert all(told["pair"][side]["key"] in json.dumps(pod["spec"]) for side in ("verifierPin", "speculatorPin"))
    until(lambda: stage.condition("back", "WeightsReady").get("reason") == "WeightsCached", LONG)
    assert stage.condition("back", "WeightsReady")["status"] == "True"
    # A look at a pair reads headers; nothing is fetched whole.
    grown = {path: after[path] - sent_before.get(path, 0) for path in after if after[path] != sent_before.get(path, 0)}
    sizes = {name: (hub.MODELS / name / WEIGHTS).stat().st_size for name in (hub.TARGET, hub.DRAFT, hub.HEAD)}
    assert all(
        grown.get(path, 0) < size / 2 for name, size in sizes.items() for path in grown if f"tiny/{name}/" in path
    ), grown


def test_without_the_hub_what_is_cached_serves_on_and_the_operator_may_restart(stage: Stage) -> None:
    deploy(stage, "steady")
    scene.wait_ready(stage.cluster, "steady", LONG)
    (before,) = stage.pods("steady")
    stage.cluster.kubectl("scale", "-n", scene.OPERATOR_NAMESPACE, scene.OPERATOR, "--replicas=0")
    stage.order({"path": "tiny/", "status": 503})
    stage.cluster.kubectl("scale", "-n", scene.OPERATOR_NAMESPACE, scene.OPERATOR, "--replicas=1")
    stage.cluster.kubectl("delete", "pod", before["metadata"]["name"], "-n", NAMESPACE)

    def other_pods() -> list[dict[str, Any]]:
        return [pod for pod in stage.pods("steady") if pod["metadata"]["uid"] != before["metadata"]["uid"]]

    until(lambda: [scene.is_ready(pod) for pod in other_pods()] == [True], LONG)
    (after,) = other_pods()
    assert after["metadata"]["labels"][names.LABEL_PAIR] == before["metadata"]["labels"][names.LABEL_PAIR]
    assert not stage.items("jobs", f"{JOB}=fetch,{names.LABEL_DEPLOYMENT}=steady")
