"""Caps by request (`speculation.perRequest`): delivered like a table, and said to be unused elsewhere."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.reporting import MINE, NEWER, tell
from tests.unit.reconcile.scripted import Tuner, active_table, removed
from tests.unit.reconcile.worlds import SPEC, Cluster, applies, observed, settled

from speculative_operator.api.status import Status
from speculative_operator.domain.actions import PokePod
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import (
    DeploymentSpec,
    EngineSettings,
    EngineType,
    Method,
    Mode,
    OffPolicy,
    PerRequest,
    Speculation,
    Speculator,
)
from speculative_operator.domain.table import KTable
from speculative_operator.engines.registry import engine_for
from speculative_operator.reconcile.caps import per_request, unused_notices
from speculative_operator.reconcile.engine_report import CERTAIN_SECONDS, acceptance
from speculative_operator.reconcile.status import should_write

NGRAM = replace(SPEC, speculator=Speculator(Method.NGRAM))
AUTO = Speculation(per_request=PerRequest.AUTO)
CAPPED = replace(NGRAM, speculation=AUTO)
PIPELINED = replace(
    CAPPED,
    verifier=replace(SPEC.verifier, pipeline_parallel_size=2),
    accelerator=replace(SPEC.accelerator, per_replica=2),
)


def with_mode(spec: DeploymentSpec, **change: Any) -> DeploymentSpec:
    return replace(spec, speculation=replace(spec.speculation, **change))


def test_a_first_table_holds_the_wish() -> None:
    cluster = settled(spec=CAPPED)
    assert cluster.table["perRequest"] is True
    assert cluster.table["version"] == 1
    assert cluster.status["speculation"]["perRequest"] is True
    assert "warnings" not in cluster.status
    Status.model_validate(cluster.status)


def test_nobody_gets_it_unasked() -> None:
    cluster = settled(spec=NGRAM)
    assert "perRequest" not in cluster.table
    assert "perRequest" not in cluster.status["speculation"]


def test_turning_it_on_and_off_is_one_new_table_each_and_no_rollout() -> None:
    cluster = settled(spec=NGRAM)
    rows = cluster.table["rows"]
    for version, (wish, said) in enumerate([(AUTO, {"perRequest": True}), (Speculation(), {})], 2):
        cluster.edit(speculation=wish)
        outcome = cluster.tick()
        assert applies(outcome) == [("ConfigMap", "demo-table", Reason.SPEC_CHANGED)]
        assert cluster.table == {"version": version, "rows": rows} | said
        outcome = cluster.tick()
        pokes = [action for action in outcome.actions if isinstance(action, PokePod)]
        assert {poke.value for poke in pokes} == {str(version)}
        assert len(pokes) == len(cluster.pods)
        assert cluster.settle().actions == ()
        assert cluster.table["version"] == version
    assert cluster.templates == 1


def test_the_history_says_what_changed_though_the_table_is_the_same() -> None:
    cluster = settled(spec=NGRAM)
    for wish, word in ((AUTO, "now with"), (Speculation(), "no longer")):
        cluster.edit(speculation=wish)
        cluster.tick()
        entry = cluster.status["decisions"][0]
        assert entry["from"] == entry["to"]
        assert word in entry["message"]
        assert entry["reason"] == "SpecChanged"


def test_a_restart_of_the_operator_changes_nothing() -> None:
    cluster = settled(spec=CAPPED)
    before = cluster.table
    cluster.forget()
    assert cluster.tick().actions == ()
    cluster.status = {}
    cluster.forget()
    assert cluster.tick().actions == ()
    assert cluster.table == before
    assert cluster.status["speculation"]["perRequest"] is True


def test_an_operator_killed_before_it_wrote_status_ends_at_the_same() -> None:
    cluster = settled(spec=NGRAM)
    unsaid = deepcopy(cluster.status)
    cluster.edit(speculation=AUTO)
    cluster.tick()
    cluster.status = unsaid
    cluster.forget()
    cluster.settle()
    assert cluster.table["version"] == cluster.status["speculation"]["tableVersion"] == 2
    assert cluster.table["perRequest"] is True


def test_it_stays_when_the_tuner_changes_the_table() -> None:
    cluster = settled(spec=CAPPED)
    for _ in range(60):
        cluster.tick(observed(cluster, batch=40, survival=0.2))
        if cluster.table["version"] > 1:
            break
    assert cluster.table["version"] == 2
    assert cluster.table["perRequest"] is True


def test_nothing_is_written_at_rest() -> None:
    cluster = settled(spec=CAPPED)
    outcome = cluster.look()
    assert (outcome.actions, outcome.events) == ((), ())
    assert not should_write(cluster.status, outcome.status, 0.0, cluster.now + 1e6)


def test_a_hand_that_takes_it_away_is_undone() -> None:
    cluster = settled(spec=CAPPED)
    before = deepcopy(cluster.children[cluster.config("table")]["data"])
    cluster.children[cluster.config("table")]["data"]["table.json"] = before["table.json"].replace("true", "false")
    assert applies(cluster.tick()) == [("ConfigMap", "demo-table", Reason.REPAIRED)]
    assert cluster.children[cluster.config("table")]["data"] == before


def test_pausing_keeps_what_is_in_force() -> None:
    cluster = settled(spec=CAPPED)
    cluster.edit(speculation=Speculation(), paused=True)
    assert cluster.tick().actions == ()
    assert cluster.status["speculation"]["perRequest"] is True
    cluster.edit(paused=False)
    cluster.tick()
    assert "perRequest" not in cluster.table


def test_pods_that_do_not_re_read_tables_end_it() -> None:
    cluster = settled(spec=replace(MINE, speculator=Speculator(Method.NGRAM), speculation=AUTO))
    tell(cluster, CERTAIN_SECONDS + 10.0)
    cluster.edit(adopt=acceptance(NEWER))
    tell(cluster, 20.0)
    cluster.roll()
    cluster.settle()
    assert cluster.status["engine"]["fallback"] is True
    assert "perRequest" not in cluster.status["speculation"]
    assert "PerRequestUnused" in [one["reason"] for one in cluster.status["warnings"]]


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> Tuner:
    scripted = Tuner()
    monkeypatch.setattr("speculative_operator.reconcile.deciding.decide", scripted)
    return scripted


def test_it_waits_with_the_table_while_pods_run_without_a_drafter(tuner: Tuner) -> None:
    spec = with_mode(CAPPED, off_policy=OffPolicy.HARD)
    cluster = removed(tuner, spec)
    version = cluster.status["speculation"]["tableVersion"]
    cluster.status = {}
    cluster.forget()
    cluster.settle()
    assert cluster.status["speculation"]["tableVersion"] == version, "the Deployment remembers it"
    tuner.bring_back(active_table(cluster))
    cluster.tick(observed(cluster, k=0))
    cluster.tick()
    assert cluster.table["perRequest"] is True
    assert cluster.table["version"] == version + 1


# -- where it takes effect


@pytest.mark.parametrize(
    "spec",
    [
        CAPPED,
        with_mode(CAPPED, mode=Mode.RECOMMEND),
        with_mode(CAPPED, mode=Mode.STATIC, schedule=KTable.from_rows([[1, 256, 2]])),
    ],
)
def test_where_it_is_in_force(spec: DeploymentSpec) -> None:
    knobs = engine_for(spec).knobs(spec)
    assert per_request(spec, knobs)
    assert unused_notices(spec, knobs) == ()


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (replace(SPEC, speculation=AUTO), "draft_model"),
        (replace(SPEC, speculator=Speculator(Method.NGRAM_GPU), speculation=AUTO), "Restart"),
        (PIPELINED, "pipeline parallelism"),
        (replace(SPEC, speculator=Speculator(Method.SUFFIX), speculation=AUTO), "Restart"),
        (with_mode(CAPPED, mode=Mode.STATIC, num_speculative_tokens=3), "Restart"),
        (replace(CAPPED, engine=EngineSettings(version="0.34.0")), "Table"),
        (replace(CAPPED, engine=EngineSettings(EngineType.SGLANG, "0.5.23")), "SGLang"),
        (replace(CAPPED, engine=EngineSettings(EngineType.TENSORRT_LLM, "1.3.0rc15")), "TensorRTLLM"),
        (replace(CAPPED, engine=EngineSettings(EngineType.TGI, "3.3.6")), "TGI"),
    ],
)
def test_where_it_is_not_a_warning_says_why(spec: DeploymentSpec, word: str) -> None:
    knobs = engine_for(spec).knobs(spec)
    assert not per_request(spec, knobs)
    (notice,) = unused_notices(spec, knobs)
    assert notice.reason is Reason.PER_REQUEST_UNUSED
    assert word in notice.message
    assert "remove perRequest" in notice.message
    cluster = Cluster(spec=spec)
    outcome = cluster.tick()
    assert notice.message in [one["message"] for one in cluster.status["warnings"]]
    assert [event.type for event in outcome.events if event.reason is Reason.PER_REQUEST_UNUSED] == ["Normal"]
    cluster.settle()
    assert cluster.config("table") not in cluster.children or "perRequest" not in cluster.table


@pytest.mark.parametrize("spec", [with_mode(CAPPED, mode=Mode.DISABLED), replace(CAPPED, speculator=None), SPEC])
def test_no_warning_where_there_are_no_drafts_or_no_wish(spec: DeploymentSpec) -> None:
    assert unused_notices(spec, engine_for(spec).knobs(spec)) == ()
