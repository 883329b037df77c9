"""Harm: a pod that merely bears our labels is counted, poked and listened to, so that it steers a Deployment, or stops
its tuning, that never made it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.shell.scene import KEY, owner, pod, replica_set

from speculative_operator.shell.cache import Cache, Snapshot

Json = dict[str, Any]
STRAYS: dict[str, list[Json]] = {
    "a copy made for debugging has no controller": [],
    "a canary of another Deployment": [replica_set("gemma-canary-5d")],
    "an older hash under the label of a newer one": [replica_set("gemma-77")],
    "owned, not controlled": [{**replica_set(), "controller": False}],
    "a ReplicaSet of another API": [{**replica_set(), "apiVersion": "apps.example.com/v1"}],
    "a StatefulSet by the same name": [{**replica_set(), "kind": "StatefulSet"}],
}


def seen(*pods: Json) -> tuple[Cache, Snapshot]:
    """The cache and its snapshot with the object and `pods`."""
    cache = Cache()
    for number, body in enumerate((owner(), *pods), start=1):
        body["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": str(number)}
        cache.put(body)
    snapshot = cache.snapshot(KEY)
    assert snapshot is not None
    return cache, snapshot


@pytest.mark.parametrize("references", STRAYS.values(), ids=STRAYS.keys())
def test_a_stray_pod_is_never_counted_among_those_that_serve(references: list[Json]) -> None:
    stray = pod("stray")
    stray["metadata"]["ownerReferences"] = references
    cache, snapshot = seen(stray)
    assert snapshot.pods == ()
    assert cache.ready_objects() == {}, "nor is Prometheus asked for it"
    assert [one["metadata"]["name"] for one in seen(stray, pod())[1].pods] == ["gemma-1"]


def test_pods_of_an_older_template_are_still_ours() -> None:
    old = pod("gemma-0")
    old["metadata"] |= {"ownerReferences": [replica_set("gemma-77")]}
    old["metadata"]["labels"] = {**old["metadata"]["labels"], "pod-template-hash": "77"}
    assert [one["metadata"]["name"] for one in seen(old, pod())[1].pods] == ["gemma-0", "gemma-1"]


def test_a_pod_that_its_replica_set_let_go_is_no_longer_counted() -> None:
    cache, _ = seen(pod())
    released = pod()
    released["metadata"] |= {"uid": "uid-2", "resourceVersion": "3", "ownerReferences": []}
    cache.put(released)
    snapshot = cache.snapshot(KEY)
    assert snapshot is not None
    assert snapshot.pods == ()


@pytest.mark.parametrize(
    ("target", "ours"),
    [
        ("InferenceService", "gemma-predictor-5d"),
        ("LLMInferenceService", "gemma-kserve-5d"),
        ("Deployment", "gemma-5d"),
    ],
)
def test_pods_count_only_where_the_targets_own_deployment_made_them(target: str, ours: str) -> None:
    """KServe's `gemma-predictor` and `gemma-kserve` serve their kinds of object, `gemma` the other; never both."""
    pods = [pod(name) for name in ("gemma-5d", "gemma-predictor-5d", "gemma-kserve-5d")]
    for one in pods:
        one["metadata"]["ownerReferences"] = [replica_set(one["metadata"]["name"])]
    cache, _ = seen(*pods)
    body = owner()
    body["metadata"] |= {"uid": "uid-1", "resourceVersion": "9"}
    body["spec"] = {**body["spec"], "target": target}
    cache.put(body)
    snapshot = cache.snapshot(KEY)
    assert snapshot is not None
    assert [one["metadata"]["name"] for one in snapshot.pods] == [ours]
