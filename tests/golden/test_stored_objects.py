"""Objects that a release before has left in a cluster, under the operator as it is: nothing of them is lost.

What is stored was written by that release (`recording`) and stands for objects of users: it is never made anew.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest
from tests.golden.recording import SPECS, STORED, restored
from tests.unit.reconcile.paired import advance
from tests.unit.reconcile.worlds import template

from speculative_operator.reconcile import notes
from speculative_operator.reconcile.status import should_write

PATHS = sorted(STORED.glob("*/*.json"))
IDS = [f"{one.parent.name} {one.stem}" for one in PATHS]


def test_every_object_of_the_list_is_stored() -> None:
    assert {one.stem for one in PATHS if one.parent.name == "0.1.0"} == set(SPECS)


@pytest.mark.parametrize("path", PATHS, ids=IDS)
def test_its_pods_conditions_and_table_stay(path: Path) -> None:
    cluster = restored(path)
    before = deepcopy(cluster.status)
    pods = template(cluster.children["Deployment", "demo"])
    advance(cluster)
    cluster.settle(12)
    assert template(cluster.children["Deployment", "demo"]) == pods
    assert cluster.templates == 0
    assert cluster.look().actions == ()
    conditions = {one["type"]: (one["status"], one["reason"]) for one in before["conditions"]}
    now = {one["type"]: (one["status"], one["reason"]) for one in cluster.status["conditions"]}
    assert {kind: now.get(kind) for kind in conditions} == conditions
    for block in ("table", "speculatorRemoved", "tableVersion"):
        assert cluster.status.get("speculation", {}).get(block) == before.get("speculation", {}).get(block)
    assert cluster.status.get("rollout") == before.get("rollout")


@pytest.mark.parametrize("path", PATHS, ids=IDS)
def test_nothing_that_users_see_in_status_is_lost(path: Path) -> None:
    cluster = restored(path)
    before = json.loads(path.read_text())["status"]
    cluster.tick()
    lost = {key for key in before if key not in cluster.status}
    assert lost <= {"memory"}


@pytest.mark.parametrize("path", PATHS, ids=IDS)
def test_what_only_the_operator_reads_moves_to_its_notes(path: Path) -> None:
    cluster = restored(path)
    before = json.loads(path.read_text())["status"]
    cluster.tick()
    pairs = [before[name] for name in ("pair", "nextPair") if name in before]
    assert should_write(before, cluster.status, cluster.now, cluster.now)
    assert "memory" not in cluster.status
    assert not any("facts" in cluster.status.get(name, {}) for name in ("pair", "nextPair"))
    kept = notes.read(cluster.notes, cluster.spec.uid)
    assert {**kept.get("memory", {})}.keys() == before.get("memory", {}).keys()
    assert [*kept.get("facts", ())] == [one["facts"] for one in pairs if "facts" in one]
    cluster.forget()
    assert cluster.tick().actions == ()
    assert cluster.remembered == kept
