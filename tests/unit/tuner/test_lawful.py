"""What may come into force: a change, on evidence, within the knobs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.tuner.plant import KNOBS, Plant, policy

from speculative_operator.domain.decision import Decision, State
from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.tuner.allowed import lawful

TABLE = KTable.from_rows([[1, 16, 3], [17, 256, 1]])
DECISION = Decision(State.ON, TABLE, Reason.FASTER, "", valid=True, changed=True)
SEEN = Observation(0.0, {"pod": Plant().window(TABLE, 8, 0.0)})


def test_a_change_on_evidence_within_the_knobs_is() -> None:
    assert lawful(DECISION, SEEN, policy())


@pytest.mark.parametrize(
    "decision",
    [
        replace(DECISION, valid=False),
        replace(DECISION, changed=False),
        replace(DECISION, table=KTable.constant(9, 256)),
        replace(DECISION, table=KTable.constant(3, 128)),
    ],
    ids=["not valid", "no change", "K beyond the knobs", "another max_batch"],
)
def test_what_the_decision_lacks_stops_it(decision: Decision) -> None:
    assert not lawful(decision, SEEN, policy())


@pytest.mark.parametrize(
    "observation",
    [
        Observation(0.0, dict(SEEN.pods), Gap(Reason.METRICS_MISSING, "")),
        Observation(0.0, {"pod": Gap(Reason.METRICS_MISSING, "")}),
        Observation(0.0),
    ],
    ids=["a gap over all", "a gap of each pod", "no pod"],
)
def test_nothing_seen_stops_it(observation: Observation) -> None:
    assert not lawful(DECISION, observation, policy())


def test_an_engine_of_one_k_takes_a_table_of_one() -> None:
    restart = policy(knobs=replace(KNOBS, actuator=Actuator.RESTART))
    assert not lawful(DECISION, SEEN, restart)
    assert lawful(replace(DECISION, table=KTable.constant(3, 256)), SEEN, restart)
