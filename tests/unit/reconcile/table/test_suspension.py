"""Drafts suspended for a while: the pods' file, what the tuner and a restart make of it, how it ends; and the condition
OutputsVerified."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.worlds import KEPT, NOW, SPEC, Cluster, observed, reasons, retuned, settled

from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode, OffPolicy
from speculative_operator.outputs.record import Record, Verdict
from speculative_operator.reconcile.tick import invalid
from speculative_operator.tuner.persistence import to_status

ZERO = [[1, 256, 0]]


def suspend(cluster: Cluster, seconds: float = 300.0) -> str:
    until = timestamp(cluster.now + seconds)
    cluster.annotate(suspend=until)
    return until


def warned(cluster: Cluster) -> dict[str, str]:
    return {one["reason"]: one["message"] for one in cluster.status.get("warnings", ())}


def test_drafts_are_suspended_and_come_back_by_itself() -> None:
    cluster = retuned()
    cluster.settle()
    before, told = cluster.table, cluster.status["speculation"]
    until = suspend(cluster)
    outcome = cluster.tick(observed(cluster))
    assert (cluster.table["version"], cluster.table["rows"]) == (0, ZERO)
    assert cluster.table["until"] - NOW > 300.0
    assert "try" not in cluster.table
    assert Reason.DRAFTS_SUSPENDED in reasons(outcome)
    assert until in warned(cluster)["DraftsSuspended"]
    assert outcome.stands_for <= 300.0
    cluster.tick(observed(cluster))  # the ConfigMap is there: now pods are told
    assert {pod["metadata"]["annotations"]["serving.speculative.dev/table-version"] for pod in cluster.pods} == {"0"}
    for name in ("table", "tableVersion"):
        assert cluster.status["speculation"][name] == told[name]
    assert [cluster.status["speculation"][name] for name in ("state", "k")] == ["Off", "0"]
    cluster.now += 300.0
    cluster.tick()
    assert cluster.table["rows"] == before["rows"]
    assert cluster.table["version"] == before["version"] + 1, "pods get their time to follow"
    assert cluster.condition("SpeculationActive")["reason"] != "TableNotInForce"
    assert warned(cluster) == {}
    assert cluster.templates == 1


def test_the_tuner_learns_and_decides_nothing_meanwhile() -> None:
    cluster = settled()
    cluster.tick(observed(cluster))
    memory, before = cluster.memory, cluster.condition("SpeculationActive")
    suspend(cluster, 800.0)
    for _ in range(60):
        outcome = cluster.tick(observed(cluster, batch=200, survival=0.01, k=0))
    assert memory is not None
    assert outcome.memory is not None
    assert to_status(outcome.memory) == to_status(memory)
    assert cluster.condition("SpeculationActive") == before


@pytest.mark.parametrize("wiped", [False, True])
def test_an_operator_that_starts_meanwhile_takes_the_table_of_zero_for_none_of_its_own(wiped: bool) -> None:
    cluster = settled(spec=KEPT)
    rows = cluster.table["rows"]
    suspend(cluster)
    cluster.tick()
    cluster.forget()
    if wiped:
        cluster.status, cluster.notes = {}, None
    cluster.tick()
    assert cluster.table["rows"] == ZERO
    cluster.annotate(suspend="")
    cluster.settle()
    assert cluster.table["rows"] == rows


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"suspend": timestamp(NOW + 3600.0)}, "15 minutes"),
        ({"suspend": "9999-12-31T23:59:59Z"}, "15 minutes"),
        ({"suspend": "soon"}, "must be a time"),
        ({"suspend": "\x00" * 5000}, "must be a time"),
        ({"speculation": replace(SPEC.speculation, off_policy=OffPolicy.NEVER)}, "offPolicy"),
        ({"speculation": replace(SPEC.speculation, mode=Mode.DISABLED)}, "without a speculator"),
    ],
)
def test_a_suspension_that_cannot_be_is_told_and_changes_nothing(change: dict[str, Any], why: str) -> None:
    cluster = settled(spec=replace(SPEC, **{key: one for key, one in change.items() if key != "suspend"}))
    before = dict(cluster.children)
    cluster.annotate(suspend=change.get("suspend", timestamp(cluster.now + 300.0)))
    assert cluster.tick().actions == ()
    assert cluster.children == before
    assert why in warned(cluster)["SuspensionIgnored"]


def test_a_suspension_that_is_over_and_one_of_a_paused_object_are_nothing() -> None:
    cluster = settled()
    cluster.annotate(suspend=timestamp(cluster.now - 1.0))
    assert cluster.tick().actions == ()
    cluster.annotate(suspend=timestamp(cluster.now + 60.0), paused=True)
    assert cluster.tick().actions == ()
    assert warned(cluster) == {}


# -- the condition


def verified(cluster: Cluster, verdict: Verdict = Verdict.SAME, **change: Any) -> dict[str, Any] | None:
    """The condition after a tick."""
    template = cluster.pods[0]["metadata"]["labels"]["pod-template-hash"]
    record = Record(verdict, template, "2026-11-28T08:00:00Z", 24, 3072, 2, int(verdict is Verdict.DIFFERENT))
    cluster.annotate(verified=replace(record, **change).to_text())
    cluster.tick()
    return told(cluster)


def told(cluster: Cluster) -> dict[str, Any] | None:
    found = [one for one in cluster.status["conditions"] if one["type"] == "OutputsVerified"]
    return found[0] if found else None


@pytest.mark.parametrize(
    ("verdict", "status", "reason"),
    [
        (Verdict.SAME, "True", "OutputsSame"),
        (Verdict.TIES, "True", "OutputsSameButTies"),
        (Verdict.DIFFERENT, "False", "OutputsDiffer"),
    ],
)
def test_what_was_found_is_told(verdict: Verdict, status: str, reason: str) -> None:
    cluster = settled()
    assert told(cluster) is None
    found = verified(cluster, verdict)
    assert found is not None
    assert (found["status"], found["reason"]) == (status, reason)
    assert "24 prompts, 3072 tokens" in found["message"]
    cluster.annotate(verified="")
    cluster.tick()
    assert told(cluster) is None


def test_it_is_told_of_such_pods_alone() -> None:
    cluster = settled()
    verified(cluster)
    cluster.edit(engine=replace(SPEC.engine, args=("--seed=1",)))
    cluster.settle()
    assert cluster.templates == 2
    found = told(cluster)
    assert found is not None
    assert (found["status"], found["reason"]) == ("Unknown", "OutputsOutdated")


@pytest.mark.parametrize("text", ["yes", "{}", "[" * 100_000])
def test_what_cannot_be_read_changes_that_condition_alone(text: str) -> None:
    cluster = settled()
    before = cluster.status["conditions"]
    cluster.annotate(verified=text)
    assert cluster.tick().actions == ()
    found = told(cluster)
    assert found is not None
    assert (found["status"], found["reason"]) == ("Unknown", "OutputsUnreadable")
    assert [one for one in cluster.status["conditions"] if one["type"] != "OutputsVerified"] == before


def test_an_object_that_is_refused_gets_the_condition_only_where_it_had_it() -> None:
    cluster = settled()
    for expected in (False, True):
        body = {"metadata": {"name": "demo", "generation": 2}, "spec": {}, "status": cluster.status}
        types = {one["type"] for one in invalid(body, "wrong", NOW).status["conditions"]}
        assert ("OutputsVerified" in types) is expected
        verified(cluster)
