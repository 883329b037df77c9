"""Pods without a drafter: what a tick makes of a tuner that asks for it. The tuner is a script."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.scripted import REMOVABLE, Tuner, active_table, drafts, removed, without_series
from tests.unit.reconcile.worlds import (
    OFF,
    SPEC,
    Cluster,
    observed,
    plain,
    remade,
    settled,
    template,
)

from speculative_operator.api.status import Status
from speculative_operator.domain.actions import DeleteChild
from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import (
    Mode,
    OffPolicy,
    Speculation,
)
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile.children.desired import NEW_FIRST
from speculative_operator.reconcile.snapshot.writing import should_write


def test_pods_roll_to_what_mode_off_makes_of_them(tuner: Tuner) -> None:
    cluster = settled(spec=REMOVABLE)
    table = active_table(cluster)
    tuner.remove(table)
    outcome = cluster.tick(observed(cluster))
    assert remade(outcome) == [("Deployment", "demo", Reason.DEAD_WEIGHT)]
    assert cluster.templates == 2
    off = settled(spec=OFF).children["Deployment", "demo"]
    deployment = cluster.children["Deployment", "demo"]
    assert template(deployment) == template(off)
    assert deployment["spec"]["strategy"] == NEW_FIRST, "no pod goes before another serves"
    assert not drafts(cluster)


def test_it_is_told_with_reason_and_figures(tuner: Tuner) -> None:
    cluster = settled(spec=REMOVABLE)
    table = active_table(cluster)
    tuner.remove(table)
    outcome = cluster.tick(observed(cluster))
    block, (entry,) = cluster.status["speculation"], cluster.status["decisions"]
    assert (block["state"], block["speculatorRemoved"], block["k"], block["tableText"]) == (
        "Removed",
        True,
        "0",
        "none",
    )
    assert KTable.from_rows(block["table"]) == table, "the table waits"
    assert block["tableVersion"] == entry["tableVersion"] == 2
    assert block["removalGain"] == "~+9.0%"
    assert block["removalGainRange"] == "+6% to +12%"
    assert block["removalGainPercent"] == {"low": 6, "mid": 9, "high": 12}
    assert (entry["from"], entry["to"], entry["reason"]) == (str(table), "none", "DrafterDeadWeight")
    assert (block["acceptanceLength"], block["concurrency"]) == ("1.02", "41.0")
    active = cluster.condition("SpeculationActive")
    assert (active["status"], active["reason"]) == ("False", "DrafterDeadWeight")
    assert active["message"] == "the drafter loses at 12 to 60 requests"
    (event,) = [one for one in outcome.events if one.reason is Reason.DEAD_WEIGHT]
    assert event.message == f"table 2: {table} -> none: the drafter loses at 12 to 60 requests"
    assert outcome.memory is not None
    assert outcome.memory.removed
    Status.model_validate(cluster.status)


def test_ready_waits_for_the_pods_and_their_config_goes_last(tuner: Tuner) -> None:
    cluster = settled(spec=REMOVABLE)
    tuner.remove(active_table(cluster))
    cluster.tick(observed(cluster))
    assert cluster.condition("Ready")["reason"] == "RollingOut"
    cluster.children["Deployment", "demo"]["status"]["updatedReplicas"] = 0
    assert cluster.look().actions == (), "old pods still mount the table"
    cluster.roll()
    outcome = cluster.tick()
    assert {plain(one.name) for one in outcome.actions if isinstance(one, DeleteChild)} == {"demo-table"}
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.look().actions == ()


def test_at_rest_it_stays_as_it_is_and_quiet(tuner: Tuner) -> None:
    cluster = removed(tuner)
    cluster.tick(without_series(cluster))
    before = deepcopy(cluster.status)
    for _ in range(5):
        outcome = cluster.tick(without_series(cluster))
        assert (outcome.actions, outcome.events) == ((), ())
        Status.model_validate(cluster.status)
    assert cluster.condition("MetricsAvailable")["status"] == "True", "no series of drafts is as it should be"
    assert cluster.condition("SpeculationActive") == next(
        one for one in before["conditions"] if one["type"] == "SpeculationActive"
    )
    assert cluster.condition("TuningConverged")["reason"] == "DrafterDeadWeight"
    assert (cluster.status["speculation"]["state"], cluster.status["speculation"]["k"]) == ("Removed", "0")
    assert not should_write(before, cluster.status, 0.0, cluster.now)
    assert cluster.templates == 2


@pytest.mark.parametrize(
    "speculation",
    [
        Speculation(off_policy=OffPolicy.KEEP_RUNNING),
        Speculation(off_policy=OffPolicy.NEVER),
        Speculation(mode=Mode.RECOMMEND, off_policy=OffPolicy.REMOVE),
        Speculation(mode=Mode.STATIC, num_speculative_tokens=3, off_policy=OffPolicy.REMOVE),
    ],
)
def test_only_auto_with_hard_allows_it(tuner: Tuner, speculation: Speculation) -> None:
    cluster = settled(spec=replace(SPEC, speculation=speculation))
    tuner.remove(active_table(cluster))
    outcome = cluster.tick(observed(cluster))
    assert outcome.actions == ()
    assert "speculatorRemoved" not in cluster.status["speculation"]
    assert cluster.status["speculation"]["state"] != "Removed"
    assert outcome.memory is not None
    assert not outcome.memory.removed


@pytest.mark.parametrize(
    "look",
    [
        lambda cluster: None,
        lambda cluster: Observation(cluster.now, gap=Gap(Reason.PROMETHEUS_ERROR, "refused")),
        lambda cluster: Observation(cluster.now, {"demo-t1-0": Gap(Reason.METRICS_STALE, "old")}),
    ],
)
def test_never_without_a_look_at_the_pods(tuner: Tuner, look: Callable[[Cluster], Observation | None]) -> None:
    cluster = settled(spec=REMOVABLE)
    tuner.remove(active_table(cluster))
    assert cluster.tick(look(cluster)).actions == ()
    assert drafts(cluster)


@pytest.mark.parametrize("change", [{"valid": False}, {"changed": False}])
def test_never_on_a_decision_that_is_none(tuner: Tuner, change: dict[str, Any]) -> None:
    cluster = settled(spec=REMOVABLE)
    tuner.remove(active_table(cluster), **change)
    assert cluster.tick(observed(cluster)).actions == ()
    assert "speculatorRemoved" not in cluster.status["speculation"]


def test_never_into_another_rollout(tuner: Tuner) -> None:
    cluster = settled(spec=REMOVABLE)
    cluster.children["Deployment", "demo"]["status"]["updatedReplicas"] = 1
    tuner.remove(active_table(cluster))
    before = cluster.memory
    outcome = cluster.tick(observed(cluster))
    assert tuner.asked == 1
    assert outcome.actions == ()
    assert outcome.memory is not None
    assert before is not None
    assert (outcome.memory.removed, outcome.memory.changed_at) == (False, before.changed_at)
    tuner.remove(active_table(cluster))
    cluster.roll()
    assert remade(cluster.tick(observed(cluster))) == [("Deployment", "demo", Reason.DEAD_WEIGHT)]


def test_paused_while_removed_it_stays_so(tuner: Tuner) -> None:
    cluster = removed(tuner)
    block = deepcopy(cluster.status["speculation"])
    cluster.edit(paused=True, speculation=Speculation())
    tuner.bring_back(active_table(cluster))
    for _ in range(3):
        assert cluster.tick(without_series(cluster)).actions == ()
    assert cluster.status["speculation"] == block
    assert cluster.memory is not None
    assert cluster.memory.removed
    cluster.spec = replace(cluster.spec, paused=False)
    cluster.settle()
    assert drafts(cluster), "what the spec asked for meanwhile"


def test_the_tuner_is_not_asked_about_pods_of_two_kinds(tuner: Tuner) -> None:
    cluster = settled(spec=REMOVABLE)
    tuner.remove(active_table(cluster))
    cluster.tick(observed(cluster))
    asked = tuner.asked
    cluster.tick(observed(cluster))
    assert tuner.asked == asked + 1, "every ready pod still has its drafter, and is asked about as such"
    asked = tuner.asked
    old = cluster.pods[0]
    cluster.roll()
    cluster.pods[0] = old
    cluster.tick(observed(cluster))
    assert tuner.asked == asked + 1, "each kind by its own windows"
    cluster.roll()
    cluster.tick(without_series(cluster))
    assert tuner.asked == asked + 2
