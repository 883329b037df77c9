"""The operator on a real API server with controllers: what becomes of an object, of its children, and of hand edits."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.operatorlab import OperatorLab, Process, spec, until

from devcluster import Cluster
from speculative_operator.api.convert import to_domain
from speculative_operator.domain import names
from speculative_operator.render.podspec import table_name

pytestmark = pytest.mark.cluster

SPEC = to_domain(
    {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": "gemma", "namespace": "models", "uid": "u", "generation": 1},
        "spec": spec(),
    }
)
TABLE = table_name(SPEC)
EXPECTED = {
    ("Deployment", "gemma"),
    ("Service", "gemma"),
    ("ConfigMap", TABLE),
    ("NetworkPolicy", "gemma"),
    ("PodDisruptionBudget", "gemma"),
}

NEW_KIND = 90.0
"""seconds: the garbage collector looks for new kinds every half minute, and ours was installed just now."""


@pytest.fixture(scope="module")
def installed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> OperatorLab:
    lab = OperatorLab(cluster, tmp_path_factory.mktemp("operator"))
    lab.install()
    return lab


@pytest.fixture(scope="module")
def operator(installed: OperatorLab) -> Iterator[Process]:
    with installed.operator() as running:
        yield running
    noise = running.errors()
    assert not noise


@pytest.fixture
def lab(installed: OperatorLab, operator: Process) -> OperatorLab:
    installed.enter()
    return installed


def served(lab: OperatorLab) -> dict[tuple[str, str], dict[str, Any]]:
    """The children, once all are there."""

    def found() -> dict[tuple[str, str], dict[str, Any]]:
        children = lab.children()
        return children if children.keys() >= EXPECTED else {}

    return dict(until("every child exists", found))


def test_apply_makes_every_child_and_a_status(lab: OperatorLab) -> None:
    lab.deploy()
    children = served(lab)
    assert children.keys() == EXPECTED
    owner = lab.get(names.PLURAL) or {}
    for child in children.values():
        reference = child["metadata"]["ownerReferences"][0]
        assert (reference["uid"], reference["controller"]) == (owner["metadata"]["uid"], True)
        managers = {entry["manager"] for entry in child["metadata"]["managedFields"] if entry["operation"] == "Apply"}
        assert managers == {names.FIELD_MANAGER}
    until("a status", lambda: lab.condition("Ready").get("reason") == "PodsNotReady")
    status = (lab.get(names.PLURAL) or {})["status"]
    assert status["observedGeneration"] == 1
    assert len({entry["type"] for entry in status["conditions"]}) == 10


@pytest.mark.parametrize("child", sorted(EXPECTED))
def test_a_deleted_child_comes_back(lab: OperatorLab, child: tuple[str, str]) -> None:
    lab.deploy()
    old = served(lab)[child]["metadata"]["uid"]
    lab.delete(child[0], child[1], "--wait=false")

    def anew() -> bool:
        found = lab.children().get(child)
        return found is not None and found["metadata"]["uid"] != old

    until(f"{child} is back", anew)


def test_hand_edits_of_what_is_managed_are_undone(lab: OperatorLab) -> None:
    lab.deploy()
    before = served(lab)
    lab.patch("deployment", "gemma", {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7777}}}})
    lab.patch("configmap", TABLE, {"data": {names.TABLE_KEY: "{}", "more": "x"}})
    lab.patch("service", "gemma", {"spec": {"selector": {"app": "mine"}}})
    lab.patch("networkpolicy", "gemma", {"spec": {"policyTypes": ["Egress"]}})
    lab.patch("service", "gemma", {"metadata": {"labels": {names.LABEL_MANAGED_BY: "me"}}})
    wanted = {
        ("Deployment", "gemma"): ("spec", "template", "spec", "terminationGracePeriodSeconds"),
        ("ConfigMap", TABLE): ("data", names.TABLE_KEY),
        ("Service", "gemma"): ("spec", "selector"),
        ("NetworkPolicy", "gemma"): ("spec", "policyTypes"),
    }

    def value(children: dict[tuple[str, str], dict[str, Any]], child: tuple[str, str]) -> Any:
        found: Any = children.get(child)
        for part in wanted[child]:
            found = (found or {}).get(part)
        return found

    def as_before() -> bool:
        now = lab.children()
        ours = ("Service", "gemma") in now and now["Service", "gemma"]["metadata"]["labels"][names.LABEL_MANAGED_BY]
        return ours == names.OPERATOR and all(value(now, child) == value(before, child) for child in wanted)

    until("everything is as it was", as_before)


def test_a_child_that_is_no_longer_wanted_goes(lab: OperatorLab) -> None:
    lab.deploy()
    served(lab)
    lab.deploy(replicas=1)
    until("one replica", lambda: lab.children()["Deployment", "gemma"]["spec"]["replicas"] == 1)
    until("no disruption budget", lambda: ("PodDisruptionBudget", "gemma") not in lab.children())


def test_a_new_table_reaches_the_pods_without_a_rollout(lab: OperatorLab) -> None:
    static = {"mode": "Static", "maxSpeculativeTokens": 5}
    lab.deploy(speculation={**static, "schedule": [[1, 8, 5], [9, 64, 0]]})
    pods = lab.make_ready()
    before = served(lab)["Deployment", "gemma"]["metadata"]["generation"]
    until("Ready", lambda: lab.condition("Ready").get("status") == "True")
    lab.deploy(speculation={**static, "schedule": [[1, 16, 5], [17, 64, 0]]})

    def rows() -> Any:
        return json.loads(lab.children()["ConfigMap", TABLE]["data"][names.TABLE_KEY])["rows"]

    until("the table", lambda: rows() == [[1, 16, 5], [17, 64, 0]])
    version = json.loads(lab.children()["ConfigMap", TABLE]["data"][names.TABLE_KEY])["version"]

    def poked() -> bool:
        found = [lab.get("pod", pod) or {} for pod in pods]
        notes = [pod["metadata"].get("annotations", {}).get(names.ANNOTATION_POKE) for pod in found]
        return notes == [str(version)] * len(pods)

    until("every pod is poked", poked)
    assert lab.children()["Deployment", "gemma"]["metadata"]["generation"] == before, "nothing restarts"


def test_deleting_the_object_removes_every_child(lab: OperatorLab) -> None:
    lab.deploy()
    served(lab)
    lab.delete(names.PLURAL)
    until("nothing is left", lambda: not lab.children(), NEW_KIND)
    time.sleep(2.5)
    assert not lab.children(), "and nothing comes back"


def test_an_object_deleted_and_made_anew_gets_children_of_its_own(lab: OperatorLab) -> None:
    lab.deploy()
    served(lab)
    lab.delete(names.PLURAL)
    lab.deploy()
    uid = (lab.get(names.PLURAL) or {})["metadata"]["uid"]

    def own() -> bool:
        children = lab.children()
        owners = {child["metadata"]["ownerReferences"][0]["uid"] for child in children.values()}
        return children.keys() == EXPECTED and owners == {uid}

    until("children of the new object", own, NEW_KIND)
    until("no conflict stays", lambda: lab.condition("Ready").get("reason") == "PodsNotReady")


def test_an_object_of_somebody_else_is_not_touched(lab: OperatorLab) -> None:
    meta = {"name": "gemma", "namespace": lab.namespace}
    theirs = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 443}]}}
    lab.apply(theirs)
    before = lab.get("service")
    lab.deploy()
    until("it is said", lambda: lab.condition("Ready").get("reason") == "NameConflict")
    assert "Service" in lab.condition("Ready")["message"]
    time.sleep(2.5)
    assert lab.get("service") == before


def test_an_object_that_the_api_server_refuses_to_take_for_a_child_says_why(lab: OperatorLab) -> None:
    lab.deploy(template={"spec": {"restartPolicy": "Sometimes"}})
    until("it is said", lambda: lab.condition("Ready").get("reason") == "RenderInvalid")
    assert "restartPolicy" in lab.condition("Ready")["message"]
    lab.deploy()
    served(lab)
    until("and taken back", lambda: lab.condition("Ready").get("reason") == "PodsNotReady")


def test_scaling_by_the_subresource_reaches_the_pods(lab: OperatorLab) -> None:
    lab.deploy()
    served(lab)
    lab.cluster.kubectl("scale", names.PLURAL, "gemma", "-n", lab.namespace, "--replicas=3")
    until("three replicas", lambda: lab.children()["Deployment", "gemma"]["spec"]["replicas"] == 3)
