"""What pods may try: written beside the table, taken back where it may not be, and told in a word. The tuner is a
script."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.reconcile.scripted import REMOVABLE, Tuner, active_table
from tests.unit.reconcile.worlds import KEPT, Cluster, applies, observed, settled

from speculative_operator.domain.actions import PokePod
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.observation import PodWindow, StepCell
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode, Speculation
from speculative_operator.domain.table import Actuator, KnobSpace, KTable, Trial
from speculative_operator.reconcile.table import tables
from speculative_operator.render.values import table_text
from speculative_operator.tuner.allowed import MOST_SHARE, fit_trials

BASE = KTable.constant(3, 256)
TRIALS = (Trial(5, 6, (1, 7), 0.05), Trial(8, 8, (1,), 0.02))
WRITTEN = {"steps": 8, "rows": [[5, 6, [1, 7], 0.05], [8, 8, [1], 0.02]]}


def trying(tuner: Tuner, trials: tuple[Trial, ...] = TRIALS, **change: Any) -> Cluster:
    """A cluster whose tuner lets pods try something, and goes on doing so."""
    cluster = settled(**change)
    tuner.trials = trials
    cluster.tick(observed(cluster))
    return cluster


def test_other_tries_are_a_version_of_the_file_and_no_news(tuner: Tuner) -> None:
    cluster = settled(spec=KEPT)
    cluster.tick(observed(cluster))
    conditions, rows = deepcopy(cluster.status["conditions"]), cluster.table["rows"]
    tuner.trials = TRIALS
    outcome = cluster.tick(observed(cluster))
    assert applies(outcome) == [("ConfigMap", "demo-table", Reason.TRIES_CHANGED)]
    assert (outcome.events, outcome.tries_changed) == ((), True)
    assert cluster.table == {"version": 2, "rows": rows, "try": WRITTEN}
    block = cluster.status["speculation"]
    assert (block["tableVersion"], block["rowsVersion"]) == (2, 1)
    assert block["tries"] == "5-6: 1 7 (5 %), 8-8: 1 (2 %)"
    assert (cluster.status["conditions"], cluster.status["decisions"]) == (conditions, [])


def test_neighbours_that_try_the_same_are_shown_as_one(tuner: Tuner) -> None:
    cluster = trying(
        tuner, (Trial(1, 4, (1,), 0.3), Trial(5, 8, (1,), 0.05), Trial(9, 9, (7,), 0.05), Trial(12, 16, (7,), 0.1))
    )
    assert cluster.status["speculation"]["tries"] == "1-8: 1 (30 %), 9-9: 7 (5 %), 12-16: 7 (10 %)"
    assert len(cluster.table["try"]["rows"]) == 4


def test_equal_tries_are_written_once(tuner: Tuner) -> None:
    cluster = trying(tuner)
    cluster.tick(observed(cluster))
    for share in (0.0501, 0.0499, 0.05):
        tuner.trials = (replace(TRIALS[0], share=share), TRIALS[1])
        outcome = cluster.tick(observed(cluster))
        assert not [one for one in outcome.actions if not isinstance(one, PokePod)]
        assert not outcome.tries_changed
    assert cluster.table["version"] == 2


@pytest.mark.parametrize("wiped", [False, True])
def test_an_operator_killed_before_it_said_so_goes_on_with_what_is_tried(tuner: Tuner, wiped: bool) -> None:
    cluster = settled()
    status = {} if wiped else deepcopy(cluster.status)
    tuner.trials = TRIALS
    cluster.tick(observed(cluster))
    written, cluster.status = cluster.table, status
    cluster.forget()
    cluster.tick()
    assert cluster.table == written
    assert cluster.status["speculation"]["tableVersion"] == 2
    assert cluster.status["speculation"].get("rowsVersion") == (None if wiped else 1)


def test_a_new_table_comes_with_its_own_tries(tuner: Tuner) -> None:
    cluster = trying(tuner)
    wish = {
        "table": KTable.constant(1, 256),
        "reason": Reason.FASTER,
        "changed": True,
        "trials": (Trial(5, 6, (7,), 0.1),),
    }
    tuner.wishes.append(wish)
    cluster.tick(observed(cluster))
    assert cluster.table["try"]["rows"] == [[5, 6, [7], 0.1]]
    block = cluster.status["speculation"]
    assert (block["tableVersion"], block.get("rowsVersion")) == (3, None)
    assert len(cluster.status["decisions"]) == 1


def test_a_hold_leaves_what_is_tried_as_it_is(tuner: Tuner) -> None:
    cluster = trying(tuner)
    before = cluster.table
    tuner.wishes.append({"valid": False, "reason": Reason.PROMETHEUS_TIMEOUT, "trials": ()})
    cluster.tick(observed(cluster))
    assert cluster.table == before


def test_nothing_is_tried_where_the_tuner_may_change_nothing(tuner: Tuner) -> None:
    cluster = trying(tuner)
    cluster.edit(speculation=Speculation(mode=Mode.RECOMMEND))
    for _ in range(3):
        cluster.tick(observed(cluster))
    assert "try" not in cluster.table
    assert "tries" not in cluster.status["speculation"]


def test_pods_without_a_drafter_return_to_a_table_without_tries(tuner: Tuner) -> None:
    cluster = trying(tuner, spec=REMOVABLE)
    tuner.remove(active_table(cluster))
    cluster.tick(observed(cluster))
    assert "tries" not in cluster.status["speculation"]


def test_tries_that_somebody_edited_are_put_back_without_any(tuner: Tuner) -> None:
    cluster = trying(tuner, spec=KEPT)
    config = cluster.children[cluster.config("table")]
    config["data"]["table.json"] = config["data"]["table.json"].replace("0.05", "0.4")
    cluster.forget()
    cluster.tick()
    assert "try" not in cluster.table


def test_a_pod_behind_by_tries_alone_runs_the_table_in_force(tuner: Tuner) -> None:
    """The tuner may judge it, and no condition says that it serves another table."""
    cluster = trying(tuner)
    for _ in range(12):
        seen = observed(cluster)
        windows = {pod: replace(one, live=True, table_version=1) for pod, one in seen.windows.items()}
        cluster.tick(replace(seen, pods=windows))
    assert tuner.told[-1] == 1
    assert cluster.condition("SpeculationActive")["reason"] != "TableNotInForce"


ROWS = st.builds(
    Trial,
    st.integers(-1, 70), st.integers(-1, 70), st.lists(st.integers(-1, 9), max_size=4).map(tuple),
    st.floats(allow_nan=True, allow_infinity=True),
)  # fmt: skip


@given(st.lists(ROWS, max_size=8), st.sampled_from([(0, 1, 3, 5), (3,)]))
def test_what_is_written_is_what_pods_carry_out(rows: list[Trial], ks: tuple[int, ...]) -> None:
    policy, table = Policy(Mode.AUTO, KnobSpace(Actuator.LIVE, ks, 64)), KTable.from_rows([[1, 16, 3], [17, 64, 1]])
    fitted, last = fit_trials(rows, table, policy), 0
    for one in fitted:
        assert last < one.first <= one.last <= 64
        assert table.k_at(one.first) == table.k_at(one.last)
        assert one.ks
        assert set(one.ks) <= set(ks) - {table.k_at(one.first)}
        assert 0.0 < one.share <= MOST_SHARE
        last = one.last
    assert fit_trials(fitted, table, policy) == fitted
    table_text(table, 2, trials=fitted)
    assert fit_trials(rows, table, replace(policy, trials=False)) == ()


def test_the_tuner_itself_has_pods_try_where_they_compare() -> None:
    """The real one, of pods that tell of each step what it was made of; and none of the payload before."""
    cluster = settled()
    for _ in range(30):
        seen = observed(cluster)
        windows = {pod: replace(one, live=True, cells=cells_of(one)) for pod, one in seen.windows.items()}
        cluster.tick(replace(seen, pods=windows))
    assert "try" in cluster.table
    prepared = {0, *range(1, 12)}
    assert {k for row in cluster.table["try"]["rows"] for k in row[2]} <= prepared


def cells_of(window: PodWindow) -> tuple[StepCell, ...]:
    batch = round(window.load)
    k = round(window.mean_k or 0.0)
    tokens = window.generated_tokens
    return (StepCell(k, batch, window.steps, window.step_seconds / batch, tokens, 0.0),)


# -- a new object


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
