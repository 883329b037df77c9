"""A new object whose pods can skip the speculator: its ConfigMap holds K = 0 and what pods try, and keeps both."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from tests.unit.reconcile.worlds import KEPT, Cluster, applies, observed, settled

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile.table import tables


def begun() -> tuple[Cluster, dict[str, Any]]:
    """A cluster after its first reconcile, and the table's content then."""
    cluster = Cluster()
    cluster.tick()
    return cluster, cluster.table


def test_the_first_table_is_k_0_with_drafts_to_try() -> None:
    cluster, first = begun()
    assert (first["version"], first["rows"]) == (1, [[1, 256, 0]])
    assert first["try"]["rows"][0][0] == 1
    assert max(k for row in first["try"]["rows"] for k in row[2]) == 3
    assert cluster.status["speculation"]["tries"]


def test_pods_that_do_not_skip_begin_with_drafts_and_try_none() -> None:
    cluster = settled(spec=KEPT)
    assert cluster.table["rows"] != [[1, 256, 0]]
    assert "try" not in cluster.table


def test_what_is_tried_beside_version_1_is_read_back() -> None:
    cluster, first = begun()
    found = tables.trials_in(cluster.snapshot(), cluster.config("table")[1], 1, KTable.from_rows(first["rows"]))
    assert [[one.first, one.last, list(one.ks), one.share] for one in found] == first["try"]["rows"]


def test_without_an_observation_nothing_is_written_again() -> None:
    cluster, first = begun()
    cluster.roll()
    for _ in range(4):
        outcome = cluster.tick()
        assert applies(outcome) == []
        cluster.roll()
    assert cluster.table == first


@pytest.mark.parametrize("notes_lost", [False, True])
def test_a_restart_of_the_operator_keeps_both(notes_lost: bool) -> None:
    cluster, first = begun()
    cluster.settle()
    cluster.forget()
    cluster.notes = None if notes_lost else cluster.notes
    assert applies(cluster.tick()) == []
    assert cluster.table == first
    assert cluster.memory is not None
    assert cluster.memory.trials


def test_an_operator_killed_before_it_wrote_status_keeps_both() -> None:
    cluster, first = begun()
    cluster.status = {}
    cluster.forget()
    cluster.tick()
    assert cluster.table == first


@pytest.mark.parametrize("content", ['{"version":1,"rows":[[1,256,0]]}', '{"version":1,"rows":[[1,256,5]]}', None])
@pytest.mark.parametrize("restart", [False, True])
def test_what_somebody_takes_away_is_written_again_as_it_was(content: str | None, restart: bool) -> None:
    cluster, first = begun()
    cluster.settle()
    slot = cluster.config("table")
    before = deepcopy(cluster.children[slot]["data"])
    if content is None:
        del cluster.children[slot]
    else:
        cluster.children[slot]["data"]["table.json"] = content
    if restart:
        cluster.forget()
    assert applies(cluster.tick()) == [("ConfigMap", "demo-table", Reason.REPAIRED)]
    assert cluster.children[slot]["data"] == before
    assert cluster.table == first


def test_pods_that_tell_nothing_of_trials_change_nothing_at_first() -> None:
    cluster, first = begun()
    cluster.settle()
    for _ in range(5):
        cluster.tick(observed(cluster))
    assert cluster.table == first
