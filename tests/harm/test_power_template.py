"""The harm: whoever may create a SpeculativeDeployment, and nothing else, has the operator make any pod of the
namespace, as root of the node or with another ServiceAccount's token; and the cure must not end pods that serve.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.observed.test_inference_service import SERVED, Platform
from tests.unit.reconcile.worlds import SPEC, Cluster, observed, settled, template

from speculative_operator.domain.spec import Cache, EngineSettings, Weights
from speculative_operator.render import Capabilities

ROOT_OF_NODE: dict[str, Any] = {
    "spec": {
        "serviceAccountName": "cluster-admin",
        "hostPID": True,
        "containers": [{"name": "engine", "securityContext": {"privileged": True}}],
    }
}
ALLOWED = Capabilities(template_privileges=("hostPID", "privileged", "serviceAccountName"))


def test_a_template_gains_no_privileges_by_default() -> None:
    cluster = Cluster(spec=replace(SPEC, template=ROOT_OF_NODE))
    outcome = cluster.tick()
    assert outcome.actions == ()
    ready = cluster.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "SpecInvalid")
    assert "spec.template.spec.hostPID is true" in ready["message"]
    assert [(one.type, one.reason) for one in outcome.events] == [("Warning", "SpecInvalid")]


def test_nor_does_an_edit_and_the_pods_before_it_stay() -> None:
    cluster = settled()
    before = cluster.children["Deployment", "demo"]
    cluster.edit(template=ROOT_OF_NODE)
    assert cluster.tick().actions == ()
    assert cluster.children["Deployment", "demo"] == before
    assert cluster.condition("Ready")["reason"] == "SpecInvalid"
    cluster.edit(template={})
    cluster.settle()
    assert cluster.condition("Ready")["status"] == "True"


def test_whoever_installed_the_operator_may_allow_them() -> None:
    cluster = settled(spec=replace(SPEC, template=ROOT_OF_NODE), capabilities=ALLOWED)
    assert template(cluster.children["Deployment", "demo"])["spec"]["hostPID"] is True
    assert "warnings" not in cluster.status


def test_pods_that_have_them_when_the_check_comes_are_served_on() -> None:
    cluster = settled(spec=replace(SPEC, template=ROOT_OF_NODE), capabilities=ALLOWED)
    cluster.capabilities, made = Capabilities(), cluster.templates
    outcome = cluster.tick(observed(cluster))
    assert (outcome.actions, cluster.templates) == ((), made)
    assert cluster.condition("Ready")["status"] == "True"
    assert {one["reason"] for one in cluster.status["warnings"]} == {"PrivilegesKept"}
    assert len(cluster.status["warnings"]) == 3
    cluster.edit(replicas=3)
    cluster.settle()
    assert (cluster.children["Deployment", "demo"]["spec"]["replicas"], cluster.templates) == (3, made)


def test_they_are_given_none_beside_those_that_they_have() -> None:
    cluster = settled(spec=replace(SPEC, template=ROOT_OF_NODE), capabilities=ALLOWED)
    cluster.capabilities, made = Capabilities(), cluster.templates
    cluster.edit(template={"spec": {**ROOT_OF_NODE["spec"], "hostNetwork": True}})
    assert cluster.tick().actions == ()
    assert "hostNetwork" in cluster.condition("Ready")["message"]
    cluster.edit(template=ROOT_OF_NODE, engine=EngineSettings(args=("--seed=1",)))
    cluster.settle()
    assert cluster.templates == made + 1, "an edit that asks for no more is carried out"


def test_a_foreign_deployment_by_the_name_gives_no_leave() -> None:
    cluster = settled(spec=replace(SPEC, template=ROOT_OF_NODE), capabilities=ALLOWED)
    cluster.capabilities = Capabilities()
    cluster.children["Deployment", "demo"]["metadata"]["ownerReferences"] = []
    assert cluster.tick().actions == ()
    assert cluster.condition("Ready")["reason"] == "SpecInvalid"


def test_a_cache_lies_in_no_folder_of_the_node_but_those_allowed() -> None:
    spec = replace(SPEC, weights=Weights(cache=Cache(node_path="/mnt/other-team")))
    able = Capabilities(job_image="operator:1", node_folders=("/mnt/models",))
    cluster = Cluster(spec=spec, capabilities=able)
    assert cluster.tick().actions == ()
    assert "nodePath is /mnt/other-team" in cluster.condition("Ready")["message"]


PREDICTOR: dict[str, dict[str, Any]] = {
    "another implementation": {"spec": {"pytorch": {"image": "x", "securityContext": {"privileged": True}}}},
    "another model": {"spec": {"model": {"image": "x", "securityContext": {"privileged": True}}}},
    "pods beside": {"spec": {"workerSpec": {"containers": [{"name": "x", "securityContext": {"privileged": True}}]}}},
    "another runtime": {"spec": {"containers": [{"name": "engine", "runtime": "with-rights"}]}},
    "a download": {"spec": {"containers": [{"name": "engine", "storageUri": "hf://x/y"}]}},
    "no engine": {"spec": {"containers": [{"name": "engine", "$patch": "delete"}]}},
    "no image": {"spec": {"containers": [{"name": "engine", "image": None}]}},
    "no pod": {"spec": None},
}


@pytest.mark.parametrize("asked", PREDICTOR.values(), ids=PREDICTOR.keys())
def test_a_template_says_nothing_of_an_inference_service_but_its_pods(asked: dict[str, Any]) -> None:
    """What stands beside a pod's fields in a predictor makes KServe run containers that no check here has seen."""
    platform = Platform(spec=replace(SERVED, template=asked))
    outcome = platform.tick()
    assert not [one for one in outcome.actions if getattr(one, "manifest", {}).get("kind") == "InferenceService"]
    ready = platform.condition("Ready")
    assert (ready["status"], ready["reason"] in {"RenderInvalid", "SpecInvalid"}) == ("False", True)
    assert "spec.template" in ready["message"]
