"""Pods that get their drafter back by the tuner or by an edit, and never by accident: not by a restart of the operator,
a kill on the way or a wiped status. The tuner is a script."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.scripted import REMOVABLE, Tuner, active_table, drafts, removed, without_series
from tests.unit.reconcile.worlds import (
    applies,
    observed,
    remade,
    restart,
    settled,
    template,
)

from speculative_operator.api.status import Status
from speculative_operator.domain import names
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import (
    EngineSettings,
    Method,
    Mode,
    ModelSource,
    OffPolicy,
    Scheme,
    Speculation,
    Speculator,
)
from speculative_operator.domain.table import KTable


def test_a_fallen_load_brings_it_back(tuner: Tuner) -> None:
    cluster = removed(tuner)
    new = KTable.from_rows([[1, 8, 3], [9, 256, 0]])
    tuner.bring_back(new)
    outcome = cluster.tick(without_series(cluster))
    assert remade(outcome) == [
        ("ConfigMap", "demo-table", Reason.CREATED),
    ], "the table is there before the pods that read it"
    assert cluster.condition("Ready")["status"] == "False"
    outcome = cluster.tick()
    assert remade(outcome) == [("Deployment", "demo", Reason.RESUMED)]
    cluster.roll()
    cluster.settle()
    assert drafts(cluster)
    assert cluster.templates == 3
    assert template(cluster.children["Deployment", "demo"]) == template(
        settled(spec=REMOVABLE).children["Deployment", "demo"]
    )
    assert names.ANNOTATION_TABLE not in cluster.children["Deployment", "demo"]["metadata"]["annotations"]
    assert cluster.table == {"version": 3, "rows": new.rows()}
    block, entry = cluster.status["speculation"], cluster.status["decisions"][0]
    assert "speculatorRemoved" not in block
    assert (entry["from"], entry["to"], entry["reason"]) == ("none", str(new), "SpeculationResumed")
    active = cluster.condition("SpeculationActive")
    assert (active["status"], active["reason"]) == ("True", "SpeculationResumed")
    assert cluster.memory is not None
    assert not cluster.memory.removed


def test_a_table_that_waits_is_not_worth_a_write(tuner: Tuner) -> None:
    cluster = removed(tuner)
    waiting = active_table(cluster)
    tuner.remove(KTable.constant(1, 256))
    assert cluster.tick(without_series(cluster)).actions == ()
    assert active_table(cluster) == waiting
    assert cluster.memory is not None
    assert cluster.memory.table == waiting


@pytest.mark.parametrize(
    "change",
    [
        {"speculation": Speculation(off_policy=OffPolicy.KEEP_RUNNING)},
        {"speculation": Speculation(mode=Mode.RECOMMEND, off_policy=OffPolicy.REMOVE)},
        {"speculation": Speculation(mode=Mode.STATIC, num_speculative_tokens=3, off_policy=OffPolicy.REMOVE)},
        {"speculator": Speculator(Method.DRAFT_MODEL, ModelSource(Scheme.HF, "Qwen/Qwen3-0.6B", "other"))},
    ],
    ids=["policy", "recommend", "static", "pair"],
)
def test_an_edit_that_takes_it_out_of_the_tuners_hands_brings_it_back(tuner: Tuner, change: dict[str, Any]) -> None:
    cluster = removed(tuner)
    cluster.edit(**change)
    cluster.tick(without_series(cluster))
    assert cluster.status["speculation"]["state"] != "Removed"
    cluster.settle()
    assert drafts(cluster)
    assert cluster.templates == 3
    assert "speculatorRemoved" not in cluster.status["speculation"]
    assert (cluster.status["decisions"][0]["from"], cluster.status["decisions"][0]["reason"]) == ("none", "SpecChanged")
    assert cluster.status["speculation"]["tableVersion"] == 3
    assert cluster.memory is not None
    assert not cluster.memory.removed
    Status.model_validate(cluster.status)


def test_mode_off_finds_its_pods_there_already(tuner: Tuner) -> None:
    cluster = removed(tuner)
    cluster.edit(speculation=Speculation(mode=Mode.DISABLED))
    cluster.settle()
    assert cluster.templates == 2, "no pod is replaced"
    assert cluster.condition("SpeculationActive")["reason"] == "Disabled"
    assert "speculatorRemoved" not in cluster.status["speculation"]
    cluster.edit(speculation=Speculation(off_policy=OffPolicy.REMOVE))
    cluster.settle()
    assert drafts(cluster), "the user's word counts, not what the tuner once found"


def test_other_edits_leave_it_off(tuner: Tuner) -> None:
    cluster = removed(tuner)
    entries = cluster.status["decisions"]
    cluster.edit(
        engine=EngineSettings(args=("--seed=1",)),
        verifier=replace(REMOVABLE.verifier, max_num_seqs=64),
        speculation=Speculation(off_policy=OffPolicy.REMOVE, max_speculative_tokens=1),
    )
    cluster.settle()
    assert not drafts(cluster)
    assert cluster.status["speculation"]["speculatorRemoved"]
    assert active_table(cluster) == KTable.constant(1, 64), "the table that waits fits"
    assert cluster.status["decisions"] == entries


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


def test_a_deleted_deployment_comes_back_without_drafter(tuner: Tuner) -> None:
    cluster = removed(tuner)
    before = cluster.children.pop(("Deployment", "demo"))
    outcome = cluster.tick()
    assert applies(outcome) == [("Deployment", "demo", Reason.REPAIRED)]
    assert template(cluster.children["Deployment", "demo"]) == template(before)
