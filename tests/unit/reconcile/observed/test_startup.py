"""Budgets of starts: measured on ready pods, never below the adapter's, never a reason to replace a pod."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.reconcile.scripted import Tuner
from tests.unit.reconcile.worlds import Cluster, observed, pod, settled, template

from speculative_operator.domain import names
from speculative_operator.domain.formats import timestamp
from speculative_operator.reconcile.observed import startup
from speculative_operator.reconcile.observed.startup import budget, collect_starts
from speculative_operator.reconcile.snapshot.pods import read_pods
from speculative_operator.reconcile.snapshot.status import MOST_START_SECONDS, Start, read_status

LABELS = {names.LABEL_PAIR: "p"}
BEGIN = 1_799_990_000.0
START = Start("a", timestamp(BEGIN), 100, 10**10)
PROBE = {"periodSeconds": 2, "failureThreshold": 450, "timeoutSeconds": 5}


def started(name: str, seconds: float, at: float = BEGIN, probe: Any = None, **labels: str) -> dict[str, Any]:
    """A pod that was ready so long after its engine's container had started."""
    found = pod(name, LABELS | labels)
    found["spec"] = {"containers": [{"name": "engine", "startupProbe": PROBE if probe is None else probe}]}
    running = {"running": {"startedAt": timestamp(at)}}
    found["status"]["containerStatuses"] = [{"name": "engine", "started": True, "state": running}]
    ready = {"status": "True", "lastTransitionTime": timestamp(at + seconds)}
    found["status"]["conditions"] = [{"type": kind, **ready} for kind in ("Ready", "ContainersReady")]
    return found


