"""Most ticks bring no new look at metrics: what was said last stands, whatever it was, and costs no write."""

from __future__ import annotations

import pytest
from tests.unit.reconcile.worlds import NOW, Cluster, observed

from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.reconcile.snapshot.writing import should_write

GAPS = (
    Reason.PROMETHEUS_ERROR,
    Reason.PROMETHEUS_TIMEOUT,
    Reason.METRICS_MISSING,
    Reason.METRICS_STALE,
    Reason.METRICS_PARTIAL,
    Reason.IDLE,
    Reason.STARTING,
    Reason.COUNTER_RESET,
)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("reason", GAPS)
def test_a_gap_does_not_make_the_conditions_alternate_with_the_ticks_between(reason: Reason, restarted: bool) -> None:
    cluster = Cluster()
    cluster.settle()
    gap = Gap(reason, "so it is")
    cluster.tick(Observation(NOW, {pod["metadata"]["name"]: gap for pod in cluster.pods}))
    if restarted:
        cluster.forget()
    before = cluster.status
    after = cluster.look().status
    assert after["conditions"] == before["conditions"]
    assert not should_write(before, after, NOW, NOW + 1.0)


def test_figures_do_not_alternate_either() -> None:
    cluster = Cluster()
    cluster.settle()
    cluster.tick(observed(cluster))
    before = cluster.status
    after = cluster.look().status
    assert after["conditions"] == before["conditions"]
    assert not should_write(before, after, NOW, NOW + 1.0)
