"""Harm: pods of a former pair go on trying K that nobody compares any more."""

from __future__ import annotations

import json

from tests.unit.reconcile.scripted import Tuner
from tests.unit.reconcile.worlds import observed, settled

from speculative_operator.domain.spec import Method, ModelSource, Scheme, Speculator
from speculative_operator.domain.table import Trial

TRIALS = (Trial(5, 6, (1, 7), 0.05),)


def test_pods_of_a_former_pair_are_never_left_trying(tuner: Tuner) -> None:
    """Nobody compares what they measure any more."""
    cluster = settled()
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