def ended(seconds: float, **terminated: Any) -> dict[str, Any]:
    """A pod whose engine ended before it was ready."""
    found = started("late", 0)
    found["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    times = {"startedAt": timestamp(BEGIN), "finishedAt": timestamp(BEGIN + seconds), "exitCode": 137}
    (status,) = found["status"]["containerStatuses"]
    status |= {"started": False, "lastState": {"terminated": times | terminated}}
    return found


def measure(cluster: Cluster, seconds: float) -> None:
    """Every pod of the cluster came up in so long."""
    deployment = cluster.children["Deployment", "demo"]
    for one in cluster.pods:
        told = started(one["metadata"]["name"], seconds)
        one["spec"] = template(deployment)["spec"]
        one["status"] |= told["status"]


def probe_seconds(cluster: Cluster) -> int:
    (container,) = template(cluster.children["Deployment", "demo"])["spec"]["containers"]
    return int(container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"])


# -- what is measured


def test_a_ready_pod_tells_how_long_its_engine_took() -> None:
    assert collect_starts((), read_pods([started("a", 214)]), "p", 16 * 10**9) == (
        Start("a", timestamp(BEGIN), 214, 16 * 10**9),
    )


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"name": "a", "labels": {names.LABEL_PAIR: "another"}}},
        {"metadata": {"name": "a", "labels": LABELS, "deletionTimestamp": timestamp(BEGIN)}},
        {"status": {}},
        {"status": {"conditions": "x", "containerStatuses": [{"name": "engine", "state": 7}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        {"spec": {}},
    ],
)
def test_what_tells_nothing_is_no_measure(change: dict[str, Any]) -> None:
    assert collect_starts((), read_pods([started("a", 100) | change]), "p", 1) == ()


@pytest.mark.parametrize("seconds", [-5, 961, 10_000])
def test_no_start_lasts_longer_than_its_own_probe_lets_it(seconds: float) -> None:
    assert collect_starts((), read_pods([started("a", seconds)]), "p", 1) == ()


def test_a_start_is_measured_once() -> None:
    first = collect_starts((), read_pods([started("a", 100)]), "p", 1)
    told = {"startup": startup.to_status(first, 900)}
    assert read_status(told).starts == first
    assert collect_starts(first, read_pods([started("a", 700)]), "p", 1) == first, (
        "it was unready for a while, later on"
    )
    again = collect_starts(first, read_pods([started("a", 120, at=BEGIN + 3600)]), "p", 1)
    assert [one.seconds for one in again] == [120, 100], "a container that was started again"


def test_the_last_few_are_kept() -> None:
    pods = [started(f"p{number}", 100 + number, at=BEGIN + number) for number in range(9)]
    assert [one.pod for one in collect_starts((), read_pods(pods), "p", 1)] == ["p8", "p7", "p6", "p5", "p4"]


# -- what follows


def test_three_times_what_is_expected() -> None:
    assert budget([], 10**10) == 0
    assert budget([replace(START, seconds=400)], 0) == 1200
    assert budget([START], 40 * 10**9) == 1200, "40 GB at 100 MB/s, three times"
    assert budget([START], 10**9) == 300, "a smaller pair is not expected to be faster"
    assert budget([START, replace(START, seconds=5000), replace(START, seconds=110)], 0) == 360, "the median"


@given(
    st.lists(st.builds(Start, st.just("a"), st.just(timestamp(BEGIN)), st.integers(1, 43200), st.integers(0, 10**13))),
    st.integers(0, 10**14),
)
def test_no_budget_is_absurd(known: list[Start], size: int) -> None:
    found = budget(known, size)
    assert 0 <= found <= MOST_START_SECONDS
    assert found % startup.STEP_SECONDS == 0
    if known:
        middle = sorted(one.seconds for one in known)[(len(known) - 1) // 2]
        assert found >= min(startup.MARGIN * middle, MOST_START_SECONDS)


# -- what it does to pods


def test_a_measure_replaces_no_pod_and_writes_once() -> None:
    cluster = settled()
    templates, before = cluster.templates, probe_seconds(cluster)
    measure(cluster, 1500)
    outcome = cluster.tick()
    assert outcome.actions == ()
    assert cluster.status["startup"]["loadSeconds"] == 1500
    assert cluster.status["startup"]["budgetSeconds"] == before
    told = cluster.status["startup"]
    assert cluster.settle().actions == ()
    assert (cluster.status["startup"], cluster.templates) == (told, templates)


def test_the_next_change_of_the_template_brings_the_budget_and_keeps_it() -> None:
    cluster = settled()
    before = probe_seconds(cluster)
    measure(cluster, 1500)
    cluster.tick()
    cluster.edit(engine=replace(cluster.spec.engine, args=("--seed", "1")))
    cluster.settle()
    assert probe_seconds(cluster) == 4500 > before
    deployment = cluster.children["Deployment", "demo"]
    assert deployment["spec"]["progressDeadlineSeconds"] == 5100
    (container,) = template(deployment)["spec"]["containers"]
    assert {"name": "VLLM_ENGINE_READY_TIMEOUT_S", "value": "4500"} in container["env"]
    assert cluster.status["startup"]["budgetSeconds"] == 4500
    templates = cluster.templates
    for number in range(5):  # faster starts, of which the median is far below
        for one in cluster.pods:
            one["status"] |= started(one["metadata"]["name"], 20, at=BEGIN + 60 * number)["status"]
        cluster.tick()
    assert cluster.status["startup"]["loadSeconds"] == 20
    cluster.forget()
    cluster.edit(replicas=3)
    cluster.settle()
    assert (probe_seconds(cluster), cluster.templates) == (4500, templates)
    assert cluster.status["startup"]["budgetSeconds"] == 4500


def test_the_tuner_is_told_what_a_start_takes(tuner: Tuner) -> None:
    cluster = settled()
    cluster.tick(observed(cluster))
    measure(cluster, 1500)
    cluster.tick(observed(cluster))
    cluster.tick(observed(cluster))
    assert tuner.rollouts[0] is None
    assert tuner.rollouts[-1] == 1500


def test_no_measure_takes_from_the_budget() -> None:
    cluster = settled()
    before = probe_seconds(cluster)
    measure(cluster, 5)
    cluster.tick()
    cluster.edit(engine=replace(cluster.spec.engine, args=("--seed", "1")))
    cluster.settle()
    assert probe_seconds(cluster) == before


# -- what its end tells


@pytest.mark.parametrize(("seconds", "told"), [(30, 0), (889, 0), (892, 900), (905, 900), (2500, 0)])
def test_a_start_that_lasted_its_budget_was_ended_by_its_probe(seconds: float, told: int) -> None:
    late = ended(seconds)
    late["spec"]["containers"][0]["startupProbe"] = PROBE | {"timeoutSeconds": 1}
    assert read_pods([late])[0].outlasted == told


def test_memory_that_ran_out_is_no_matter_of_time() -> None:
    assert read_pods([ended(901, reason="OOMKilled")])[0].outlasted == 0
    assert read_pods([ended(901, reason="Error")])[0].outlasted == 900


def test_it_is_told_with_budget_and_remedy() -> None:
    cluster = settled()
    late = ended(901)
    late["metadata"] = cluster.pods[0]["metadata"]
    cluster.pods[0] = late
    cluster.children["Deployment", "demo"]["status"] |= {"readyReplicas": 1, "availableReplicas": 1}
    outcome = cluster.tick()
    ready = cluster.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "StartTimedOut")
    assert "not ready within 900 s" in ready["message"]
    (warning,) = cluster.status["warnings"]
    assert warning["reason"] == "StartTimedOut"
    assert "startupProbe: {failureThreshold: 1350}" in warning["message"]
    assert ("Warning", "StartTimedOut") in [(one.type, one.reason.value) for one in outcome.events]
    assert cluster.tick().events == ()
