"""`spec.route`: the HTTPRoute is a child like others, goes with the field, and never stands in the way of pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.reconcile.worlds import SPEC, Cluster

from speculative_operator.domain.actions import ApplyChild, DeleteChild
from speculative_operator.domain.route import Route
from speculative_operator.render import Capabilities

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
