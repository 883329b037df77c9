"""A latency target that no K meets: what conditions, events and history say of it. The tuner is a script."""

from __future__ import annotations

from tests.unit.reconcile.scripted import Tuner, active_table
from tests.unit.reconcile.worlds import observed, reasons, settled

from speculative_operator.domain.reasons import EXPLANATIONS, Reason
from speculative_operator.domain.table import KTable

BEST = "no K meets tpotP99 12 ms: best P99 measured is 16 to 20 ms, with K 2"
OUT = {"reason": Reason.TARGET_OUT_OF_REACH, "message": BEST}


def test_a_target_out_of_reach_is_told_once_and_stays_said(tuner: Tuner) -> None:
    cluster = settled()
    cluster.tick(observed(cluster))
    other = KTable.constant(1 if active_table(cluster).k_at(1) != 1 else 2, 256)
    tuner.wishes += [OUT | {"table": other, "changed": True}, OUT, OUT]
    outcome = cluster.tick(observed(cluster))
    assert reasons(outcome).count(Reason.TARGET_OUT_OF_REACH) == 1
    assert cluster.status["decisions"][0]["message"] == BEST
    for _ in range(2):
        assert Reason.TARGET_OUT_OF_REACH not in reasons(cluster.tick(observed(cluster)))
    said = cluster.condition("TuningConverged")
    assert (said["status"], said["reason"]) == ("True", "TargetOutOfReach")
    assert said["message"] == EXPLANATIONS[Reason.TARGET_OUT_OF_REACH]
    assert cluster.status["speculation"]["message"] == BEST
