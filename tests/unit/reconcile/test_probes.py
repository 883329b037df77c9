"""Trials of another K: carried out, counted, and told only when they stay. The tuner is a script."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
from tests.unit.reconcile.scripted import Tuner, in_force
from tests.unit.reconcile.worlds import (
    Cluster,
    applies,
    observed,
    reasons,
    settled,
)

from speculative_operator.domain.actions import ApplyChild, PokePod
from speculative_operator.domain.decision import State
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.memory import Probe


def probe(tuner: Tuner, cluster: Cluster) -> KTable:
    """A probe begins; the table before it."""
    base = in_force(cluster)
    tuner.wishes.append(
        {"state": State.PROBING, "table": KTable.constant(1, 256), "reason": Reason.PROBING, "changed": True}
    )
    return base


def test_a_probe_is_counted_and_nothing_else_is_said_of_it(tuner: Tuner) -> None:
    cluster = settled()
    cluster.tick(observed(cluster))
    conditions = deepcopy(cluster.status["conditions"])
    base = probe(tuner, cluster)
    outcome = cluster.tick(observed(cluster))
    assert applies(outcome) == [("ConfigMap", "demo-table", Reason.PROBING)]
    assert (outcome.events, outcome.probe) == ((), Reason.PROBING)
    assert cluster.status["speculation"]["state"] == "Probing"
    for _ in range(2):
        assert (cluster.status["conditions"], cluster.status["decisions"]) == (conditions, [])
        assert {type(one) for one in cluster.tick().actions} <= {PokePod}
    tuner.wishes.append({"table": base, "reason": Reason.PROBED, "changed": True})
    outcome = cluster.tick(observed(cluster))
    assert (outcome.events, outcome.probe) == ((), Reason.PROBED)
    assert in_force(cluster) == base
    assert cluster.table == {"version": 3, "rows": base.rows()}
    cluster.tick(observed(cluster))
    assert (cluster.status["conditions"], cluster.status["decisions"]) == (conditions, [])
    assert cluster.tick().probe is None


@pytest.mark.parametrize("wider", [False, True])
def test_a_probe_that_stays_is_one_decision_from_the_table_before_it(tuner: Tuner, wider: bool) -> None:
    cluster = settled()
    base = probe(tuner, cluster)
    cluster.tick(observed(cluster))
    assert cluster.memory is not None
    cluster.memory = replace(cluster.memory, probe=Probe(base, 1, cluster.now, cluster.now + 15))
    cluster.tick(observed(cluster))
    assert cluster.status["decisions"] == []
    stays = KTable.from_rows([[1, 200, 1], [201, 256, 0]]) if wider else KTable.constant(1, 256)
    # where nothing is left to write the tuner says so
    tuner.wishes.append({"table": stays, "reason": Reason.FASTER, "changed": wider, "ended": True})
    outcome = cluster.tick(observed(cluster))
    assert bool([one for one in outcome.actions if isinstance(one, ApplyChild)]) is wider
    (entry,) = cluster.status["decisions"]
    assert (entry["from"], entry["to"], entry["reason"]) == (str(base), str(stays), "FasterTable")
    assert Reason.FASTER in reasons(outcome)
    assert cluster.condition("SpeculationActive")["reason"] == "FasterTable"
    assert outcome.probe is None
    cluster.tick(observed(cluster))
    assert len(cluster.status["decisions"]) == 1


def test_the_tuner_is_told_which_version_pods_should_run(tuner: Tuner) -> None:
    """What it asks for now is of the next version: pods are late only for what they were told before."""
    cluster = settled()
    probe(tuner, cluster)
    cluster.tick(observed(cluster))
    cluster.tick(observed(cluster))
    assert tuner.told[-2:] == [1, 2]
    assert cluster.table["version"] == 2
