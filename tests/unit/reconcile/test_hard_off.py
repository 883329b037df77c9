"""Pods without a drafter, and their return: what a tick makes of a tuner that asks for it. The tuner is a script."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.worlds import (
    OFF,
    SPEC,
    Cluster,
    applies,
    observed,
    reasons,
    restart,
    settled,
    template,
    window,
)

from speculative_operator.api.status import Status
from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild, DeleteChild, PokePod
from speculative_operator.domain.decision import Decision, Estimate, Interval, Policy, State
from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import (
    EngineSettings,
    Method,
    Mode,
    ModelSource,
    OffPolicy,
    Scheme,
    Speculation,
    Speculator,
)
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile import deciding
from speculative_operator.reconcile.status import should_write
from speculative_operator.tuner import Memory
from speculative_operator.tuner.memory import Probe

HARD = replace(SPEC, speculation=Speculation(off_policy=OffPolicy.HARD))
FIGURES = Estimate(
    hard_off_gain_percent=Interval(6.2, 9.0, 12.4), gain_percent=Interval(-14.0, -11.0, -8.0), acceptance_length=1.02,
    concurrency=41.0, k=0.0,
)  # fmt: skip


class Tuner:
    """Answers what it was told to; each answer counts for one question."""

    def __init__(self) -> None:
        self.wishes: list[dict[str, Any]] = []
        self.asked = 0

    def __call__(self, memory: Memory, observation: Observation, policy: Policy, now: float) -> tuple[Memory, Decision]:
        self.asked += 1
        state = State.HARD_OFF if memory.hard_off else State.ON
        quiet: dict[str, Any] = {
            "state": state, "table": memory.table, "reason": Reason.TUNED, "message": "best", "valid": True,
            "changed": False, "hard_off": memory.hard_off,
        }  # fmt: skip
        wish = self.wishes.pop(0) if self.wishes else {}
        if wish.pop("ended", False):
            memory = replace(memory, probe=None)
        decision = Decision(**(quiet | wish))
        if decision.changed:
            memory = replace(memory, table=decision.table, hard_off=decision.hard_off, changed_at=now)
        return memory, decision

    def remove(self, table: KTable, **change: Any) -> None:
        wish = {"state": State.HARD_OFF, "table": table, "reason": Reason.DEAD_WEIGHT, "changed": True,
                "hard_off": True, "message": "the drafter loses at 12 to 60 requests", "estimate": FIGURES}  # fmt: skip
        self.wishes.append(wish | change)

    def bring_back(self, table: KTable, **change: Any) -> None:
        wish = {"state": State.ON, "table": table, "reason": Reason.RESUMED, "changed": True, "hard_off": False,
                "message": "the load fell to 3 requests"}  # fmt: skip
        self.wishes.append(wish | change)


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> Tuner:
    script = Tuner()
    monkeypatch.setattr(deciding, "decide", script)
    return script


def in_force(cluster: Cluster) -> KTable:
    return KTable.from_rows(cluster.status["speculation"]["table"])


def drafts(cluster: Cluster) -> bool:
    (container,) = template(cluster.children["Deployment", "demo"])["spec"]["containers"]
    return "--speculative-config" in container["args"]


def without_series(cluster: Cluster) -> Observation:
    """What pods without a speculator show: no figure of drafts at all."""
    bare: dict[str, Any] = {"drafts": None, "draft_tokens": None, "accepted_tokens": None, "accepted_per_position": ()}
    pods = {one["metadata"]["name"]: replace(window(cluster.now, 20, 0), **bare) for one in cluster.pods}
    return Observation(cluster.now, pods)


def removed(tuner: Tuner, spec: Any = HARD) -> Cluster:
    """A cluster whose pods were rolled without drafter, and are ready again."""
    cluster = settled(spec=spec)
    tuner.remove(in_force(cluster))
    cluster.tick(observed(cluster))
    cluster.roll()
    cluster.settle()
    return cluster


# -- the drafter is removed


def test_pods_roll_to_what_mode_off_makes_of_them(tuner: Tuner) -> None:
    cluster = settled(spec=HARD)
    table = in_force(cluster)
    tuner.remove(table)
    outcome = cluster.tick(observed(cluster))
    assert applies(outcome) == [("Deployment", "demo", Reason.DEAD_WEIGHT)]
    assert cluster.templates == 2
    off = settled(spec=OFF).children["Deployment", "demo"]
    deployment = cluster.children["Deployment", "demo"]
    assert template(deployment) == template(off)
    assert deployment["spec"]["strategy"] == off["spec"]["strategy"], "rolled by the usual rules"
    assert not drafts(cluster)


def test_it_is_told_with_reason_and_figures(tuner: Tuner) -> None:
    cluster = settled(spec=HARD)
    table = in_force(cluster)
    tuner.remove(table)
    outcome = cluster.tick(observed(cluster))
    block, (entry,) = cluster.status["speculation"], cluster.status["decisions"]
    assert (block["state"], block["hardOff"], block["k"], block["tableText"]) == ("HardOff", True, "0", "none")
    assert KTable.from_rows(block["table"]) == table, "the table waits"
    assert block["tableVersion"] == entry["tableVersion"] == 2
    assert block["hardOffGain"] == entry["numbers"]["hardOffGain"] == "+9.0%"
    assert block["hardOffGainRange"] == entry["numbers"]["hardOffGainRange"] == "+6% to +12%"
    assert block["hardOffGainPercent"] == {"low": 6, "mid": 9, "high": 12}
    assert (entry["from"], entry["to"], entry["reason"]) == (str(table), "none", "DrafterDeadWeight")
    assert entry["numbers"]["acceptanceLength"] == "1.02"
    assert entry["numbers"]["concurrency"] == "41.0"
    active = cluster.condition("SpeculationActive")
    assert (active["status"], active["reason"]) == ("False", "DrafterDeadWeight")
    assert active["message"] == "the drafter loses at 12 to 60 requests"
    (event,) = [one for one in outcome.events if one.reason is Reason.DEAD_WEIGHT]
    assert event.message == f"table 2: {table} -> none: the drafter loses at 12 to 60 requests"
    assert outcome.memory is not None
    assert outcome.memory.hard_off
    Status.model_validate(cluster.status)


def test_ready_waits_for_the_pods_and_their_config_goes_last(tuner: Tuner) -> None:
    cluster = settled(spec=HARD)
    tuner.remove(in_force(cluster))
    cluster.tick(observed(cluster))
    assert cluster.condition("Ready")["reason"] == "RollingOut"
    cluster.children["Deployment", "demo"]["status"]["updatedReplicas"] = 0
    assert cluster.look().actions == (), "old pods still mount the table"
    cluster.roll()
    outcome = cluster.tick()
    assert {one.name for one in outcome.actions if isinstance(one, DeleteChild)} == {"demo-table", "demo-payload"}
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.look().actions == ()


def test_at_rest_it_stays_as_it_is_and_quiet(tuner: Tuner) -> None:
    cluster = removed(tuner)
    cluster.tick(without_series(cluster))
    before = deepcopy(cluster.status)
    for _ in range(5):
        outcome = cluster.tick(without_series(cluster))
        assert (outcome.actions, outcome.events) == ((), ())
        Status.model_validate(cluster.status)
    assert cluster.condition("MetricsAvailable")["status"] == "True", "no series of drafts is as it should be"
    assert cluster.condition("SpeculationActive") == next(
        one for one in before["conditions"] if one["type"] == "SpeculationActive"
    )
    assert cluster.condition("TuningConverged")["reason"] == "DrafterDeadWeight"
    assert (cluster.status["speculation"]["state"], cluster.status["speculation"]["k"]) == ("HardOff", "0")
    assert not should_write(before, cluster.status, 0.0, cluster.now)
    assert cluster.templates == 2


@pytest.mark.parametrize(
    "speculation",
    [
        Speculation(off_policy=OffPolicy.SOFT),
        Speculation(off_policy=OffPolicy.NEVER),
        Speculation(mode=Mode.RECOMMEND, off_policy=OffPolicy.HARD),
        Speculation(mode=Mode.STATIC, num_speculative_tokens=3, off_policy=OffPolicy.HARD),
    ],
)
def test_only_auto_with_hard_allows_it(tuner: Tuner, speculation: Speculation) -> None:
    cluster = settled(spec=replace(SPEC, speculation=speculation))
    tuner.remove(in_force(cluster))
    outcome = cluster.tick(observed(cluster))
    assert outcome.actions == ()
    assert "hardOff" not in cluster.status["speculation"]
    assert cluster.status["speculation"]["state"] != "HardOff"
    assert outcome.memory is not None
    assert not outcome.memory.hard_off


@pytest.mark.parametrize(
    "look",
    [
        lambda cluster: None,
        lambda cluster: Observation(cluster.now, gap=Gap(Reason.PROMETHEUS_ERROR, "refused")),
        lambda cluster: Observation(cluster.now, {"demo-t1-0": Gap(Reason.METRICS_STALE, "old")}),
    ],
)
def test_never_without_a_look_at_the_pods(tuner: Tuner, look: Callable[[Cluster], Observation | None]) -> None:
    cluster = settled(spec=HARD)
    tuner.remove(in_force(cluster))
    assert cluster.tick(look(cluster)).actions == ()
    assert drafts(cluster)


@pytest.mark.parametrize("change", [{"valid": False}, {"changed": False}])
def test_never_on_a_decision_that_is_none(tuner: Tuner, change: dict[str, Any]) -> None:
    cluster = settled(spec=HARD)
    tuner.remove(in_force(cluster), **change)
    assert cluster.tick(observed(cluster)).actions == ()
    assert "hardOff" not in cluster.status["speculation"]


def test_never_into_another_rollout(tuner: Tuner) -> None:
    cluster = settled(spec=HARD)
    cluster.children["Deployment", "demo"]["status"]["updatedReplicas"] = 1
    tuner.remove(in_force(cluster))
    before = cluster.memory
    outcome = cluster.tick(observed(cluster))
    assert tuner.asked == 1
    assert outcome.actions == ()
    assert outcome.memory is not None
    assert before is not None
    assert (outcome.memory.hard_off, outcome.memory.changed_at) == (False, before.changed_at)
    tuner.remove(in_force(cluster))
    cluster.roll()
    assert applies(cluster.tick(observed(cluster))) == [("Deployment", "demo", Reason.DEAD_WEIGHT)]


def test_never_while_paused(tuner: Tuner) -> None:
    cluster = settled(spec=HARD)
    tuner.remove(in_force(cluster))
    cluster.spec = replace(HARD, paused=True)
    assert cluster.tick(observed(cluster)).actions == ()
    assert tuner.asked == 0


def test_paused_in_hard_off_it_stays_so(tuner: Tuner) -> None:
    cluster = removed(tuner)
    block = deepcopy(cluster.status["speculation"])
    cluster.edit(paused=True, speculation=Speculation())
    tuner.bring_back(in_force(cluster))
    for _ in range(3):
        assert cluster.tick(without_series(cluster)).actions == ()
    assert cluster.status["speculation"] == block
    assert cluster.memory is not None
    assert cluster.memory.hard_off
    cluster.spec = replace(cluster.spec, paused=False)
    cluster.settle()
    assert drafts(cluster), "what the spec asked for meanwhile"


def test_the_tuner_is_not_asked_about_pods_of_two_kinds(tuner: Tuner) -> None:
    cluster = settled(spec=HARD)
    tuner.remove(in_force(cluster))
    cluster.tick(observed(cluster))
    asked = tuner.asked
    cluster.tick(observed(cluster))
    assert tuner.asked == asked, "every ready pod still has its drafter"
    old = cluster.pods[0]
    cluster.roll()
    cluster.pods[0] = old
    cluster.tick(observed(cluster))
    assert tuner.asked == asked
    cluster.roll()
    cluster.tick(without_series(cluster))
    assert tuner.asked == asked + 1


# -- and comes back


def test_a_fallen_load_brings_it_back(tuner: Tuner) -> None:
    cluster = removed(tuner)
    new = KTable.from_rows([[1, 8, 3], [9, 256, 0]])
    tuner.bring_back(new)
    outcome = cluster.tick(without_series(cluster))
    assert applies(outcome) == [
        ("ConfigMap", "demo-table", Reason.CREATED),
        ("ConfigMap", "demo-payload", Reason.CREATED),
    ], "the table is there before the pods that read it"
    assert cluster.condition("Ready")["status"] == "False"
    outcome = cluster.tick()
    assert applies(outcome) == [("Deployment", "demo", Reason.RESUMED)]
    cluster.roll()
    cluster.settle()
    assert drafts(cluster)
    assert cluster.templates == 3
    assert template(cluster.children["Deployment", "demo"]) == template(
        settled(spec=HARD).children["Deployment", "demo"]
    )
    assert names.ANNOTATION_TABLE not in cluster.children["Deployment", "demo"]["metadata"]["annotations"]
    assert cluster.table == {"version": 3, "rows": new.rows()}
    block, entry = cluster.status["speculation"], cluster.status["decisions"][0]
    assert "hardOff" not in block
    assert (entry["from"], entry["to"], entry["reason"]) == ("none", str(new), "SpeculationResumed")
    active = cluster.condition("SpeculationActive")
    assert (active["status"], active["reason"]) == ("True", "SpeculationResumed")
    assert cluster.memory is not None
    assert not cluster.memory.hard_off


def test_a_table_that_waits_is_not_worth_a_write(tuner: Tuner) -> None:
    cluster = removed(tuner)
    waiting = in_force(cluster)
    tuner.remove(KTable.constant(1, 256))
    assert cluster.tick(without_series(cluster)).actions == ()
    assert in_force(cluster) == waiting
    assert cluster.memory is not None
    assert cluster.memory.table == waiting


@pytest.mark.parametrize(
    "change",
    [
        {"speculation": Speculation(off_policy=OffPolicy.SOFT)},
        {"speculation": Speculation(mode=Mode.RECOMMEND, off_policy=OffPolicy.HARD)},
        {"speculation": Speculation(mode=Mode.STATIC, num_speculative_tokens=3, off_policy=OffPolicy.HARD)},
        {"speculator": Speculator(Method.DRAFT_MODEL, ModelSource(Scheme.HF, "Qwen/Qwen3-0.6B", "other"))},
    ],
    ids=["policy", "recommend", "static", "pair"],
)
def test_an_edit_that_takes_it_out_of_the_tuners_hands_brings_it_back(tuner: Tuner, change: dict[str, Any]) -> None:
    cluster = removed(tuner)
    cluster.edit(**change)
    cluster.tick(without_series(cluster))
    assert cluster.status["speculation"]["state"] != "HardOff"
    cluster.settle()
    assert drafts(cluster)
    assert cluster.templates == 3
    assert "hardOff" not in cluster.status["speculation"]
    assert (cluster.status["decisions"][0]["from"], cluster.status["decisions"][0]["reason"]) == ("none", "SpecChanged")
    assert cluster.status["speculation"]["tableVersion"] == 3
    assert cluster.memory is not None
    assert not cluster.memory.hard_off
    Status.model_validate(cluster.status)


def test_mode_off_finds_its_pods_there_already(tuner: Tuner) -> None:
    cluster = removed(tuner)
    cluster.edit(speculation=Speculation(mode=Mode.OFF))
    cluster.settle()
    assert cluster.templates == 2, "no pod is replaced"
    assert cluster.condition("SpeculationActive")["reason"] == "Disabled"
    assert "hardOff" not in cluster.status["speculation"]
    cluster.edit(speculation=Speculation(off_policy=OffPolicy.HARD))
    cluster.settle()
    assert drafts(cluster), "the user's word counts, not what the tuner once found"


def test_other_edits_leave_it_off(tuner: Tuner) -> None:
    cluster = removed(tuner)
    entries = cluster.status["decisions"]
    cluster.edit(
        engine=EngineSettings(args=("--seed=1",)),
        verifier=replace(HARD.verifier, max_num_seqs=64),
        speculation=Speculation(off_policy=OffPolicy.HARD, max_speculative_tokens=1),
    )
    cluster.settle()
    assert not drafts(cluster)
    assert cluster.status["speculation"]["hardOff"]
    assert in_force(cluster) == KTable.constant(1, 64), "the table that waits fits"
    assert cluster.status["decisions"] == entries


# -- what survives


def test_it_survives_a_restart_of_the_operator(tuner: Tuner) -> None:
    cluster = removed(tuner)
    cluster.tick(without_series(cluster))
    before = deepcopy(cluster.status)
    cluster.forget()
    outcome = cluster.tick()
    assert outcome.actions == ()
    assert outcome.memory is not None
    assert outcome.memory.hard_off
    assert outcome.memory.table == KTable.from_rows(before["speculation"]["table"])
    assert not should_write(before, cluster.status, 0.0, cluster.now)


@pytest.mark.parametrize("spec", [HARD, replace(restart(), speculation=HARD.speculation)], ids=["live", "restart"])
def test_killed_between_the_rollout_and_status_it_is_not_rolled_back(tuner: Tuner, spec: Any) -> None:
    cluster = settled(spec=spec)
    table = in_force(cluster)
    tuner.remove(table)
    outcome = cluster.look(observed(cluster))
    for action in outcome.actions:
        cluster.carry_out(action)
    cluster.forget()
    cluster.roll()
    cluster.settle()
    assert cluster.templates == 2
    assert not drafts(cluster)
    block = cluster.status["speculation"]
    assert (block["hardOff"], block["tableVersion"], in_force(cluster)) == (True, 2, table)
    assert cluster.memory is not None
    assert cluster.memory.hard_off


@pytest.mark.parametrize("wiped", [True, False])
@pytest.mark.parametrize("done", range(3))
def test_killed_on_the_way_back_no_pod_is_replaced_twice(tuner: Tuner, done: int, wiped: bool) -> None:
    cluster = removed(tuner)
    tuner.bring_back(KTable.constant(3, 256))
    for action in cluster.look(without_series(cluster)).actions[:done]:
        cluster.carry_out(action)
    cluster.forget()
    if wiped:
        cluster.status = {}
    cluster.settle()
    assert drafts(cluster) is (done > 0)
    assert cluster.templates == (3 if done else 2)
    assert cluster.status["speculation"].get("hardOff", False) is (done == 0)


@pytest.mark.parametrize("spec", [HARD, replace(restart(), speculation=HARD.speculation)], ids=["live", "restart"])
def test_a_wiped_status_is_rebuilt_from_the_cluster(tuner: Tuner, spec: Any) -> None:
    cluster = removed(tuner, spec)
    table = in_force(cluster)
    cluster.status = {}
    cluster.forget()
    cluster.settle()
    assert cluster.templates == 2
    assert not drafts(cluster)
    assert in_force(cluster) == table
    assert cluster.status["speculation"]["hardOff"]
    assert cluster.condition("SpeculationActive")["reason"] == "DrafterDeadWeight"


def test_a_claim_to_be_off_counts_only_where_the_spec_allows_it(tuner: Tuner) -> None:
    cluster = settled()
    deployment = cluster.children["Deployment", "demo"]
    deployment["metadata"]["annotations"][names.ANNOTATION_TABLE] = '{"version":9,"rows":[[1,256,3]],"hardOff":true}'
    cluster.status["speculation"]["hardOff"] = True
    cluster.forget()
    cluster.settle()
    assert drafts(cluster)
    assert "hardOff" not in cluster.status["speculation"]


def test_a_deleted_deployment_comes_back_without_drafter(tuner: Tuner) -> None:
    cluster = removed(tuner)
    before = cluster.children.pop(("Deployment", "demo"))
    outcome = cluster.tick()
    assert applies(outcome) == [("Deployment", "demo", Reason.REPAIRED)]
    assert template(cluster.children["Deployment", "demo"]) == template(before)


# -- probes


def probe(tuner: Tuner, cluster: Cluster) -> KTable:
    """A probe begins; the table before it."""
    base = in_force(cluster)
    tuner.wishes.append(
        {"state": State.PROBING, "table": KTable.constant(1, 256), "reason": Reason.PROBING, "changed": True}
    )
    return base


def test_a_probe_is_counted_and_nothing_else_is_said_of_it(tuner: Tuner) -> None:
    cluster = settled()
    cluster.tick(observed(cluster))
    conditions = deepcopy(cluster.status["conditions"])
    base = probe(tuner, cluster)
    outcome = cluster.tick(observed(cluster))
    assert applies(outcome) == [("ConfigMap", "demo-table", Reason.PROBING)]
    assert (outcome.events, outcome.probe) == ((), Reason.PROBING)
    assert cluster.status["speculation"]["state"] == "Probing"
    for _ in range(2):
        assert (cluster.status["conditions"], cluster.status["decisions"]) == (conditions, [])
        assert {type(one) for one in cluster.tick().actions} <= {PokePod}
    tuner.wishes.append({"table": base, "reason": Reason.PROBED, "changed": True})
    outcome = cluster.tick(observed(cluster))
    assert (outcome.events, outcome.probe) == ((), Reason.PROBED)
    assert in_force(cluster) == base
    assert cluster.table == {"version": 3, "rows": base.rows()}
    cluster.tick(observed(cluster))
    assert (cluster.status["conditions"], cluster.status["decisions"]) == (conditions, [])
    assert cluster.tick().probe is None


@pytest.mark.parametrize("wider", [False, True])
def test_a_probe_that_stays_is_one_decision_from_the_table_before_it(tuner: Tuner, wider: bool) -> None:
    cluster = settled()
    base = probe(tuner, cluster)
    cluster.tick(observed(cluster))
    assert cluster.memory is not None
    cluster.memory = replace(cluster.memory, probe=Probe(base, 1, cluster.now, cluster.now + 15))
    cluster.tick(observed(cluster))
    assert cluster.status["decisions"] == []
    stays = KTable.from_rows([[1, 200, 1], [201, 256, 0]]) if wider else KTable.constant(1, 256)
    # where nothing is left to write the tuner says so
    tuner.wishes.append({"table": stays, "reason": Reason.FASTER, "changed": wider, "ended": True})
    outcome = cluster.tick(observed(cluster))
    assert bool([one for one in outcome.actions if isinstance(one, ApplyChild)]) is wider
    (entry,) = cluster.status["decisions"]
    assert (entry["from"], entry["to"], entry["reason"]) == (str(base), str(stays), "FasterTable")
    assert Reason.FASTER in reasons(outcome)
    assert cluster.condition("SpeculationActive")["reason"] == "FasterTable"
    assert outcome.probe is None
    cluster.tick(observed(cluster))
    assert len(cluster.status["decisions"]) == 1
