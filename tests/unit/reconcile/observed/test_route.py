"""`spec.route`: the HTTPRoute is a child like others, goes with the field, and never stands in the way of pods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.paired import LOOKING, PAIRED, hub, serving
from tests.unit.reconcile.worlds import SPEC, Cluster

from speculative_operator.domain.actions import ApplyChild, DeleteChild
from speculative_operator.domain.jobs import Purpose
from speculative_operator.domain.platform import Canary, CanarySeen, Route
from speculative_operator.domain.spec import Mode, Speculation
from speculative_operator.render import Capabilities

SERVES = CanarySeen(SPEC.verifier.served_name, service=True, answering=1)
LED = replace(SPEC, route=Route("public", canary=Canary("next", 20)))
ROUTED = replace(SPEC, route=Route("public", "gateways", hostnames=("models.example.com",), path="/qwen"))
OFFERED = Capabilities(http_route=True)
KEY = ("HTTPRoute", SPEC.name)


def served(**settings: Any) -> Cluster:
    settings = {"spec": ROUTED, "capabilities": OFFERED, **settings}
    cluster = Cluster(**settings)
    cluster.settle()
    return cluster


def ready(cluster: Cluster) -> tuple[str, str]:
    (found,) = [one for one in cluster.status["conditions"] if one["type"] == "Ready"]
    return found["status"], found["reason"]


def test_a_route_leads_from_the_gateway_to_the_service() -> None:
    cluster = served()
    spec = cluster.children[KEY]["spec"]
    (rule,) = spec["rules"]
    assert spec["parentRefs"] == [{"name": "public", "namespace": "gateways"}]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/qwen"}}]
    port = cluster.children["Service", SPEC.name]["spec"]["ports"][0]["port"]
    assert rule["backendRefs"] == [{"name": SPEC.name, "port": port}]
    assert rule["filters"][0]["urlRewrite"]["path"]["replacePrefixMatch"] == "/"
    assert ready(cluster) == ("True", "AllReady")
    assert cluster.tick().actions == ()


def test_nothing_but_the_route_follows_an_edit_of_it_and_it_goes_with_the_field() -> None:
    cluster = served()
    templates = cluster.templates
    cluster.spec = replace(ROUTED, generation=2, route=Route("public"))
    (action,) = cluster.tick().actions
    assert isinstance(action, ApplyChild)
    assert action.manifest["kind"] == "HTTPRoute"
    assert "hostnames" not in action.manifest["spec"]
    assert "filters" not in action.manifest["spec"]["rules"][0]
    cluster.spec = replace(SPEC, generation=3)
    (action,) = cluster.tick().actions
    assert isinstance(action, DeleteChild)
    assert (action.kind, action.name) == KEY
    assert cluster.templates == templates


def test_without_the_kind_the_model_is_served_and_ready_says_why_it_is_not_routed() -> None:
    cluster = served(capabilities=Capabilities())
    assert KEY not in cluster.children
    assert ready(cluster) == ("False", "RouteUnsupported")
    assert ("Deployment", SPEC.name) in cluster.children
    assert [one["status"] for one in cluster.status["conditions"] if one["type"] == "Available"] == ["True"]
    cluster.capabilities = OFFERED
    cluster.settle()
    assert KEY in cluster.children
    assert ready(cluster) == ("True", "AllReady")


def test_a_gateway_that_does_not_take_the_route_is_quoted() -> None:
    cluster = served()
    refused = {"type": "Accepted", "status": "False", "reason": "NotAllowedByListeners", "message": "no listener"}

    def said(**more: Any) -> list[dict[str, Any]]:
        cluster.children[KEY]["status"] = {"parents": [{"conditions": [{**refused, **more}]}]}
        cluster.tick()
        return [one for one in cluster.status.get("warnings") or () if one["reason"] == "RouteNotAccepted"]

    (warning,) = said()
    assert "Gateway public" in warning["message"]
    assert "NotAllowedByListeners: no listener" in warning["message"]
    assert ready(cluster) == ("True", "AllReady")
    assert said(status="True") == []
    assert said(observedGeneration=999) == [], "it speaks of another version of the route"


def test_a_foreign_route_by_that_name_is_left_alone() -> None:
    theirs = {"kind": "HTTPRoute", "metadata": {"name": SPEC.name, "uid": "theirs"}, "spec": {}}
    cluster = Cluster(spec=ROUTED, capabilities=OFFERED, children={KEY: theirs})
    cluster.settle()
    assert cluster.children[KEY] == theirs
    assert ready(cluster)[1] == "NameConflict"


def shares(cluster: Cluster) -> dict[str, int | None]:
    (rule,) = cluster.children[KEY]["spec"]["rules"]
    return {one["name"]: one.get("weight") for one in rule["backendRefs"]}


def left_out(cluster: Cluster) -> list[str]:
    return [one["message"] for one in cluster.status.get("warnings") or () if one["reason"] == "CanaryLeftOut"]


def test_a_canary_that_serves_gets_its_share_and_nothing_is_written_at_rest() -> None:
    cluster = served(spec=LED, canary=SERVES)
    assert shares(cluster) == {SPEC.name: 80, "next": 20}
    assert left_out(cluster) == []
    assert ready(cluster) == ("True", "AllReady")
    assert cluster.tick().actions == ()


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (None, "create it, or remove canary"),
        (CanarySeen(), "its spec is refused"),
        (replace(SERVES, served_name="other"), f"set its verifier.servedName: {SPEC.verifier.served_name}"),
        (replace(SERVES, service=False), "no Service"),
        (replace(SERVES, answering=0), f"no pod of it that answers for {SPEC.verifier.served_name} is ready"),
    ],
)
def test_a_canary_that_cannot_answer_gets_no_request(seen: CanarySeen | None, said: str) -> None:
    cluster = served(spec=LED, canary=SERVES)
    templates = cluster.templates
    cluster.canary = seen
    (action,) = cluster.tick().actions
    assert isinstance(action, ApplyChild)
    assert shares(cluster) == {SPEC.name: None}
    (message,) = left_out(cluster)
    assert said in message
    assert ready(cluster) == ("True", "AllReady"), "the object itself serves"
    assert cluster.tick().actions == ()
    cluster.canary = SERVES
    cluster.settle()
    assert shares(cluster) == {SPEC.name: 80, "next": 20}
    assert left_out(cluster) == []
    assert cluster.templates == templates


def test_a_canary_without_weight_gets_nothing_and_no_word() -> None:
    cluster = served(spec=replace(LED, route=Route("public", canary=Canary("next", 0))))
    assert shares(cluster) == {SPEC.name: None}
    assert left_out(cluster) == []


def test_all_requests_may_go_to_the_canary() -> None:
    cluster = served(spec=replace(LED, route=Route("public", canary=Canary("next", 100))), canary=SERVES)
    assert shares(cluster) == {SPEC.name: 0, "next": 100}


@pytest.mark.parametrize("mode", [Mode.STATIC, Mode.AUTO])
def test_a_canary_that_dies_gets_nothing_while_the_pair_cannot_be_read(mode: Mode) -> None:
    speculation = Speculation(mode=mode, num_speculative_tokens=3 if mode is Mode.STATIC else None)
    spec = replace(PAIRED, speculation=speculation, route=LED.route)
    cluster = serving(spec=spec, capabilities=replace(LOOKING, http_route=True), canary=SERVES)
    templates = cluster.templates
    cluster.edit(verifier=replace(spec.verifier, source=hub("nobody/nothing")))
    cluster.tick()
    cluster.fails(Purpose.INSPECT, "SourceNotFound")
    cluster.tick()
    assert ready(cluster)[0] == "False"
    assert shares(cluster) == {SPEC.name: 80, "next": 20}
    cluster.canary = None
    cluster.tick()
    assert shares(cluster) == {SPEC.name: None}
    assert cluster.tick().actions == ()
    cluster.edit(route=None)
    cluster.tick()
    assert KEY not in cluster.children, "the route was taken back"
    assert cluster.tick().actions == ()
    assert cluster.templates == templates


def test_a_canary_that_dies_gets_nothing_while_the_engine_refuses_the_spec() -> None:
    cluster = served(spec=LED, canary=SERVES)
    cluster.edit(engine=replace(LED.engine, version="0.1.0", version_named=True))
    assert cluster.tick().actions == ()
    assert ready(cluster)[0] == "False"
    cluster.canary = None
    cluster.tick()
    assert shares(cluster) == {SPEC.name: None}
    assert cluster.tick().actions == ()
    del cluster.children[KEY]
    assert cluster.tick().actions == (), "what is not there is made once the spec can be served"


def test_a_canary_that_dies_gets_nothing_while_an_upgrade_waits(release: Callable[[str], None]) -> None:
    """Pods that stay as another release made them are no reason to lead requests nowhere."""
    cluster = served(spec=LED, canary=SERVES, upgraded=True)
    templates = cluster.templates
    release("--anew")
    cluster.canary = None
    cluster.tick()
    assert [one["reason"] for one in cluster.status["warnings"]].count("UpgradeWaits") == 1
    assert shares(cluster) == {SPEC.name: None}
    cluster.spec = replace(SPEC, generation=2)
    cluster.settle()
    assert KEY not in cluster.children
    assert cluster.templates == templates
