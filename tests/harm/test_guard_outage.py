"""The harm: while nothing can be read from Prometheus, drafts that were never shown to pay run on for good, unwatched.

Or, from too much caution, a table that was shown to pay is taken away.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.reconcile.worlds import KEPT, observed, settled
from tests.unit.tuner.plant import KNOBS, TICK, Plant, Run, policy, run

from speculative_operator.domain.actions import ApplyChild
from speculative_operator.domain.decision import Decision
from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode, OffPolicy
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.tuner import decide
from speculative_operator.tuner.allowed import lawful
from speculative_operator.tuner.guards import BLIND_SECONDS
from speculative_operator.tuner.persistence import from_status, to_status

DOWN = Gap(Reason.PROMETHEUS_TIMEOUT, "no answer within 5 s")


def be_blind(loop: Run, seconds: float, gap: Gap = DOWN) -> list[Decision]:
    """The decisions that change something in so long an outage."""
    changes = []
    for _ in range(int(seconds / TICK)):
        loop.now += TICK
        dark = Observation(loop.now, gap=gap)
        decision = loop.see(dark)
        if decision.changed:
            assert lawful(decision, dark, loop.policy)
            changes.append(decision)
    return changes


def see_little(loop: Run) -> None:
    """Figures came once, and told nothing of drafts."""
    loop.memory = replace(loop.memory, updated_at=loop.now)


def learned(load: float = 20.0) -> Run:
    """A loop that has served one load for ten minutes."""
    loop = run(Plant(noise=0.01))
    loop.play(*[load] * 60)
    return loop


def test_drafts_that_were_never_shown_to_pay_do_not_run_on_unwatched() -> None:
    loop = run(Plant())
    table = loop.memory.table
    see_little(loop)
    assert be_blind(loop, BLIND_SECONDS) == [], "not before a restart of Prometheus has had its time"
    (change,) = be_blind(loop, 6 * 3600.0)
    assert change.reason is Reason.METRICS_LOST
    assert loop.memory.table == KTable.constant(0, KNOBS.max_batch) != table
    assert be_blind(loop, 6 * 3600.0) == [], "once in an outage"


def test_where_figures_never_came_no_drafts_are_taken_away() -> None:
    loop = run(Plant())
    table = loop.memory.table
    assert be_blind(loop, 24 * 3600.0) == [], "a Prometheus that was never set up is no outage"
    assert loop.memory.table == table


def test_what_was_shown_to_pay_is_not_taken_away() -> None:
    loop = learned()
    table, plant = loop.memory.table, loop.plant
    be_blind(loop, 6 * 3600.0)
    assert loop.memory.table.k_at(20) == table.k_at(20) > 0
    lost = [plant.speed(b, table.k_at(b)) / plant.speed(b, loop.memory.table.k_at(b)) for b in range(1, 60)]
    assert max(lost) < 1.03, "nor where it was learned from other loads"


@settings(max_examples=25, deadline=None)
@given(load=st.floats(1, 200), start=st.integers(0, 5), windows=st.integers(1, 20))
def test_no_load_ever_gets_more_drafts_in_an_outage(load: float, start: int, windows: int) -> None:
    loop = run(Plant(), table=KTable.constant(start, KNOBS.max_batch))
    loop.play(*[load] * windows)
    before = loop.memory.table
    be_blind(loop, 2 * BLIND_SECONDS)
    assert all(new <= old for new, old in zip(loop.memory.table.dense(), before.dense(), strict=True))


def test_the_table_before_is_not_lost_when_pods_are_seen_again() -> None:
    loop = run(Plant())
    table = loop.memory.table
    see_little(loop)
    be_blind(loop, 2 * BLIND_SECONDS)
    loop.memory = from_status(json.loads(json.dumps(to_status(loop.memory))), loop.policy)  # a restart meanwhile
    first, second = loop.play(20.0), loop.play(20.0)
    assert (first.reason, second.reason, second.changed) == (Reason.STARTING, Reason.METRICS_BACK, True)
    assert loop.memory.table == table
    assert loop.memory.before_outage is None
    assert loop.play(20.0).reason is not Reason.METRICS_BACK


def test_an_outage_that_comes_back_is_a_new_one() -> None:
    loop = run(Plant())
    see_little(loop)
    be_blind(loop, 2 * BLIND_SECONDS)
    loop.play(20.0, 20.0)
    assert loop.memory.table.max_k > 0
    assert be_blind(loop, BLIND_SECONDS) == []


def test_pods_without_a_speculator_keep_the_table_for_its_return() -> None:
    """They draft nothing that could lose; once the speculator is back, its table is the one that was found for it."""
    loop = run(Plant(), policy(off_policy=OffPolicy.REMOVE))
    see_little(loop)
    loop.memory = replace(loop.memory, removed=True)
    table = loop.memory.table
    assert table.max_k > 0
    assert be_blind(loop, 6 * 3600.0) == []
    assert loop.memory.table == table
    assert loop.memory.removed


@pytest.mark.parametrize("reason", [Reason.IDLE, Reason.NO_PODS])
def test_a_deployment_at_rest_is_no_outage(reason: Reason) -> None:
    loop = run(Plant())
    loop.play(20.0)
    assert be_blind(loop, 6 * 3600.0, Gap(reason, "nothing to see")) == []


@pytest.mark.parametrize(
    "changes",
    [{"mode": Mode.RECOMMEND}, {"mode": Mode.STATIC}]
    + [{"knobs": replace(KNOBS, actuator=actuator)} for actuator in (Actuator.TABLE, Actuator.RESTART)],
)
def test_no_pod_is_ever_replaced_without_evidence_and_nobody_is_overruled(changes: dict[str, object]) -> None:
    asked = policy(**changes)
    loop = run(Plant(), asked)
    loop.play(20.0)
    assert be_blind(loop, 6 * 3600.0) == []


def test_a_clock_set_back_neither_hastens_nor_ends_the_wait() -> None:
    loop = run(Plant())
    see_little(loop)
    be_blind(loop, BLIND_SECONDS / 2)
    loop.now -= 1e6
    assert be_blind(loop, BLIND_SECONDS) == []
    assert len(be_blind(loop, 2 * TICK)) == 1


def test_one_believed_look_begins_the_wait_anew() -> None:
    loop = learned()
    be_blind(loop, BLIND_SECONDS - TICK)
    loop.play(20.0)
    assert loop.memory.blind_since is None
    memory, decision = decide(loop.memory, Observation(loop.now + TICK, gap=DOWN), loop.policy, loop.now + TICK)
    assert not decision.changed
    assert memory.blind_since == loop.now + TICK


def test_what_falls_in_an_outage_is_never_kept_from_the_user_and_rolls_no_pod() -> None:
    cluster = settled(spec=KEPT)
    cluster.tick()
    assert cluster.memory is not None
    cluster.memory = replace(cluster.memory, updated_at=cluster.now)
    version, deployment = cluster.table["version"], cluster.children["Deployment", "demo"]
    told, kinds = [], set()
    for _ in range(int(BLIND_SECONDS / 10.0) + 3):
        outcome = cluster.tick(Observation(cluster.now + 10.0, gap=DOWN))
        told += [(event.type, event.reason) for event in outcome.events]
        kinds |= {action.manifest["kind"] for action in outcome.actions if isinstance(action, ApplyChild)}
    assert ("Warning", Reason.METRICS_LOST) in told
    assert cluster.table == {**cluster.table, "version": version + 1, "rows": [[1, 256, 0]]}
    assert cluster.status["decisions"][0]["reason"] == "MetricsLost"
    active = cluster.condition("SpeculationActive")
    assert (active["status"], active["reason"]) == ("False", "MetricsLost")
    assert cluster.condition("MetricsAvailable")["status"] == "False"
    assert kinds == {"ConfigMap"}
    assert cluster.children["Deployment", "demo"]["spec"]["template"] == deployment["spec"]["template"]
    for _ in range(4):
        cluster.tick(observed(cluster))
    assert "MetricsBack" in [entry["reason"] for entry in cluster.status["decisions"]]
