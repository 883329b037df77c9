"""Whole ticks against a cluster in a dictionary: what happens when ..."""

import re
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.worlds import (
    OFF,
    SPEC,
    STATIC,
    Cluster,
    applies,
    observed,
    reasons,
    restart,
    retuned,
    settled,
)

from speculative_operator.api.status import Status
from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild, PokePod
from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import NOT_ALWAYS, ConditionType, Reason
from speculative_operator.domain.spec import (
    Mode,
    Speculation,
)
from speculative_operator.reconcile.snapshot.writing import should_write
from speculative_operator.reconcile.tick import tick

# -- coming into being


def test_a_new_object_gets_every_child_at_once() -> None:
    outcome = Cluster().look()
    assert applies(outcome) == [
        ("ConfigMap", "speculative-payload", Reason.CREATED),
        ("ConfigMap", "demo-table", Reason.CREATED),
        ("Deployment", "demo", Reason.CREATED),
        ("Service", "demo", Reason.CREATED),
        ("NetworkPolicy", "demo", Reason.CREATED),
        ("PodDisruptionBudget", "demo", Reason.CREATED),
    ]
    assert reasons(outcome) == [Reason.CREATED]
    conditions = {one["type"]: one for one in outcome.status["conditions"]}
    assert set(conditions) == {*ConditionType} - NOT_ALWAYS
    assert (conditions["Ready"]["status"], conditions["Ready"]["reason"]) == ("False", "NoPods")


def test_pods_coming_up_make_it_ready() -> None:
    cluster = Cluster()
    cluster.tick()
    assert cluster.condition("Ready")["status"] == "False"
    assert cluster.status["ready"] == "0/2"
    cluster.roll()
    outcome = cluster.tick()
    assert cluster.condition("Ready")["reason"] == "AllReady"
    assert cluster.condition("Available")["status"] == "True"
    assert (cluster.status["ready"], cluster.status["readyReplicas"]) == ("2/2", 2)
    assert Reason.ALL_READY in reasons(outcome)


@pytest.mark.parametrize("spec", [SPEC, STATIC, OFF, restart(), replace(SPEC, speculator=None)])
def test_nothing_new_means_no_action_no_event_and_the_same_status(spec: Any) -> None:
    cluster = settled(spec=spec)
    cluster.tick()
    outcome = cluster.look()
    assert outcome.actions == ()
    assert outcome.events == ()
    assert outcome.status == cluster.status
    assert not should_write(cluster.status, outcome.status, 0.0, cluster.now + 1e6)


@pytest.mark.parametrize("spec", [SPEC, STATIC, OFF, restart(), replace(SPEC, speculator=None)])
def test_status_is_of_the_published_form(spec: Any) -> None:
    cluster = settled(spec=spec)
    Status.model_validate(cluster.status)
    for _ in range(3):
        cluster.tick(observed(cluster))
        Status.model_validate(cluster.status)


# -- deciding


def test_a_decision_reaches_the_pods_without_a_restart() -> None:
    cluster = retuned()
    assert cluster.templates == 1
    assert cluster.table["version"] == cluster.status["speculation"]["tableVersion"] == 2
    assert cluster.table["rows"] == cluster.status["speculation"]["table"]
    outcome = cluster.tick()
    assert outcome.actions == (PokePod("demo-t1-0", 2), PokePod("demo-t1-1", 2))
    assert cluster.look().actions == ()
    assert cluster.templates == 1


