"""The loop with `target: LeaderWorkerSet`: apply, LeaderWorkerSet, groups that a stand-in for LWS makes, leaders that
serve and in which K is tuned; with the rights of the installed roles and nothing more.

LWS's definition is the real one; its controller is tests/lws.py. The emulator leads, and workers only wait.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests import lws
from tests.e2e.conftest import NAMESPACE, Stage, controlled, less_than, until

from demo import scene

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

NAME = "large"
GROUP = f"{NAME}-group"


def manifest() -> dict[str, Any]:
    found = copy.deepcopy(scene.variants()[0].manifest)
    found["metadata"]["name"] = NAME
    found["spec"] |= {"target": "LeaderWorkerSet", "nodes": 2}
    found["spec"]["verifier"]["tensorParallelSize"] = 2
    # so many that fewer are faster at any load
    found["spec"]["speculation"] |= {"numSpeculativeTokens": 8, "maxSpeculativeTokens": 8}
    return found


@pytest.fixture(scope="module")
def platform(stage: Stage) -> Iterator[lws.Controller]:
    """The object, applied before LWS is there; then LWS."""
    stage.apply(manifest())
    until(lambda: stage.condition(NAME, "Ready").get("reason") == "UnsupportedTarget", 180)
    assert "install LWS" in stage.condition(NAME, "Ready")["message"]
    lws.install(stage.cluster)
    stage.cluster.kubectl("rollout", "restart", scene.OPERATOR, "-n", scene.OPERATOR_NAMESPACE)
    with controlled(stage, lws.Controller, NAME) as controller:
        yield controller


def pods(stage: Stage) -> dict[str, dict[str, Any]]:
    """Pods of the group that are not being deleted, by name."""
    found = stage.items("pods", f"leaderworkerset.sigs.k8s.io/name={GROUP}")
    return {one["metadata"]["name"]: one for one in found if "deletionTimestamp" not in one["metadata"]}


def written(stage: Stage) -> Any:
    body = stage.cluster.kubectl("get", "leaderworkerset", GROUP, "-n", NAMESPACE, "-o", "json").stdout
    return json.loads(body)["metadata"]["generation"]


def test_the_leader_of_a_group_that_lws_makes_serves_and_is_measured(stage: Stage, platform: lws.Controller) -> None:
    scene.wait_ready(stage.cluster, NAME, 180)
    group = pods(stage)
    assert set(group) == {f"{GROUP}-0", f"{GROUP}-0-1"}
    (leader,) = stage.pods(NAME)
    assert leader["metadata"]["name"] == f"{GROUP}-0"
    (worker,) = group[f"{GROUP}-0-1"]["spec"]["containers"]
    assert (worker["args"][-1], worker["resources"]["limits"]["nvidia.com/gpu"]) == ("--headless", "1")
    before = written(stage)

    stage.load_until_tuned(NAME, rate=8, also=less_than(8))
    stage.wait_available(NAME)
    (after,) = stage.pods(NAME)
    assert after["metadata"]["uid"] == leader["metadata"]["uid"]
    assert written(stage) == before
    assert platform.recreated == []


def test_a_lost_worker_takes_its_group_with_it_and_the_operator_waits(stage: Stage, platform: lws.Controller) -> None:
    before = {name: one["metadata"]["uid"] for name, one in pods(stage).items()}
    generation = written(stage)
    stage.cluster.kubectl("delete", "pod", f"{GROUP}-0-1", "-n", NAMESPACE, "--wait=false")

    def anew() -> bool:
        found = {name: one["metadata"]["uid"] for name, one in pods(stage).items()}
        return set(found) == set(before) and not set(found.values()) & set(before.values())

    until(anew, 180)
    scene.wait_ready(stage.cluster, NAME, 180)
    assert platform.recreated
    assert written(stage) == generation
