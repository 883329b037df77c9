"""Harm: pods never start again because their weights are gone and status says that they are there; or they are
replaced, or everything is downloaded anew, because a release keeps weights elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.paired import (
    CACHED,
    COMMITS,
    EAGLE,
    PAIRED,
    VERIFIER,
    Paired,
    advance,
    serving,
    state,
    with_cache,
)

from speculative_operator.domain.jobs import Progress, Purpose
from speculative_operator.domain.models import Pin
from speculative_operator.domain.spec import Cache, Scheme, Weights
from speculative_operator.reconcile.pair.pairing import LOOK_SECONDS, RENEW_SECONDS
from speculative_operator.weights.cache import GRACE_SECONDS

GB = 10**9
KEYS = [Pin(Scheme.HF, name, "", COMMITS[name]).key for name in (VERIFIER, EAGLE)]
REFUSED = "CreateContainerConfigError"
STUCK: list[dict[str, Any]] = [
    {
        "name": "engine",
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": "CreateContainerConfigError"}},
    },
    {"name": "engine", "ready": False, "restartCount": 4, "state": {"running": {}}},
]


def stick(cluster: Paired, status: dict[str, Any] | None) -> None:
    """What the kubelet says of the engine of the first pod; None: it runs."""
    pod = cluster.pods[0]
    statuses = [status] if status else [{"name": "engine", "ready": True, "restartCount": 0, "state": {"running": {}}}]
    pod["status"] = {**pod["status"], "containerStatuses": statuses}


@pytest.mark.parametrize("status", STUCK)
def test_weights_that_are_gone_are_never_believed_to_be_there(status: dict[str, Any]) -> None:
    cluster = serving(spec=with_cache())
    templates = cluster.templates
    cluster.now += LOOK_SECONDS
    stick(cluster, status)
    cluster.tick()
    assert cluster.made == [Purpose.INSPECT, Purpose.FETCH, Purpose.FETCH]
    assert state(cluster, "WeightsReady") == ("False", "WeightsMissing")
    message = cluster.condition("WeightsReady")["message"]
    assert cluster.pods[0]["metadata"]["name"] in message
    assert "claim models" in message
    cluster.comes(Progress(2 * GB, 17 * GB, 0.5 * GB, "a.safetensors"))
    cluster.tick()
    assert state(cluster, "WeightsReady") == ("False", "Downloading")
    assert "cache" not in cluster.status["pair"]
    cluster.fetched()
    stick(cluster, None)
    advance(cluster)
    assert state(cluster, "WeightsReady") == ("True", "WeightsCached")
    assert cluster.templates == templates, "the pods that wait find them where they were"


def test_a_pod_that_is_stuck_for_another_reason_never_stops_a_change_of_the_spec() -> None:
    cluster = serving(spec=with_cache())
    cluster.now += LOOK_SECONDS
    stick(cluster, STUCK[0])
    cluster.tick()
    cluster.edit(replicas=2)
    cluster.tick()
    assert cluster.deployment["spec"]["replicas"] == 2, "nothing is held back for a look"
    cluster.fails(Purpose.FETCH, "SourceUnreachable", "no answer")
    cluster.tick()
    assert state(cluster, "WeightsReady") == ("False", "WeightsMissing")
    assert "no answer" in cluster.condition("WeightsReady")["message"]
    cluster.edit(replicas=3)
    cluster.tick()
    assert cluster.deployment["spec"]["replicas"] == 3


def test_a_pod_that_stays_stuck_never_makes_a_job_with_each_tick() -> None:
    cluster = serving(spec=with_cache())
    cluster.now += LOOK_SECONDS
    stick(cluster, STUCK[1])
    for _ in range(2):
        made = len(cluster.made)
        cluster.tick()
        cluster.fetched()
        for _ in range(20):
            cluster.tick()
        assert len(cluster.made) == made + 1
        cluster.now += LOOK_SECONDS
    assert state(cluster, "WeightsReady") != ("False", "Downloading")


def test_marks_of_pods_that_serve_from_a_claim_never_grow_old() -> None:
    cluster = serving(spec=replace(PAIRED, weights=Weights(cache=Cache("models", size="500Gi", collect=True))))
    templates = cluster.templates
    assert RENEW_SECONDS * 50 < GRACE_SECONDS
    for _ in range(3):
        made = len(cluster.made)
        cluster.now += RENEW_SECONDS
        cluster.tick()
        assert cluster.made[made:].count(Purpose.FETCH) == 1
        assert state(cluster, "WeightsReady") == ("True", "WeightsCached")
        assert cluster.args(Purpose.FETCH).count("--collect") == 1
        advance(cluster)
    assert cluster.templates == templates


def test_at_rest_nothing_is_looked_at_again() -> None:
    cluster = serving(spec=with_cache())
    made = cluster.made[:]
    for _ in range(5):
        cluster.now += RENEW_SECONDS
        advance(cluster)
    assert cluster.made.count(Purpose.FETCH) == made.count(Purpose.FETCH)


def test_a_flip_of_collect_on_a_claim_replaces_no_pods() -> None:
    cluster = serving(spec=with_cache())
    templates = cluster.templates
    assert CACHED.cache is not None
    cluster.edit(weights=Weights(cache=replace(CACHED.cache, collect=True)))
    advance(cluster)
    assert cluster.templates == templates
