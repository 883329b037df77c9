"""A new table reaches running pods, and none is said to be in force that a serving pod has not taken."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.reconcile.reporting import MINE, telling
from tests.unit.reconcile.worlds import NOW, Cluster, reasons, remade, settled, template

from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Method, Mode, Speculation, Speculator
from speculative_operator.domain.table import KTable


def serving(cluster: Cluster, table: int | None, live: bool = True) -> Observation:
    return telling(cluster, version="0.32.0", live=live, table=table)


def said(cluster: Cluster) -> dict[str, tuple[str, str]]:
    kinds = ("SpeculationActive", "TuningConverged")
    return {kind: (cluster.condition(kind)["status"], cluster.condition(kind)["reason"]) for kind in kinds}


BEHIND = {"SpeculationActive": ("Unknown", "TableNotInForce"), "TuningConverged": ("False", "TableNotInForce")}


def static(rows: list[list[int]]) -> Speculation:
    return Speculation(mode=Mode.STATIC, schedule=KTable.from_rows(rows))


def rewritten() -> Cluster:
    """A cluster whose user has just changed the schedule, to another with the same K."""
    cluster = settled(spec=replace(MINE, speculation=static([[1, 16, 4], [17, 64, 1], [65, 256, 0]])))
    for _ in range(8):
        cluster.tick(serving(cluster, 1))
    cluster.edit(speculation=static([[1, 4, 4], [5, 8, 1], [9, 256, 0]]))
    return cluster


def test_a_new_schedule_of_the_same_k_reaches_running_pods() -> None:
    cluster = rewritten()
    before = template(cluster.children["Deployment", "demo"])
    outcome = cluster.tick()
    assert remade(outcome) == [("ConfigMap", "demo-table", Reason.SPEC_CHANGED)]
    assert cluster.table == {"version": 2, "rows": [[1, 4, 4], [5, 8, 1], [9, 256, 0]]}
    assert {type(action).__name__ for action in cluster.tick().actions} == {"PokePod"}
    assert (cluster.templates, template(cluster.children["Deployment", "demo"])) == (1, before)


def test_a_k_that_the_engine_was_not_started_with_takes_new_pods() -> None:
    cluster = rewritten()
    cluster.edit(speculation=static([[1, 4, 5], [5, 256, 0]]))
    outcome = cluster.tick()
    assert remade(outcome) == [
        ("ConfigMap", "demo-table", Reason.SPEC_CHANGED),
        ("Deployment", "demo", Reason.SPEC_CHANGED),
    ]
    assert cluster.templates == 2


def test_a_table_that_pods_do_not_take_is_not_claimed_to_be_in_force() -> None:
    cluster = rewritten()
    for _ in range(6):
        cluster.tick(serving(cluster, 1))
        assert said(cluster) == {"SpeculationActive": ("True", "Fixed"), "TuningConverged": ("True", "Fixed")}
    cluster.tick(serving(cluster, 1))
    assert said(cluster) == BEHIND
    message = cluster.condition("SpeculationActive")["message"]
    assert "demo-t1-0 serves with table 1 and has not activated table 2" in message
    cluster.tick()
    assert said(cluster) == BEHIND, "between two looks it stands"
    cluster.tick(serving(cluster, 2))
    assert said(cluster) == {"SpeculationActive": ("True", "Fixed"), "TuningConverged": ("True", "Fixed")}


def test_idle_pods_owe_no_answer() -> None:
    cluster = rewritten()
    for _ in range(30):
        idle = {pod["metadata"]["name"]: Gap(Reason.IDLE, "no requests") for pod in cluster.pods}
        cluster.tick(Observation(cluster.now, idle))
        assert said(cluster)["SpeculationActive"] == ("True", "Fixed")
    stopped = {pod: replace(window, steps=0.0) for pod, window in serving(cluster, 1).windows.items()}
    cluster.tick(Observation(cluster.now, stopped))
    assert said(cluster)["SpeculationActive"] == ("True", "Fixed")


def test_a_window_from_before_the_table_proves_nothing() -> None:
    cluster = rewritten()
    cluster.tick()
    cluster.now += 300.0
    long = {pod: replace(window, start=NOW) for pod, window in serving(cluster, 1).windows.items()}
    cluster.tick(Observation(cluster.now, long))
    assert said(cluster)["SpeculationActive"] == ("True", "Fixed")


def test_pods_without_telemetry_are_believed() -> None:
    cluster = rewritten()
    for _ in range(30):
        cluster.tick(telling(cluster, version="", live=None))
    assert said(cluster)["SpeculationActive"] == ("True", "Fixed")


def test_the_time_of_the_table_outlives_a_restart() -> None:
    cluster = rewritten()
    for _ in range(7):
        cluster.forget()
        cluster.tick(serving(cluster, 1))
    assert said(cluster) == BEHIND
    since = cluster.status["speculation"]["tableSince"]
    cluster.forget()
    cluster.tick(serving(cluster, 2))
    assert cluster.status["speculation"]["tableSince"] == since


def test_an_inert_pod_is_named_while_it_serves() -> None:
    cluster = rewritten()
    outcomes = [cluster.tick(serving(cluster, None, live=False)) for _ in range(7)]
    assert said(cluster) == BEHIND
    assert "does not re-read its table" in cluster.condition("SpeculationActive")["message"]
    assert all(reason is not Reason.TABLE_NOT_IN_FORCE for outcome in outcomes for reason in reasons(outcome))


def test_methods_without_live_tables_owe_no_answer() -> None:
    cluster = settled(spec=replace(MINE, speculator=Speculator(Method.SUFFIX)))
    for _ in range(20):
        cluster.tick(serving(cluster, None, live=False))
    assert "TableNotInForce" not in {reason for _, reason in said(cluster).values()}
