"""Pods without a drafter over restarts of the operator, kills on the way and wiped statuses. The tuner is a script."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.scripted import REMOVABLE, Tuner, active_table, drafts, removed, without_series
from tests.unit.reconcile.worlds import (
    applies,
    observed,
    restart,
    settled,
    template,
)

from speculative_operator.domain import names
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile.snapshot.writing import should_write


def test_it_survives_a_restart_of_the_operator(tuner: Tuner) -> None:
    cluster = removed(tuner)
    cluster.tick(without_series(cluster))
    before = deepcopy(cluster.status)
    cluster.forget()
    outcome = cluster.tick()
    assert outcome.actions == ()
    assert outcome.memory is not None
    assert outcome.memory.removed
    assert outcome.memory.table == KTable.from_rows(before["speculation"]["table"])
    assert not should_write(before, cluster.status, 0.0, cluster.now)


@pytest.mark.parametrize(
    "spec", [REMOVABLE, replace(restart(), speculation=REMOVABLE.speculation)], ids=["live", "restart"]
)
def test_killed_between_the_rollout_and_status_it_is_not_rolled_back(tuner: Tuner, spec: Any) -> None:
    cluster = settled(spec=spec)
    table = active_table(cluster)
    tuner.remove(table)
    outcome = cluster.look(observed(cluster))
    for action in outcome.actions:
        cluster.carry_out(action)
    cluster.forget()
    cluster.roll()
    cluster.settle()
    assert cluster.templates == 2
    assert not drafts(cluster)
    block = cluster.status["speculation"]
    assert (block["speculatorRemoved"], block["tableVersion"], active_table(cluster)) == (True, 2, table)
    assert cluster.memory is not None
    assert cluster.memory.removed


@pytest.mark.parametrize("wiped", [True, False])
@pytest.mark.parametrize("done", range(3))
def test_killed_on_the_way_back_no_pod_is_replaced_twice(tuner: Tuner, done: int, wiped: bool) -> None:
    cluster = removed(tuner)
    tuner.bring_back(KTable.constant(3, 256))
    for action in cluster.look(without_series(cluster)).actions[:done]:
        cluster.carry_out(action)
    cluster.forget()
    if wiped:
        cluster.status = {}
    cluster.settle()
    assert drafts(cluster) is (done > 0)
    assert cluster.templates == (3 if done else 2)
    assert cluster.status["speculation"].get("speculatorRemoved", False) is (done == 0)


@pytest.mark.parametrize(
    "spec", [REMOVABLE, replace(restart(), speculation=REMOVABLE.speculation)], ids=["live", "restart"]
)
def test_a_wiped_status_is_rebuilt_from_the_cluster(tuner: Tuner, spec: Any) -> None:
    cluster = removed(tuner, spec)
    table = active_table(cluster)
    cluster.status = {}
    cluster.forget()
    cluster.settle()
    assert cluster.templates == 2
    assert not drafts(cluster)
    assert active_table(cluster) == table
    assert cluster.status["speculation"]["speculatorRemoved"]
    assert cluster.condition("SpeculationActive")["reason"] == "DrafterDeadWeight"


def test_a_claim_to_be_off_counts_only_where_the_spec_allows_it(tuner: Tuner) -> None:
    cluster = settled()
    deployment = cluster.children["Deployment", "demo"]
    deployment["metadata"]["annotations"][names.ANNOTATION_TABLE] = (
        '{"version":9,"rows":[[1,256,3]],"speculatorRemoved":true}'
    )
    cluster.status["speculation"]["speculatorRemoved"] = True
    cluster.forget()
    cluster.settle()
    assert drafts(cluster)
    assert "speculatorRemoved" not in cluster.status["speculation"]


def test_a_deleted_deployment_comes_back_without_drafter(tuner: Tuner) -> None:
    cluster = removed(tuner)
    before = cluster.children.pop(("Deployment", "demo"))
    outcome = cluster.tick()
    assert applies(outcome) == [("Deployment", "demo", Reason.REPAIRED)]
    assert template(cluster.children["Deployment", "demo"]) == template(before)
