"""When status is written, what moves in it, and what is told as an event."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.scripted import Tuner, active_table
from tests.unit.reconcile.worlds import KEPT, NOW, SPEC, Cluster, observed, reasons, settled

from speculative_operator.domain import formats
from speculative_operator.domain.actions import Condition, Truth
from speculative_operator.domain.decision import Basis, Estimate, Interval
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import EXPLANATIONS, ConditionType, Reason
from speculative_operator.domain.spec import Mode, Speculation
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile.report.conditions import stamp
from speculative_operator.reconcile.report.events import events
from speculative_operator.reconcile.report.figures import numbers
from speculative_operator.reconcile.snapshot.status import Status, read_status
from speculative_operator.reconcile.snapshot.writing import cannot_wait, should_write

STATUS: dict[str, Any] = {
    "conditions": [{"type": "Ready", "status": "True", "reason": "AllReady", "message": "2 of 2 pods are ready"}],
    "observedGeneration": 3,
    "replicas": 2,
    "readyReplicas": 2,
    "speculation": {
        "table": [[1, 256, 3]], "tableVersion": 4, "k": "3", "state": "On", "acceptanceRate": "61.3%", "tpot": "9.8ms",
        "concurrency": "40.0", "gain": "+38.2%", "gainPercent": {"low": 30, "mid": 38, "high": 45},
        "message": "x", "reason": "Tuned", "observedAt": "2027-01-15T08:00:00Z",
    },
    "decisions": [],
    "memory": {"a": "1"},
}  # fmt: skip


def changed(**change: Any) -> dict[str, Any]:
    return {**deepcopy(STATUS), **change}


def figures(**change: Any) -> dict[str, Any]:
    return changed(speculation={**STATUS["speculation"], **change})


@pytest.mark.parametrize(
    "new",
    [
        changed(observedGeneration=4),
        changed(readyReplicas=1),
        changed(conditions=[]),
        changed(decisions=[{"time": "t", "to": "1-256:1", "reason": "FasterTable"}]),
        figures(table=[[1, 256, 2]]),
        figures(tableVersion=5),
        changed(pair={"verifier": "hf://x"}),
    ],
)
def test_what_matters_is_written_at_once(new: dict[str, Any]) -> None:
    assert should_write(STATUS, new, last_write=1000.0, now=1000.1)


@pytest.mark.parametrize(
    "new",
    [
        figures(k="2"),
        figures(state="Off"),
        figures(concurrency="45.0"),
        figures(tpot="9.1ms"),
        figures(acceptanceRate="70.0%"),
        figures(gain="+31.0%"),
        figures(gain="-1.0%"),
        figures(gain="~+31.0%"),
        figures(gainBasis="Estimated"),
        figures(gainPercent={"low": 24, "mid": 38, "high": 45}),
        figures(tpotOff="12ms"),
        figures(reason="WithinMargin"),
    ],
)
def test_figures_that_moved_wait_half_a_minute(new: dict[str, Any]) -> None:
    assert not should_write(STATUS, new, last_write=1000.0, now=1029.9)
    assert should_write(STATUS, new, last_write=1000.0, now=1030.0)
    assert should_write(new, STATUS, last_write=1000.0, now=1030.0)


@pytest.mark.parametrize(
    "new",
    [
        changed(),
        figures(concurrency="41.5"),
        figures(tpot="10.1ms"),
        figures(acceptanceRate="62.0%"),
        figures(gain="+41.0%"),
        figures(gain="~+41.0%"),
        figures(gainPercent={"low": 27, "mid": 35, "high": 49}),
        figures(message="another sentence", observedAt="2027-01-15T09:00:00Z"),
        changed(memory={"b": "2"}),
    ],
)
def test_noise_is_never_written(new: dict[str, Any]) -> None:
    assert not should_write(STATUS, new, last_write=0.0, now=1e9)


def test_a_verdict_at_the_edge_of_a_margin_waits_like_a_figure() -> None:
    def verdict(status: str) -> dict[str, Any]:
        return changed(conditions=[*STATUS["conditions"], {"type": "TuningConverged", "status": status}])

    assert not should_write(verdict("True"), verdict("False"), last_write=1000.0, now=1029.0)
    assert should_write(verdict("True"), verdict("False"), last_write=1000.0, now=1030.0)


def test_a_first_status_is_written() -> None:
    assert should_write({}, STATUS, last_write=0.0, now=0.0)


# -- conditions


def condition(status: Truth, message: str = "m") -> Condition:
    return Condition(ConditionType.READY, status, Reason.ALL_READY, message)


def test_transition_time_moves_with_the_status_only() -> None:
    (first,) = stamp([condition(Truth.FALSE)], Status(), 1, 1_800_000_000.0)
    assert first["lastTransitionTime"] == "2027-01-15T08:00:00Z"
    (second,) = stamp([condition(Truth.FALSE, "other")], read_status({"conditions": [first]}), 2, 1_800_000_060.0)
    assert second["lastTransitionTime"] == first["lastTransitionTime"]
    assert (second["message"], second["observedGeneration"]) == ("other", 2)
    (third,) = stamp([condition(Truth.TRUE)], read_status({"conditions": [second]}), 2, 1_800_000_060.0)
    assert third["lastTransitionTime"] == "2027-01-15T08:01:00Z"


def test_what_is_no_time_is_shown_as_none() -> None:
    assert timestamp(float("nan")) == timestamp(1e300) == ""


def with_deployment(cluster: Cluster, **status: Any) -> Cluster:
    cluster.children["Deployment", "demo"]["status"] |= status
    return cluster


def up() -> Cluster:
    cluster = Cluster()
    cluster.settle()
    return cluster


def ready(cluster: Cluster) -> tuple[str, str, str]:
    cluster.tick()
    one = cluster.condition("Ready")
    return one["status"], one["reason"], one["message"]


def test_a_pod_that_cannot_start_is_named() -> None:
    cluster = with_deployment(up(), readyReplicas=1, availableReplicas=1)
    cluster.pods[1]["status"] = {
        "phase": "Pending",
        "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}],
    }
    assert ready(cluster) == ("False", "PodsNotReady", "1 of 2 pods are ready; demo-t1-1 ImagePullBackOff: not found")
    assert cluster.condition("Available")["status"] == "True"


def test_a_stalled_rollout_is_unhealthy_while_old_pods_serve() -> None:
    stalled = {"type": "Progressing", "reason": "ProgressDeadlineExceeded", "message": "ReplicaSet timed out"}
    cluster = with_deployment(up(), updatedReplicas=1, conditions=[stalled])
    assert ready(cluster)[1] == "RolloutStalled"
    assert cluster.condition("RolloutHealthy")["status"] == "False"
    assert cluster.condition("Available")["status"] == "True"
    assert cluster.condition("Progressing")["reason"] == "RolloutStalled"


def test_replicas_zero_is_as_asked() -> None:
    cluster = Cluster(spec=replace(SPEC, replicas=0))
    cluster.settle()
    assert cluster.condition("Ready")["reason"] == "ScaledToZero"
    assert cluster.condition("Available")["status"] == "False"
    assert cluster.condition("MetricsAvailable")["reason"] == "NoPods"


def test_all_old_pods_ready_is_not_yet_rolled_out() -> None:
    assert ready(with_deployment(up(), updatedReplicas=1))[:2] == ("False", "RollingOut")


# -- tuning conditions


def tuned() -> Cluster:
    cluster = settled(spec=KEPT)
    for _ in range(4):
        cluster.tick(observed(cluster))
    assert cluster.condition("TuningConverged")["status"] == "True"
    return cluster


def test_idleness_leaves_what_is_known_standing() -> None:
    cluster = tuned()
    before = {one["type"]: (one["status"], one["reason"]) for one in cluster.status["conditions"]}
    idle = Observation(cluster.now, {pod["metadata"]["name"]: Gap(Reason.IDLE, "no requests") for pod in cluster.pods})
    outcome = cluster.tick(idle)
    assert outcome.events == ()
    assert {one["type"]: (one["status"], one["reason"]) for one in cluster.status["conditions"]} == before


def test_a_change_says_not_converged_until_confirmed() -> None:
    cluster = tuned()
    known = len(cluster.status["decisions"])
    while len(cluster.status["decisions"]) == known:
        cluster.tick(observed(cluster, batch=200, survival=0.2))
    changed_to = cluster.condition("TuningConverged")
    assert changed_to["status"] == "False"
    assert changed_to["reason"] == cluster.status["decisions"][0]["reason"]
    for _ in range(90):
        cluster.tick(observed(cluster, batch=200, survival=0.2))
    assert cluster.condition("TuningConverged")["status"] == "True"


def test_a_table_of_zeros_is_not_active() -> None:
    schedule = KTable.from_rows([[1, 256, 0]])
    cluster = Cluster(spec=replace(SPEC, speculation=Speculation(mode=Mode.STATIC, schedule=schedule)))
    cluster.tick()
    active = cluster.condition("SpeculationActive")
    assert (active["status"], active["reason"]) == ("False", "Fixed")
    assert cluster.status["speculation"]["state"] == "Off"


# -- events


def conditions(**states: tuple[str, str]) -> Status:
    entries = [
        {"type": kind, "status": status, "reason": reason, "message": f"{kind} {reason}"}
        for kind, (status, reason) in states.items()
    ]
    return read_status({"conditions": entries})


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (("False", "NoPods"), ("True", "AllReady"), [("Normal", Reason.ALL_READY)]),
        (("True", "AllReady"), ("False", "PodsNotReady"), [("Warning", Reason.PODS_NOT_READY)]),
        (("False", "NoPods"), ("False", "PodsNotReady"), []),
        (("False", "NoPods"), ("False", "RenderInvalid"), [("Warning", Reason.RENDER_INVALID)]),
        (("False", "RenderInvalid"), ("False", "RenderInvalid"), []),
        (("True", "AllReady"), ("True", "ScaledToZero"), []),
    ],
)
def test_transitions_of_ready(before: tuple[str, str], after: tuple[str, str], told: list[tuple[str, Reason]]) -> None:
    found = events(conditions(Ready=before), conditions(Ready=after), ())
    assert [(event.type, event.reason) for event in found] == told


def test_the_first_samples_are_no_news() -> None:
    old, new = ("Unknown", "Starting"), ("True", "MetricsFound")
    assert events(conditions(MetricsAvailable=old), conditions(MetricsAvailable=new), ()) == ()


def test_a_guard_is_a_warning() -> None:
    entry = {"time": "t", "from": "1-8:3", "to": "1-8:0", "reason": Reason.GUARD.value, "message": "slower"}
    (event,) = events(Status(), read_status({"decisions": [entry], "speculation": {"tableVersion": 7}}), ())
    assert (event.type, event.reason) == ("Warning", Reason.GUARD)
    assert event.message == "table 7: 1-8:3 -> 1-8:0: slower"


# -- figures as text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (formats.share(0.6131), "61.3%"),
        (formats.signed_percent(38.24), "+38.2%"),
        (formats.signed_percent(-3.0), "-3.0%"),
        (formats.signed_percent(0.0), "+0.0%"),
        (formats.milliseconds(0.00981), "9.81ms"),
        (formats.milliseconds(0.1234), "123ms"),
        (formats.milliseconds(1.5), "1500ms"),
        (formats.milliseconds(12.0), "12s"),
        (formats.number(40.04), "40.0"),
        (formats.money(0.0015204), "0.00152"),
        (formats.share(float("nan")), ""),
        (formats.signed_percent(float("inf")), ""),
        (formats.milliseconds(None), ""),
        (formats.milliseconds(-1.0), ""),
        (formats.money(-1.0), ""),
    ],
)
def test_figures_as_people_read_them(text: str, expected: str) -> None:
    assert text == expected


def test_an_interval_is_whole_percent_or_nothing() -> None:
    assert formats.whole_percent(Interval(-1.6, 2.4, 9.5)) == {"low": -2, "mid": 2, "high": 10}
    assert formats.whole_percent(Interval(float("-inf"), 2.4, 9.5)) is None
    assert formats.whole_percent(None) is None


def test_the_mode_is_that_of_the_spec_or_paused() -> None:
    """The column of `kubectl get` reads it."""
    cluster = settled(spec=replace(SPEC, speculation=Speculation(mode=Mode.RECOMMEND)))
    assert cluster.status["mode"] == "Recommend"
    before = deepcopy(cluster.status)
    cluster.annotate(paused=True)
    cluster.tick()
    assert cluster.status["mode"] == "Paused"
    assert cannot_wait(before, cluster.status)
    cluster.annotate(paused=False)
    cluster.tick()
    assert cluster.status["mode"] == "Recommend"


def test_pausing_and_going_on_are_told_once_each() -> None:
    cluster = settled()
    told: list[tuple[str, Reason]] = []
    for paused in (True, True, False, False):
        cluster.annotate(paused=paused)
        told += [(one.type, one.reason) for one in cluster.tick().events]
    assert told == [("Normal", Reason.PAUSED), ("Normal", Reason.UNPAUSED)]


# -- between two looks


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


# -- a target that no K meets

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


@pytest.mark.parametrize(("basis", "told"), [(Basis.MEASURED, "+20.0%"), (Basis.ESTIMATED, "~+20.0%")])
def test_a_gain_that_nobody_measured_bears_a_mark(basis: Basis, told: str) -> None:
    found = numbers(Estimate(gain_percent=Interval(10.0, 20.0, 30.0), gain_basis=basis))
    assert (found["gain"], found["gainRange"], found["gainBasis"]) == (told, "+10% to +30%", basis.value)
    assert numbers(Estimate())["gain"] == numbers(Estimate())["gainBasis"] == ""
