"""The schema on a real API server: each constraint accepts what is right and refuses what is wrong, in clear words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from kubernetes.client.exceptions import ApiException
from tests.contract.objects import BAD_NAMES, GOOD, GOOD_NAMES, RULES, UNKNOWN, Bad, specdep
from tests.contract.refused import BAD
from tests.contract.server import Server
from tests.contract.strategies import objects

from devcluster import Cluster
from speculative_operator.api.convert import SpecError, to_domain
from speculative_operator.api.crd import COLUMNS, crd

pytestmark = pytest.mark.cluster


def test_definition_is_structural(installed: dict[str, Any]) -> None:
    conditions = {c["type"]: c["status"] for c in installed["status"]["conditions"]}
    assert conditions == {"Established": "True", "NamesAccepted": "True"}


def test_server_keeps_the_definition_as_written(installed: dict[str, Any]) -> None:
    """Nothing of it is dropped or rewritten, so that a drift of the cluster's copy can be seen."""
    ours, theirs = crd()["spec"], installed["spec"]
    assert theirs["versions"] == ours["versions"]
    assert theirs["names"] == ours["names"]


@pytest.mark.parametrize("case", GOOD)
def test_accepts(server: Server, case: str) -> None:
    created = server.create(specdep(GOOD[case]))
    assert created["spec"]["speculation"]["maxSpeculativeTokens"] >= 1


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_refuses_and_says_why(server: Server, bad: Bad) -> None:
    status = server.refusal(bad.body())
    causes = status["details"]["causes"]
    told = [(cause["field"], f"{cause['field']}: {cause['message']}") for cause in causes]
    assert any(bad.is_told_by(*one) for one in told), json.dumps(causes, indent=1)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_refuses_names_that_services_cannot_carry(server: Server, name: str) -> None:
    message = server.refusal(specdep(name=name))["message"]
    assert f'metadata.name is "{name}"' in message
    assert "use at most 53 lower-case letters" in message


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_accepts_names(server: Server, name: str) -> None:
    assert server.create(specdep(name=name))["metadata"]["name"] == name


@pytest.mark.parametrize("case", UNKNOWN)
def test_refuses_unknown_fields(server: Server, case: str) -> None:
    changes, field = UNKNOWN[case]
    assert f'unknown field "{field}"' in server.refusal(specdep(changes))["message"]


def test_kubectl_refuses_unknown_fields_unasked(bare_cluster: Cluster, installed: dict[str, Any]) -> None:
    """Its default is the strict validation that the schema relies on."""
    body = json.dumps(specdep({"speculation.k": 2}))
    for arguments in (("apply",), ("apply", "--server-side"), ("create",)):
        result = bare_cluster.kubectl(*arguments, "--dry-run=server", "-f", "-", input=body, check=False)
        assert result.returncode != 0
        assert "spec.speculation.k" in result.stderr


def test_every_rule_has_a_refused_object() -> None:
    named = {bad.rule for bad in BAD} - {""}
    assert RULES.keys() - {"name-form", "group-name", "measured-name", "target-stays"} == named
    assert len(BAD) >= 40


def test_the_target_stays(server: Server) -> None:
    stored = server.create(specdep(name="moves"), keep=True)
    stored["spec"]["target"] = "InferenceService"
    with pytest.raises(ApiException) as refused:
        server.custom.replace_namespaced_custom_object(*server.at, "moves", stored)
    assert refused.value.status == 422
    assert "target is InferenceService but was Deployment, and pods" in str(refused.value.body)
    assert "create a second object with this target" in str(refused.value.body)


def test_a_name_that_pods_of_several_nodes_cannot_carry_is_refused(server: Server) -> None:
    spread = {"target": "LeaderWorkerSet", "nodes": 2, "verifier.tensorParallelSize": 2}
    server.create(specdep(spread, name="g" * 41))
    said = server.refusal(specdep(spread, name="g" * 42))["message"]
    assert "use at most 41 characters" in said
    server.create(specdep(name="g" * 42))


def test_a_name_that_a_candidate_cannot_carry_is_refused(server: Server) -> None:
    measured = {"speculator": {"auto": True, "measure": {}}}
    server.create(specdep(measured, name="m" * 43))
    assert "use at most 43 characters" in server.refusal(specdep(measured, name="m" * 44))["message"]
    server.create(specdep({"speculator": {"auto": True}}, name="m" * 44))


def test_fills_in_defaults(server: Server) -> None:
    assert server.create(specdep({"speculator": {"method": "ngram"}}))["spec"] == {
        "verifier": {
            "model": "hf://Qwen/Qwen3-8B",
            "tensorParallelSize": 1,
            "pipelineParallelSize": 1,
            "dataParallelSize": 1,
        },
        "speculator": {"method": "ngram"},
        "speculation": {
            "mode": "Auto",
            "maxSpeculativeTokens": 8,
            "offPolicy": "Skip",
            "workload": "Mixed",
            "objective": {"goal": "Goodput"},
        },
        "engine": {"type": "vLLM"},
        "accelerator": {"resource": "nvidia.com/gpu"},
        "replicas": 1,
        "rollout": {"strategy": "Auto"},
        "target": "Deployment",
    }


def test_defaults_do_not_hide_what_is_missing(server: Server) -> None:
    body = specdep()
    del body["spec"]
    assert "spec: Required value" in server.refusal(body)["message"]


def test_template_passes_through_unpruned(server: Server) -> None:
    created = server.create(specdep(GOOD["template"]))
    assert created["spec"]["template"] == GOOD["template"]["template"]


def test_one_mistake_gives_one_cause(server: Server) -> None:
    """A wall of text hides the remedy: no rule speaks of what another already said."""
    loud = {}
    for bad in BAD:
        causes = server.refusal(bad.body())["details"]["causes"]
        spoken = [c for c in causes if c["field"] != "<nil>" and "accessor error" not in c["message"]]
        if len(spoken) != 1:
            loud[bad.name] = [c["message"] for c in spoken]
    assert not {name: said for name, said in loud.items() if name not in TWO_CAUSES}, json.dumps(loud, indent=1)


TWO_CAUSES = {"replicas=-1", "speculation.mode=False"}
"""The scale subresource brings a bound of its own; a word of the wrong type is not in the list either."""


def test_columns_name_fields_of_the_schema() -> None:
    version = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    paths = [
        column["jsonPath"]
        for column in COLUMNS
        if "[?" not in column["jsonPath"] and ".metadata" not in column["jsonPath"]
    ]
    for path in paths:
        node = version
        for part in path.strip(".").split("."):
            name, _, item = part.partition("[")
            node = node["properties"][name]
            node = node["items"] if item else node
        assert node["type"] in {"string", "integer"}, path


@given(objects())
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_server_and_operator_agree(server: Server, body: dict[str, Any]) -> None:
    """What the API server lets in the operator can serve, and what the operator would refuse never gets in."""
    try:
        to_domain(body)
        wrong = None
    except SpecError as error:
        wrong = str(error)
    try:
        server.create(body)
        refused = None
    except ApiException as error:
        refused = json.loads(error.body or "")["message"]
    assert (wrong is None) == (refused is None), f"operator: {wrong}\nserver: {refused}"