def test_a_decision_is_recorded_and_told_once() -> None:
    cluster = settled()
    events: list[Any] = []
    while len(cluster.status["decisions"]) == 0:
        events = list(cluster.tick(observed(cluster, batch=200, survival=0.2)).events)
    (decision,) = cluster.status["decisions"]
    assert decision["tableVersion"] == cluster.table["version"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", decision["time"])
    assert decision["to"] == cluster.status["speculation"]["tableText"]
    assert [event.reason.value for event in events] == [decision["reason"]]
    assert decision["to"] in events[0].message
    Status.model_validate(cluster.status)


def test_pods_are_poked_only_once_the_cluster_holds_the_table() -> None:
    cluster = settled()
    while True:
        outcome = cluster.look(observed(cluster, batch=200, survival=0.2))
        if outcome.actions:
            break
        cluster.tick(observed(cluster, batch=200, survival=0.2))
    assert [type(action) for action in outcome.actions] == [ApplyChild]


def test_pods_that_are_not_running_are_not_poked() -> None:
    cluster = retuned()
    cluster.pods[0]["status"]["phase"] = "Pending"
    assert cluster.look().actions == (PokePod("demo-t1-1", 2),)


def test_recommend_proposes_and_changes_nothing() -> None:
    cluster = settled(spec=replace(SPEC, speculation=Speculation(mode=Mode.RECOMMEND)))
    rows = cluster.table
    outcomes = [cluster.tick(observed(cluster, batch=200, survival=0.2)) for _ in range(40)]
    assert all(outcome.actions == () for outcome in outcomes)
    assert cluster.table == rows
    assert cluster.status["speculation"]["proposedTable"] != cluster.status["speculation"]["table"]
    recommended = [one for one in cluster.status["decisions"] if one["reason"] == "Recommended"]
    assert recommended
    assert len({one["to"] for one in recommended}) == len(recommended), "a standing proposal is told once"
    Status.model_validate(cluster.status)


def test_static_obeys_the_spec_whatever_is_seen() -> None:
    cluster = settled(spec=STATIC)
    for _ in range(20):
        outcome = cluster.tick(observed(cluster, batch=250, k=3, survival=0.1))
        assert outcome.actions == ()
    assert cluster.status["speculation"]["table"] == [[1, 256, 3]]
    assert cluster.condition("SpeculationActive")["reason"] == "Fixed"
    assert cluster.status["speculation"]["acceptanceRate"].endswith("%")


def test_off_shows_what_is_measured() -> None:
    cluster = settled(spec=OFF)
    cluster.tick(observed(cluster, k=0))
    block = cluster.status["speculation"]
    assert block["state"] == "Removed"
    assert block["concurrency"] == "8.0"
    assert block["tpot"] == "8.8ms"
    assert "table" not in block
    assert "memory" not in cluster.status


def test_tokens_have_their_price() -> None:
    cluster = settled(spec=OFF)
    cluster.tick(observed(cluster, k=0))
    # Two pods, each on one H100 at 5.00 an hour, with 8 requests at 8.8 ms a token: 1,827 tokens/s with first tokens.
    assert cluster.status["speculation"]["tokensPerSecond"] == "1827"
    assert cluster.status["speculation"]["costPer1kTokens"] == "0.00152"


# -- metrics that are missing


@pytest.mark.parametrize("reason", [Reason.PROMETHEUS_ERROR, Reason.PROMETHEUS_TIMEOUT, Reason.METRICS_MISSING])
def test_without_metrics_nothing_changes_and_it_is_said(reason: Reason) -> None:
    cluster = settled()
    for _ in range(3):
        cluster.tick(observed(cluster))
    cluster.tick()
    table, decisions = cluster.table, cluster.status["decisions"]
    outcome = cluster.tick(Observation(cluster.now, gap=Gap(reason, "connection refused")))
    assert outcome.actions == ()
    assert (cluster.table, cluster.status["decisions"]) == (table, decisions)
    condition = cluster.condition("MetricsAvailable")
    assert (condition["status"], condition["reason"]) == ("False", reason.value)
    assert "connection refused" in condition["message"]
    assert "tpot" not in cluster.status["speculation"], "an old figure is not shown as if it were one of now"
    assert reason in reasons(outcome)
    again = cluster.tick(Observation(cluster.now, gap=Gap(reason, "connection refused")))
    assert again.events == ()
    assert cluster.condition("Ready")["status"] == "True"
    back = cluster.tick(observed(cluster))
    assert cluster.condition("MetricsAvailable")["reason"] == "MetricsFound"
    assert reasons(back) == [Reason.METRICS_FOUND]


def test_one_blind_pod_is_named() -> None:
    cluster = settled()
    seen = observed(cluster)
    blind = Observation(cluster.now, {**seen.pods, "demo-t1-1": Gap(Reason.METRICS_STALE, "newest sample is 60 s old")})
    cluster.tick(blind)
    assert cluster.condition("MetricsAvailable")["reason"] == "MetricsStale"
    assert "1 of 2 pods, first demo-t1-1" in cluster.condition("MetricsAvailable")["message"]


# -- repair


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("child", [("Deployment", "demo"), ("Service", "demo"), ("ConfigMap", "demo-table")])
def test_a_deleted_child_comes_back_as_it_was(child: tuple[str, str], known: bool) -> None:
    cluster, made = settled(), child
    child = cluster.config("table") if child[0] == "ConfigMap" else child
    before = cluster.children.pop(child)
    world = cluster.world(applied=cluster.applied if known else {})
    outcome = tick(world, cluster.memory, None, cluster.now)
    assert applies(outcome) == [(*made, Reason.REPAIRED)]
    assert Reason.REPAIRED in reasons(outcome)
    cluster.carry_out(outcome.actions[0])
    again = cluster.children[child]
    assert again["metadata"]["annotations"] == before["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("child", "way", "value", "named"),
    [
        (("Deployment", "demo"), ("spec", "replicas"), 7, "spec.replicas"),
        (("Service", "demo"), ("spec", "selector"), {"a": "b"}, "spec.selector"),
        (("ConfigMap", "demo-table"), ("data", "table.json"), '{"version":1,"rows":[[1,256,0]]}', "data.table.json"),
        (("NetworkPolicy", "demo"), ("spec", "ingress"), [], "spec.ingress"),
        (("Deployment", "demo"), ("metadata", "labels"), {names.LABEL_DEPLOYMENT: "demo"}, "metadata.labels"),
    ],
)
def test_a_hand_edit_is_undone_and_named(child: tuple[str, str], way: tuple[str, str], value: Any, named: str) -> None:
    cluster = settled()
    slot = cluster.config("table") if child[0] == "ConfigMap" else child
    cluster.children[slot][way[0]][way[1]] = value
    outcome = cluster.tick()
    assert applies(outcome) == [(*child, Reason.REPAIRED)]
    (action,) = outcome.actions
    assert isinstance(action, ApplyChild)
    assert named in action.why
    assert any(named in event.message for event in outcome.events)
    assert cluster.look().actions == ()


def test_server_normalisation_is_no_reason_to_apply_again() -> None:
    cluster = settled(spec=replace(SPEC, template={"spec": {"terminationGracePeriodSeconds": 300}}))
    cluster.children["Deployment", "demo"]["spec"]["template"]["spec"]["containers"][0]["image"] = "docker.io/vllm"
    cluster.applied["Deployment", "demo"] = deepcopy(cluster.children["Deployment", "demo"])
    assert tick(cluster.world(applied=cluster.applied), cluster.memory, None, cluster.now).actions == ()


def test_a_child_on_its_way_out_is_waited_for() -> None:
    cluster = settled()
    cluster.children["Service", "demo"]["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    assert cluster.look().actions == ()
