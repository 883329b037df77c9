"""Compiled code on the whole way: from one pod through a claim to the next, and claims that are of no use to anybody.

The emulator compiles nothing: the test writes the files, where the node keeps the pod's emptyDir.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LONG, NAMESPACE, Stage, is_ready, until

from demo import scene
from speculative_operator.compiled.keep import QUIET_SECONDS
from speculative_operator.compiled.seed import MARK
from speculative_operator.domain import names

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

KEPT, PLAIN, BLOCKED = "kept", "kept-plain", "kept-blocked"
FILE, CODE = "triton/K/kernel.cubin", b"compiled" * 1000
READ_ONLY = [{"mountPath": names.COMPILED_MOUNT, "readOnly": True}]


@pytest.fixture(scope="module")
def served(stage: Stage) -> Iterator[Stage]:
    """Three objects, Ready: with a cache, without one, and with one whose volume nobody may write to. What the first
    and the last compiled lies in their folders."""
    deploy(stage, KEPT, claim=KEPT)
    deploy(stage, PLAIN)
    deploy(stage, BLOCKED, claim=BLOCKED, read_only=True)
    for name in (KEPT, PLAIN, BLOCKED):
        scene.wait_ready(stage.cluster, name, LONG)
    for name in (KEPT, BLOCKED):
        file = cache(stage, the_pod(stage, name)) / FILE
        file.parent.mkdir(parents=True)
        file.write_bytes(CODE)
    yield stage
    stage.cluster.kubectl("delete", "specdep", KEPT, PLAIN, BLOCKED, "-n", NAMESPACE)
    until(lambda: not stage.items("pods", f"{names.LABEL_DEPLOYMENT} in ({KEPT},{PLAIN},{BLOCKED})"), LONG)
    stage.cluster.kubectl("delete", "pvc", KEPT, BLOCKED, "-n", NAMESPACE)


def deploy(stage: Stage, name: str, claim: str = "", *, read_only: bool = False) -> None:
    body = copy.deepcopy(scene.variants()[0].manifest)
    body["metadata"]["name"] = name
    if claim:
        body["spec"]["engine"]["compileCache"] = {"claimName": claim, "size": "1Gi", "accessMode": "ReadWriteOnce"}
    if read_only:
        helpers = [{"name": one, "volumeMounts": READ_ONLY} for one in (names.COMPILED_SEED, names.COMPILED_KEEP)]
        body["spec"]["template"] = {"spec": {"initContainers": helpers}}
    stage.apply(body)


def the_pod(stage: Stage, name: str) -> dict[str, Any]:
    (found,) = stage.pods(name)
    return found


def cache(stage: Stage, pod: dict[str, Any]) -> Path:
    """The engine's cache folder, as the node keeps it."""
    folder: Path = stage.cluster.state_dir / "node" / "pods" / pod["metadata"]["uid"] / "volumes" / "cache"
    assert folder.is_dir()
    return folder


def volume(stage: Stage, claim: str) -> Path:
    bound = stage.get("pvc", claim)["spec"]["volumeName"]
    told = json.loads(stage.cluster.kubectl("get", "pv", bound, "-o", "json").stdout)
    return Path(told["spec"]["hostPath"]["path"])


def published(stage: Stage) -> list[Path]:
    return sorted((volume(stage, KEPT) / names.CACHE_FOLDER / "compiled").glob("*/*/manifest.json"))


