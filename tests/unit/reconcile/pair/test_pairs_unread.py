"""Pairs whose sources do not answer, or refuse: who is served unread, who waits, and who is asked again."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.paired import (
    COMMITS,
    PAIRED,
    VERIFIER,
    Paired,
    advance,
    serving,
    state,
    told,
)
from tests.unit.reconcile.worlds import settled

from speculative_operator.api.status import Status
from speculative_operator.domain.actions import Condition, Truth
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.jobs import Purpose
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.spec import (
    ModelSource,
    Scheme,
    Weights,
)
from speculative_operator.reconcile.pair.jobs import OVERDUE_SECONDS
from speculative_operator.reconcile.pair.pairing import BLOCKED_SECONDS, UNREAD_SECONDS


def test_a_pair_that_cannot_be_read_is_served_unread() -> None:
    cluster = Paired()
    cluster.tick()
    cluster.fails(Purpose.INSPECT, "SourceUnreachable", "huggingface.co does not answer")
    outcome = cluster.tick()
    assert cluster.serves()
    assert "--revision" not in cluster.engine_args
    assert ("Warning", "PairUnread") in told(outcome)
    assert state(cluster, "PairCompatible") == ("Unknown", "PairUnread")
    assert "huggingface.co does not answer" in cluster.condition("PairCompatible")["message"]
    cluster.roll()
    cluster.settle()
    assert state(cluster, "Ready") == ("True", "AllReady")
    Status.model_validate(cluster.status)


def test_what_was_served_unread_is_pinned_with_the_next_rollout() -> None:
    cluster = Paired()
    cluster.tick()
    cluster.fails(Purpose.INSPECT, "SourceUnreachable")
    cluster.settle()
    cluster.now += UNREAD_SECONDS
    advance(cluster)
    assert state(cluster, "PairCompatible") == ("True", "PairMatches")
    assert cluster.templates == 1, "to pin it is no reason to restart pods"
    assert "--revision" not in cluster.engine_args
    table = cluster.table
    cluster.edit(engine=replace(PAIRED.engine, args=("--enforce-eager",)))
    advance(cluster)
    assert cluster.templates == 2
    assert COMMITS[VERIFIER] in cluster.engine_args
    assert cluster.table == table, "it is the same pair: what was learned of it holds"


def test_pods_of_an_operator_that_did_not_look_are_not_restarted_to_pin_them() -> None:
    before = settled(spec=PAIRED)
    cluster = Paired(status=before.status, children=before.children, pods=before.pods, uids=before.uids, templates=1)
    outcome = cluster.tick()
    assert cluster.condition("Ready")["status"] == "True"
    assert told(outcome) == [("Normal", "Inspecting")]
    advance(cluster)
    assert cluster.templates == 1
    assert state(cluster, "PairCompatible") == ("True", "PairMatches")
    assert cluster.look().actions == ()


@pytest.mark.parametrize("reason", ["SourceUnauthorized", "SourceNotFound"])
def test_what_the_engine_could_not_load_either_gets_no_pod(reason: str) -> None:
    cluster = Paired()
    cluster.tick()
    cluster.fails(Purpose.INSPECT, reason, "the hub says 401", remedy="name a Secret with HF_TOKEN", side="verifier")
    outcome = cluster.tick()
    assert not cluster.serves()
    assert told(outcome) == [("Warning", reason)]
    assert state(cluster, "PairCompatible") == ("Unknown", reason)
    condition = cluster.condition("Ready")
    assert (condition["status"], condition["reason"]) == ("False", reason)
    assert condition["message"] == "verifier: the hub says 401; name a Secret with HF_TOKEN"
    assert cluster.tick().events == ()
    assert cluster.made == [Purpose.INSPECT]


@pytest.mark.parametrize(
    "change",
    [
        {"engine": replace(PAIRED.engine, env=({"name": "HF_HUB_OFFLINE", "value": "1"},))},
        {"template": {"spec": {"containers": [{"name": "engine", "envFrom": [{"secretRef": {"name": "hf"}}]}]}}},
        {"verifier": replace(PAIRED.verifier, source=ModelSource(Scheme.OCI, "quay.io/models/qwen:v1"))},
    ],
)
def test_an_engine_with_another_way_to_its_weights_is_not_held_up_by_a_refusal(change: dict[str, Any]) -> None:
    cluster = Paired(spec=replace(PAIRED, **change))
    cluster.tick()
    cluster.fails(Purpose.INSPECT, "SourceUnauthorized", "401")
    cluster.tick()
    assert cluster.serves()
    assert state(cluster, "PairCompatible") == ("Unknown", "PairUnread")


def test_jobs_reach_the_hub_as_the_engine_does() -> None:
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "token"}}}
    others = {"name": "NCCL_DEBUG", "value": "INFO"}
    cluster = Paired(spec=replace(PAIRED, engine=replace(PAIRED.engine, env=(token, others))))
    cluster.tick()
    (container,) = cluster.children["Job", "demo-inspect"]["spec"]["template"]["spec"]["containers"]
    assert token in container["env"]
    assert others not in container["env"]


def test_a_job_that_is_suspended_for_ever_holds_up_nobody() -> None:
    cluster = Paired()
    cluster.tick()
    cluster.children["Job", "demo-inspect"]["metadata"]["creationTimestamp"] = timestamp(cluster.now)
    cluster.now += OVERDUE_SECONDS
    cluster.tick()
    assert cluster.serves()
    assert "has not ended for 10 minutes" in cluster.condition("PairCompatible")["message"]
    cluster.read()
    advance(cluster)
    assert state(cluster, "PairCompatible") == ("True", "PairMatches"), "late is better than never"
    assert cluster.made == [Purpose.INSPECT]


def test_a_refused_spec_leaves_what_was_found_standing() -> None:
    cluster = serving()
    before = cluster.status
    cluster.edit(engine=replace(PAIRED.engine, version="0.1.0"))
    assert cluster.tick().actions == ()
    assert state(cluster, "Ready")[0] == "False"
    assert state(cluster, "PairCompatible") == ("True", "PairMatches")
    assert cluster.status["pair"] == before["pair"]


def test_a_refusal_is_asked_about_again_without_noise() -> None:
    cluster = Paired()
    cluster.tick()
    cluster.fails(Purpose.INSPECT, "SourceUnauthorized", "the hub says 401")
    cluster.tick()
    status = cluster.status
    cluster.now += BLOCKED_SECONDS
    for _ in range(3):
        assert cluster.tick().events == ()
    assert cluster.made == [Purpose.INSPECT] * 2
    assert cluster.status["conditions"] == status["conditions"]
    cluster.fails(Purpose.INSPECT, "SourceUnauthorized", "the hub says 401")
    assert cluster.tick().events == ()
    cluster.now += BLOCKED_SECONDS
    advance(cluster)
    assert state(cluster, "Ready") == ("True", "AllReady"), "the Secret was put right"


def test_another_secret_is_tried_at_once() -> None:
    cluster = Paired()
    cluster.tick()
    cluster.fails(Purpose.INSPECT, "SourceUnauthorized")
    cluster.tick()
    cluster.edit(weights=Weights(secret_name="hf-token"))
    advance(cluster)
    assert cluster.made == [Purpose.INSPECT] * 2
    assert state(cluster, "Ready") == ("True", "AllReady")


def test_a_job_that_may_not_be_made_holds_up_nobody() -> None:
    cluster = Paired()
    problem = Condition(ConditionType.READY, Truth.FALSE, Reason.FORBIDDEN, "exceeded quota", ("Job", "demo-inspect"))
    cluster.problems = (problem,)
    cluster.tick()
    assert cluster.serves()
    assert state(cluster, "PairCompatible") == ("Unknown", "PairUnread")
    assert state(cluster, "Ready") == ("False", "NoPods")


def test_a_job_of_somebody_else_is_left_alone() -> None:
    cluster = Paired()
    theirs: dict[str, Any] = {"metadata": {"name": "demo-inspect", "uid": "theirs"}}
    cluster.children["Job", "demo-inspect"] = {"kind": "Job", **theirs}
    cluster.tick()
    assert cluster.children["Job", "demo-inspect"]["metadata"] == theirs["metadata"]
    assert cluster.serves()
    condition = cluster.condition("PairCompatible")
    assert condition["reason"] == "PairUnread"
    assert "exists and does not belong to this object" in condition["message"]
