"""Harm: pods refuse their table file, and with it every later table, because it says what their payload does not know.

The payload is part of the pods' template and stays over an upgrade of the operator. It refuses a file with a key that
it does not know, so that K in these pods would stand still from the first such file on.
"""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from tests.unit.reconcile.releases import give_payload
from tests.unit.reconcile.scripted import Tuner
from tests.unit.reconcile.worlds import Cluster, observed, settled

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Method, ModelSource, Scheme, Speculator
from speculative_operator.domain.table import KTable, Trial

TRIALS = (Trial(5, 6, (1, 7), 0.05),)


def mounting(cluster: Cluster) -> None:
    """Pods say what they mount, as the API server has it."""
    volumes = cluster.children["Deployment", "demo"]["spec"]["template"]["spec"]["volumes"]
    for one in cluster.pods:
        one.setdefault("spec", {})["volumes"] = deepcopy(volumes)


def upgraded(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Pods of a release whose payload knows no trials, under one that has another payload."""
    give_payload(monkeypatch, trials=False)
    cluster = settled()
    mounting(cluster)
    give_payload(monkeypatch, trials=True)
    cluster.upgraded = True
    cluster.forget()
    return cluster


def test_an_upgrade_never_has_pods_try_what_they_do_not_know(monkeypatch: pytest.MonkeyPatch, tuner: Tuner) -> None:
    cluster = upgraded(monkeypatch)
    made, tuner.trials = cluster.templates, TRIALS
    for _ in range(5):
        cluster.tick(observed(cluster))
        assert "try" not in cluster.table
    assert cluster.templates == made, "no pod is replaced for it"
    table = KTable.constant(1, 256)
    tuner.wishes.append({"table": table, "reason": Reason.FASTER, "changed": True, "trials": TRIALS})
    cluster.tick(observed(cluster))
    assert (cluster.table["rows"], "try" in cluster.table) == (table.rows(), False), "tables reach them as before"


def test_pods_replaced_one_after_the_other_never_share_a_file_that_one_of_them_refuses(
    monkeypatch: pytest.MonkeyPatch, tuner: Tuner
) -> None:
    cluster = upgraded(monkeypatch)
    old, tuner.trials = deepcopy(cluster.pods), TRIALS
    cluster.annotate(adopt="now")
    cluster.tick(observed(cluster))
    cluster.tick(observed(cluster))
    assert cluster.templates == 2
    cluster.roll()
    mounting(cluster)
    new = cluster.pods
    cluster.pods = [old[0], *new[1:]]
    cluster.tick(observed(cluster))
    assert "try" not in cluster.table
    cluster.pods = new
    cluster.tick(observed(cluster))
    cluster.tick(observed(cluster))
    assert cluster.table["try"]["rows"] == [[5, 6, [1, 7], 0.05]]


@pytest.mark.parametrize("back", ["pod", "template"])
def test_pods_of_an_older_revision_never_start_with_a_file_that_they_refuse(
    monkeypatch: pytest.MonkeyPatch, tuner: Tuner, back: str
) -> None:
    """As after a rollback by hand, while nothing is observed."""
    give_payload(monkeypatch, trials=True)
    cluster = settled(upgraded=True)
    mounting(cluster)
    tuner.trials = TRIALS
    cluster.tick(observed(cluster))
    assert "try" in cluster.table
    bearer: Any = cluster.pods[0] if back == "pod" else cluster.children["Deployment", "demo"]["spec"]["template"]
    next(one for one in bearer["spec"]["volumes"] if one["name"] == "payload")["configMap"]["name"] = "demo-payload"
    version = cluster.table["version"]
    cluster.tick()
    assert "try" not in cluster.table
    assert cluster.table["version"] == version + 1
    assert "tries" not in cluster.status["speculation"]


def test_pods_of_a_former_pair_are_never_left_trying(monkeypatch: pytest.MonkeyPatch, tuner: Tuner) -> None:
    """Nobody compares what they measure any more."""
    give_payload(monkeypatch, trials=True)
    cluster = settled()
    mounting(cluster)
    tuner.trials = TRIALS
    cluster.tick(observed(cluster))
    left = cluster.config("table")
    assert "try" in cluster.table
    cluster.edit(speculator=Speculator(Method.DRAFT_MODEL, ModelSource(Scheme.HF, "Qwen/Qwen3-0.6B", "other")))
    for _ in range(3):
        cluster.tick(observed(cluster))
        assert "try" not in json.loads(cluster.children[left]["data"]["table.json"])
    (leaving,) = cluster.status["leaving"]
    assert (leaving["configMap"], leaving["tableVersion"]) == (left[1], 3), "another file is another version"