def helper(pod: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = [one for one in pod["status"]["initContainerStatuses"] if one["name"] == name]
    return found


def log(stage: Stage, pod: dict[str, Any], container: str) -> str:
    return stage.cluster.kubectl("logs", pod["metadata"]["name"], "-c", container, "-n", NAMESPACE).stdout


def gone(stage: Stage, pod: dict[str, Any]) -> float:
    """Seconds from the deletion of a pod until it is gone."""
    started = time.monotonic()
    stage.cluster.kubectl("delete", "pod", pod["metadata"]["name"], "-n", NAMESPACE, "--wait", "--timeout=240s")
    return time.monotonic() - started


def followed(stage: Stage, name: str, before: dict[str, Any]) -> dict[str, Any]:
    """The pod after `before`, ready."""

    def next_pod() -> dict[str, Any]:
        found = [pod for pod in stage.pods(name) if pod["metadata"]["uid"] != before["metadata"]["uid"]]
        return found[0] if found and is_ready(found[0]) else {}

    after: dict[str, Any] = until(next_pod, LONG)
    return after


def test_what_one_pod_compiled_the_next_one_finds(served: Stage) -> None:
    first, plain = the_pod(served, KEPT), the_pod(served, PLAIN)
    assert "the engine compiles" in log(served, first, names.COMPILED_SEED)
    (manifest,) = until(lambda: published(served), QUIET_SECONDS + LONG)
    assert (manifest.parent / "files" / FILE).read_bytes() == CODE

    with ThreadPoolExecutor() as both:
        with_cache, without = both.map(lambda pod: gone(served, pod), (first, plain))
    print(f"pods gone after {with_cache:.1f} s with the cache, {without:.1f} s without")
    assert with_cache < without + 60, "what waits beside the engine ends at once"
    second = followed(served, KEPT, first)
    assert (cache(served, second) / FILE).read_bytes() == CODE
    assert (cache(served, second) / MARK).read_text() == manifest.parent.name
    assert helper(second, names.COMPILED_KEEP)["restartCount"] == 0
    assert helper(second, names.COMPILED_KEEP)["ready"]


def test_a_torn_generation_goes_and_the_engine_starts(served: Stage) -> None:
    before = the_pod(served, KEPT)
    (manifest,) = published(served)
    torn = manifest.parent / "files" / FILE
    torn.write_bytes(CODE[: len(CODE) // 2])
    gone(served, before)
    after = followed(served, KEPT, before)
    assert "is incomplete" in log(served, after, names.COMPILED_SEED)
    assert helper(after, names.COMPILED_SEED)["restartCount"] == 0
    assert not (cache(served, after) / "triton").exists()
    assert published(served) == []
    scene.wait_ready(served.cluster, KEPT, LONG)


def test_a_volume_that_cannot_be_written_to_keeps_no_pod_from_serving(served: Stage) -> None:
    """Ready it is by the fixture; and it stays so when something would be published."""
    pod = the_pod(served, BLOCKED)
    mounts = [one["volumeMounts"] for one in pod["spec"]["initContainers"]]
    assert all(any(one.get("readOnly") and one["mountPath"] == names.COMPILED_MOUNT for one in of) for of in mounts)
    assert (cache(served, pod) / FILE).exists()
    until(lambda: "cannot publish" in log(served, pod, names.COMPILED_KEEP), QUIET_SECONDS + LONG)
    assert list(volume(served, BLOCKED).iterdir()) == []
    now = the_pod(served, BLOCKED)
    assert now["metadata"]["uid"] == pod["metadata"]["uid"]
    assert is_ready(now)
    assert helper(now, names.COMPILED_KEEP)["restartCount"] == 0


def test_restricted_pod_security_lets_the_pods_in(served: Stage) -> None:
    strict = "kept-strict"
    served.cluster.kubectl("create", "namespace", strict)
    served.cluster.kubectl("label", "namespace", strict, "pod-security.kubernetes.io/enforce=restricted")
    try:
        template = served.get("deployment", KEPT)["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "strict", "namespace": strict}}

        def admitted(spec: dict[str, Any]) -> str:
            body = json.dumps(pod | {"spec": spec | {"restartPolicy": "Always"}})
            return served.cluster.kubectl("create", "--dry-run=server", "-f", "-", input=body, check=False).stderr

        loose = copy.deepcopy(template["spec"])
        del loose["initContainers"][1]["securityContext"]
        until(lambda: "restricted" in admitted(loose), LONG)  # a namespace has no account at first, nor its label
        assert admitted(template["spec"]) == ""
    finally:
        served.cluster.kubectl("delete", "namespace", strict, "--wait=false")
