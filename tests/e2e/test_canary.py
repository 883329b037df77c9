"""`spec.route.canary` on a cluster: the share follows what the canary does, with the rights of the installed roles. No
Gateway works here; the HTTPRoute is what one would follow."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from tests import gateway
from tests.e2e.conftest import NAMESPACE, Stage, until

from demo import scene

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

STABLE, NEXT = "canary-stable", "canary-next"


def manifest(name: str, **more: Any) -> dict[str, Any]:
    found = copy.deepcopy(scene.variants()[0].manifest)
    found["metadata"]["name"] = name
    found["spec"] |= more
    found["spec"]["verifier"]["servedName"] = "qwen"
    return found


@pytest.fixture(scope="module")
def led(stage: Stage) -> Iterator[Stage]:
    """Both objects, on a cluster with the kind HTTPRoute."""
    gateway.install(stage.cluster)
    stage.cluster.kubectl("rollout", "restart", scene.OPERATOR, "-n", scene.OPERATOR_NAMESPACE)
    route = {"gateway": {"name": "public"}, "canary": {"name": NEXT, "weight": 20}}
    stage.apply(manifest(STABLE, route=route))
    try:
        yield stage
    finally:
        stage.cluster.kubectl("delete", "specdep", STABLE, NEXT, "-n", NAMESPACE, "--ignore-not-found")


def shares(stage: Stage) -> dict[str, int]:
    rules = stage.get("httproute", STABLE).get("spec", {}).get("rules") or [{"backendRefs": []}]
    return {one["name"]: one["weight"] for one in rules[0]["backendRefs"]}


def warned(stage: Stage) -> list[str]:
    return [one["reason"] for one in stage.get("specdep", STABLE)["status"].get("warnings") or ()]


def test_a_canary_has_its_share_for_as_long_as_it_serves(led: Stage) -> None:
    until(lambda: shares(led) == {STABLE: 1}, 180)
    scene.wait_ready(led.cluster, STABLE, 180)
    until(lambda: warned(led) == ["CanaryLeftOut"], 180)
    led.apply(manifest(NEXT))
    until(lambda: shares(led) == {STABLE: 80, NEXT: 20}, 180)
    until(lambda: led.condition(NEXT, "Ready").get("status") == "True", 180)
    until(lambda: not warned(led), 180)
    led.cluster.kubectl("scale", "specdep", NEXT, "--replicas=0", "-n", NAMESPACE)
    until(lambda: shares(led) == {STABLE: 1}, 180)
    led.cluster.kubectl("scale", "specdep", NEXT, "--replicas=1", "-n", NAMESPACE)
    until(lambda: shares(led) == {STABLE: 80, NEXT: 20}, 180)
    led.cluster.kubectl("delete", "specdep", NEXT, "-n", NAMESPACE)
    until(lambda: shares(led) == {STABLE: 1}, 180)
    assert led.condition(STABLE, "Ready")["status"] == "True"
