"""A pair that does not fit gets no pods, and pods that run stay as they are while it is asked for."""

from dataclasses import replace

import pytest
from tests.unit.reconcile.paired import (
    EAGLE,
    FOREIGN,
    PAIRED,
    Paired,
    advance,
    drawn,
    serving,
    state,
    told,
)
from tests.unit.reconcile.worlds import observed, template

from speculative_operator.api.status import Status
from speculative_operator.domain import names
from speculative_operator.domain.jobs import Purpose

FOREIGN_EVENTS = [("Warning", "PairMismatch")]


def test_a_pair_that_does_not_fit_gets_no_pod() -> None:
    cluster = Paired(spec=replace(PAIRED, speculator=drawn(FOREIGN)))
    cluster.tick()
    cluster.read()
    outcome = cluster.tick()
    assert not cluster.serves()
    assert told(outcome) == FOREIGN_EVENTS
    for kind in ("Ready", "PairCompatible"):
        condition = cluster.condition(kind)
        assert (condition["status"], condition["reason"]) == ("False", "PairMismatch")
        assert "151936" in condition["message"]
        assert "128256" in condition["message"]
    assert cluster.status["pair"]["verdict"] == "Incompatible"
    for _ in range(3):
        assert cluster.tick().events == ()
        assert not cluster.serves()
    cluster.edit(speculator=drawn(EAGLE))
    advance(cluster)
    assert state(cluster, "Ready") == ("True", "AllReady")
    assert cluster.made == [Purpose.INSPECT] * 2


def test_pods_that_run_stay_when_the_next_pair_does_not_fit() -> None:
    cluster = serving()
    deployment, table = cluster.deployment, cluster.table
    cluster.edit(speculator=drawn(FOREIGN), replicas=3, engine=replace(PAIRED.engine, args=("--seed", "7")))
    outcomes = advance(cluster)
    assert cluster.deployment == deployment, "not even another field of it is touched"
    assert cluster.table == table
    assert state(cluster, "Ready") == ("False", "PairMismatch")
    assert [one for outcome in outcomes for one in told(outcome)] == [("Normal", "Inspecting"), *FOREIGN_EVENTS]
    assert cluster.status["pair"]["speculatorPin"]["uri"] == f"hf://{EAGLE}"
    assert cluster.status["nextPair"]["speculatorPin"]["uri"] == f"hf://{FOREIGN}"
    assert cluster.status["nextPair"]["verdict"] == "Incompatible"
    Status.model_validate(cluster.status)
    cluster.edit(speculator=drawn(EAGLE), replicas=2, engine=PAIRED.engine)
    cluster.settle()
    assert cluster.deployment["spec"] == deployment["spec"], "the way back needs no rollout"
    assert state(cluster, "Ready") == ("True", "AllReady")
    assert cluster.made == [Purpose.INSPECT] * 2, "and no Job"
    assert "nextPair" not in cluster.status


@pytest.mark.parametrize("refused", [True, False])
def test_pods_that_stay_are_scaled_and_have_what_they_mount(refused: bool) -> None:
    """The next pair may be on its way for hours, or refused for days: load does not wait for it."""
    cluster = serving()
    before = template(cluster.deployment)
    cluster.edit(speculator=drawn(FOREIGN))
    (advance if refused else Paired.tick)(cluster)
    cluster.edit(replicas=5)
    needed = {("Service", "demo"), cluster.config("payload"), ("PodDisruptionBudget", "demo")}
    for slot in needed:
        del cluster.children[slot]
    cluster.tick()
    cluster.tick()
    cluster.roll()
    outcome = cluster.tick()
    assert len(cluster.pods) == 5
    assert template(cluster.deployment) == before
    assert needed <= set(cluster.children)
    assert outcome.actions == cluster.tick().actions == ()
    assert state(cluster, "Ready") == ("False", "PairMismatch" if refused else "Inspecting")
    assert state(cluster, "Available") == ("True", "AllReady")


def test_pods_of_a_refused_change_are_tuned_on() -> None:
    cluster = serving()
    cluster.edit(speculator=drawn(FOREIGN))
    advance(cluster)
    deployment, version = cluster.deployment, cluster.table["version"]
    for _ in range(60):
        cluster.tick(observed(cluster, batch=200, survival=0.2))
        if cluster.table["version"] > version:
            break
    assert cluster.table["version"] == version + 1
    assert cluster.status["speculation"]["tableVersion"] == version + 1
    assert cluster.deployment == deployment
    cluster.tick()
    assert {one["metadata"]["annotations"][names.ANNOTATION_POKE] for one in cluster.pods} == {str(version + 1)}
