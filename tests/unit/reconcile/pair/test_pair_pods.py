"""Pairs whose weights each pod brings itself, into a folder of its node or an emptyDir: what happens when ..."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.reconcile.paired import (
    COMMITS,
    EAGLE,
    LOOKING,
    PAIRED,
    VERIFIER,
    Paired,
    advance,
    hub,
    serving,
    told,
)
from tests.unit.reconcile.worlds import template

from speculative_operator.domain import names
from speculative_operator.domain.jobs import Progress, Purpose, encode
from speculative_operator.domain.models import Pin
from speculative_operator.domain.spec import (
    Cache,
    Check,
    EmptyDir,
    Method,
    Mode,
    ModelSource,
    Scheme,
    Speculation,
    Speculator,
    Weights,
)
from speculative_operator.reconcile.pair import arrival
from speculative_operator.reconcile.snapshot.records import keys
from speculative_operator.weights import disk

NODE = Cache(node_path="/var/lib/models")
EMPTY = Cache(empty_dir=EmptyDir("100Gi"))
GB = 1_000_000_000


def cached(cache: Cache, **more: Any) -> Any:
    return replace(PAIRED, weights=Weights(cache=cache, **more))


def key(name: str) -> str:
    return Pin(Scheme.HF, name, "", COMMITS[name]).key


def pod_of(cluster: Paired) -> dict[str, Any]:
    found: dict[str, Any] = template(cluster.children["Deployment", "demo"])["spec"]
    return found


def bring(cluster: Paired, *states: Mapping[str, Any], node: str = "node-a") -> None:
    """What the init containers of the pods say, one state each."""
    for pod, state in zip(cluster.pods, states, strict=True):
        pod["spec"] = {**pod.get("spec", {}), "nodeName": node}
        pod["status"]["initContainerStatuses"] = [{"name": names.JOB_CONTAINER, **state}]


DONE: dict[str, Any] = {"state": {"terminated": {"exitCode": 0}}}
RUNS: dict[str, Any] = {"state": {"running": {}}}


def failed(reason: str, message: str, **more: Any) -> dict[str, Any]:
    words = encode({"error": {"reason": reason, "message": message, **more}})
    end = {"terminated": {"exitCode": 3, "reason": "Error", "message": words}}
    return {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, "lastState": end}


def state(cluster: Paired, kind: str = "WeightsReady") -> tuple[str, str]:
    condition = cluster.condition(kind)
    return condition["status"], condition["reason"]


def made(cache: Cache = NODE, **more: Any) -> Paired:
    """Pods of a pair that they bring themselves have been made, and have said nothing yet."""
    cluster = Paired(spec=cached(cache, **more))
    advance(cluster)
    return cluster


# -- what pods are made of


@pytest.mark.parametrize("cache", [NODE, EMPTY])
def test_pods_bring_the_versions_that_were_pinned(cache: Cache) -> None:
    """What their containers are is in tests/golden/bringing."""
    cluster = made(cache)
    assert cluster.made == [Purpose.INSPECT], "a Job reads; none fetches"
    assert cluster.claims == set()
    args = pod_of(cluster)["initContainers"][0]["args"]
    assert {COMMITS[VERIFIER], COMMITS[EAGLE]} <= set(args)
    assert cluster.status["pair"]["cache"] == cache.home
    assert keys(cluster.status) == {key(VERIFIER), key(EAGLE)}


def test_a_platform_that_assigns_users_is_given_none() -> None:
    cluster = Paired(spec=cached(EMPTY), capabilities=replace(LOOKING, assigns_uids=True))
    advance(cluster)
    (container,) = pod_of(cluster)["initContainers"]
    assert "runAsUser" not in container["securityContext"]


def test_one_checkpoint_named_twice_is_brought_once() -> None:
    spec = replace(cached(EMPTY, check=Check.DISABLED), speculator=Speculator(Method.MTP, hub(VERIFIER)))
    cluster = Paired(spec=spec)
    advance(cluster)
    assert "--speculator" not in pod_of(cluster)["initContainers"][0]["args"]


def test_what_lies_in_a_claim_is_mounted_from_there() -> None:
    claimed = replace(PAIRED.verifier, source=ModelSource(Scheme.PVC, "theirs/qwen3-8b"))

    class Claimed(Paired):
        def facts(self, name: str) -> Any:
            found = super().facts(VERIFIER if name.startswith("pvc") else name)
            return replace(found, pin=Pin(Scheme.PVC, "theirs/qwen3-8b", "", "sha256:1")) if "pvc" in name else found

    cluster = Claimed(spec=replace(cached(EMPTY), verifier=claimed))
    advance(cluster)
    pod = pod_of(cluster)
    assert pod["containers"][0]["args"][0] == "/mnt/models/theirs/qwen3-8b"
    assert "--verifier" not in pod["initContainers"][0]["args"]
    assert "--speculator" in pod["initContainers"][0]["args"]
    off = Claimed(spec=replace(cached(EMPTY), verifier=claimed, speculation=Speculation(mode=Mode.DISABLED)))
    advance(off)
    assert "initContainers" not in pod_of(off), "nothing is to be brought"
    assert state(off) == ("Unknown", "EngineLoads")


# -- where the weights are


def test_the_condition_follows_the_pods() -> None:
    cluster = made(NODE)
    cluster.pods.clear()
    cluster.tick()
    assert state(cluster) == ("Unknown", "NoPods")
    assert "/var/lib/models" in cluster.condition("WeightsReady")["message"]
    cluster.roll()
    bring(cluster, RUNS, {"state": {"waiting": {"reason": "PodInitializing"}}})
    cluster.tick()
    assert state(cluster) == ("False", "Downloading")
    first = cluster.pods[0]["metadata"]["name"]
    comes = {first: Progress(bytes=5 * GB, total=10 * GB, rate=0.5 * GB, file="model.safetensors")}
    cluster.arriving = comes
    cluster.tick()
    assert "5GB of 10GB, 500MB/s, 10s left" in cluster.condition("WeightsReady")["message"]
    assert cluster.status["weights"]["text"] == "50%, 10s left"
    cluster.arriving = {first: replace(comes[first], rate=0.0, stalled_seconds=90)}
    cluster.tick()
    assert state(cluster) == ("False", "DownloadStalled")
    assert "model.safetensors" in cluster.condition("WeightsReady")["message"]
    cluster.arriving = {}
    bring(cluster, DONE, RUNS)
    cluster.tick()
    assert state(cluster) == ("False", "Downloading")
    assert "1 of 2 pods" in cluster.condition("WeightsReady")["message"]
    bring(cluster, DONE, DONE)
    outcome = cluster.tick()
    assert state(cluster) == ("True", "WeightsCached")
    assert "17.2GB" in cluster.condition("WeightsReady")["message"]
    assert "folder /var/lib/models" in cluster.condition("WeightsReady")["message"]
    assert ("Normal", "WeightsCached") in told(outcome)
    assert cluster.look().actions == ()


def test_a_failure_is_told_with_its_reason_and_its_pod_until_bytes_come() -> None:
    cluster = made(EMPTY)
    remedy = "put a token under HF_TOKEN into the Secret models"
    refusal = failed("SourceUnauthorized", "tiny/gated answers 401", side="speculator", status=401, remedy=remedy)
    bring(cluster, DONE, refusal)
    outcome = cluster.tick()
    assert state(cluster) == ("False", "SourceUnauthorized")
    message, name = cluster.condition("WeightsReady")["message"], cluster.pods[1]["metadata"]["name"]
    assert message == f"pod {name} on node-a: speculator: tiny/gated answers 401; {remedy}"
    assert ("Warning", "SourceUnauthorized") in told(outcome)
    bring(cluster, DONE, {**refusal, "state": {"running": {}}})
    assert not told(cluster.tick()), "a try is no news"
    assert state(cluster) == ("False", "SourceUnauthorized")
    cluster.arriving = {name: Progress(1, 2, 1.0)}
    cluster.tick()
    assert state(cluster) == ("False", "Downloading")


def test_figures_of_a_failure_that_stays_are_no_news() -> None:
    cluster = made(NODE)
    bring(cluster, DONE, failed("CacheFull", "needs 17 GB and has 3 GB", remedy="enlarge the claim"))
    cluster.tick()
    before = cluster.condition("WeightsReady")
    assert "claim" not in before["message"], "there is none"
    assert "/var/lib/models" in before["message"]
    bring(cluster, DONE, failed("CacheFull", "needs 17 GB and has 2 GB"))
    assert not told(cluster.tick())
    assert cluster.condition("WeightsReady") == before
    bring(cluster, DONE, failed("CacheUnwritable", "read-only", remedy="fsGroup"))
    cluster.tick()
    assert state(cluster) == ("False", "CacheUnwritable")
    assert "fsGroup" not in cluster.condition("WeightsReady")["message"], "it changes nothing on a node's folder"


@pytest.mark.parametrize(
    ("state_", "said"),
    [
        ({"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}, "ImagePullBackOff: not found"),
        ({"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}, "OOMKilled, 137; give it more memory"),
        ({"state": {"terminated": {"exitCode": 2, "message": "z:garbage"}}}, "container weights ended: Error, 2"),
    ],
)
def test_what_leaves_no_words_is_told_too(state_: dict[str, Any], said: str) -> None:
    cluster = made(EMPTY)
    bring(cluster, DONE, state_)
    cluster.tick()
    assert cluster.condition("WeightsReady")["status"] == "False"
    assert said in cluster.condition("WeightsReady")["message"]


def test_pods_on_their_way_out_and_of_another_pair_say_nothing_of_this_one() -> None:
    cluster = made(NODE)
    bring(cluster, DONE, failed("SourceUnauthorized", "401"))
    cluster.pods[1]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.tick()
    assert state(cluster) == ("True", "WeightsCached")
    del cluster.pods[1]["metadata"]["deletionTimestamp"]
    cluster.pods[1]["metadata"]["labels"][names.LABEL_PAIR] = "another"
    cluster.tick()
    assert state(cluster) == ("True", "WeightsCached")


def test_where_pod_security_admits_no_pod_the_condition_says_what_to_do() -> None:
    cluster = made(NODE)
    cluster.pods.clear()
    why = (
        'pods "demo-5d-x7k2p" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes (volume "weights")'
    )
    status = cluster.children["Deployment", "demo"].setdefault("status", {})
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": why}
    status |= {"conditions": [failure], "replicas": 0, "readyReplicas": 0, "updatedReplicas": 0, "availableReplicas": 0}
    cluster.tick()
    assert state(cluster) == ("False", "CacheUnwritable")
    message = cluster.condition("WeightsReady")["message"]
    assert "hostPath volumes" in message
    assert "pod-security.kubernetes.io/enforce: privileged" in message
    assert "x7k2p" not in message, "the name of a pod that is not there changes with each try"
    assert "violates PodSecurity" in cluster.condition("Ready")["message"]


# -- what does not come to pods at all


def test_an_empty_dir_that_is_too_small_gets_no_pods() -> None:
    cluster = Paired(spec=cached(Cache(empty_dir=EmptyDir("16Gi"))))
    advance(cluster)
    assert not cluster.serves()
    assert state(cluster) == ("False", "CacheFull")
    assert state(cluster, "Ready") == ("False", "CacheFull")
    message = cluster.condition("WeightsReady")["message"]
    assert "sizeLimit 16Gi is too small" in message
    assert "17Gi or more" in message
    cluster.edit(weights=Weights(cache=Cache(empty_dir=EmptyDir("17Gi"))))
    advance(cluster)
    assert cluster.serves()


@given(st.integers(1, 10**13), st.integers(1, 10**13))
def test_an_empty_dir_is_held_too_small_exactly_where_the_program_would_find_no_room(limit: int, size: int) -> None:
    facts = Paired().facts(VERIFIER)
    models = (replace(facts, weights=replace(facts.weights, bytes=size)),)
    needed = size + max(size // 100, disk._SMALLEST_MARGIN)
    short = arrival.too_small(Cache(empty_dir=EmptyDir(str(limit))), models)
    assert bool(short) == (limit < needed)


def test_nothing_is_held_against_a_cache_whose_room_is_not_known() -> None:
    assert arrival.too_small(NODE, (Paired().facts(VERIFIER),)) == ""


@pytest.mark.parametrize("cache", [NODE, EMPTY])
def test_without_an_image_nothing_is_made_and_pods_that_run_stay(cache: Cache) -> None:
    cluster = Paired(spec=cached(cache), capabilities=replace(LOOKING, job_image=""))
    advance(cluster)
    assert not cluster.serves()
    assert state(cluster, "Ready") == ("False", "UnsupportedSource")
    assert "SPECULATIVE_JOB_IMAGE" in cluster.condition("Ready")["message"]
    cluster = serving(spec=cached(cache))
    before = cluster.deployment
    cluster.capabilities = replace(LOOKING, job_image="")
    cluster.settle()
    assert cluster.deployment == before


# -- what replaces pods, and what does not


@pytest.mark.parametrize("before", [None, Cache("models", size="500Gi"), NODE, EMPTY])
@pytest.mark.parametrize("after", [None, Cache("models", size="500Gi"), NODE, EMPTY, Cache(node_path="/data/models")])
def test_from_one_cache_to_another_is_one_rollout(before: Cache | None, after: Cache | None) -> None:
    cluster = serving(spec=replace(PAIRED, weights=Weights(cache=before)))
    templates = cluster.templates
    cluster.edit(weights=Weights(cache=after))
    advance(cluster)
    cluster.settle()
    assert cluster.templates - templates == (before != after)
    assert cluster.status["pair"].get("cache", "") == (after.home if after is not None else "")
    assert cluster.look().actions == ()
