"""Harm: the operator leaves a K on trial in force, because figures are missing, or because it was started again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.worlds import SPEC, Cluster, observed, settled

from speculative_operator.api.status import Status
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.knobs import Actuator, KnobSpace
from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode, Speculation
from speculative_operator.domain.table import KTable
from speculative_operator.tuner import Memory, decide
from speculative_operator.tuner.memory import Probe
from speculative_operator.tuner.probe import GRACE_SECONDS, MOST_TRIALS


def on_trial() -> tuple[Cluster, KTable]:
    """A cluster that its tuner has put on trial, and the table before."""
    cluster = settled()
    for _ in range(120):
        base = KTable.from_rows(cluster.status["speculation"]["table"])
        cluster.tick(observed(cluster))
        if "trial" in cluster.table:
            return cluster, base
    raise AssertionError("no trial within twenty minutes of a steady load")


def dark(cluster: Cluster) -> Observation:
    return Observation(cluster.now, gap=Gap(Reason.PROMETHEUS_TIMEOUT, "no answer within 5 s"))


def in_force(cluster: Cluster) -> KTable:
    return KTable.from_rows(cluster.table["rows"])


def test_a_trial_is_never_written_without_its_end_and_its_way_back() -> None:
    cluster, base = on_trial()
    trial = cluster.table["trial"]
    assert KTable.from_rows(trial["rows"]) == base
    assert trial["version"] == cluster.table["version"] - 1
    assert 15 + GRACE_SECONDS <= trial["seconds"] <= 45 + GRACE_SECONDS
    assert cluster.status["speculation"]["trial"] == trial
    Status.model_validate(cluster.status)


@pytest.mark.parametrize("seen", ["no answer", "nothing asked"])
def test_a_trial_never_outlasts_its_end_without_figures(seen: str) -> None:
    cluster, base = on_trial()
    version = cluster.table["version"]
    for _ in range(10):
        cluster.tick(dark(cluster) if seen == "no answer" else None)
    assert in_force(cluster) == base
    assert cluster.table["version"] > version
    assert "trial" not in cluster.table
    assert "trial" not in cluster.status["speculation"]
    assert cluster.status["decisions"] == [], "a trial that brought nothing is no news"
    quiet = cluster.tick(dark(cluster))
    assert quiet.actions == ()


@pytest.mark.parametrize("wiped", [False, True])
def test_a_restart_of_the_operator_never_leaves_a_trial_in_force(wiped: bool) -> None:
    cluster, base = on_trial()
    version = cluster.table["version"]
    cluster.forget()
    if wiped:
        cluster.status = {}
    cluster.tick()
    assert in_force(cluster) == base
    assert cluster.table["version"] == version + 1
    assert "trial" not in cluster.table


def test_an_operator_killed_before_it_said_so_never_leaves_a_trial_in_force() -> None:
    """The ConfigMap has the trial, and status does not know of it."""
    cluster, base = on_trial()
    before = cluster.children[cluster.config("table")]
    other = settled()
    other.children[other.config("table")] = before
    version = other.status["speculation"]["tableVersion"]
    other.status["speculation"] |= {"table": base.rows(), "tableVersion": max(version, before_version(before) - 1)}
    other.forget()
    other.tick()
    assert in_force(other) == base
    assert "trial" not in other.table


def before_version(config: Any) -> int:
    return int(json.loads(config["data"]["table.json"])["version"])


def test_an_edit_within_a_trial_never_starts_from_the_k_on_trial() -> None:
    cluster, base = on_trial()
    cluster.edit(speculation=replace(SPEC.speculation, max_speculative_tokens=base.max_k))
    cluster.tick()
    assert "trial" not in cluster.table or KTable.from_rows(cluster.table["trial"]["rows"]) == base
    for _ in range(10):
        cluster.tick(dark(cluster))
    assert in_force(cluster).max_k <= base.max_k


def test_decide_never_holds_a_trial_whose_time_is_over() -> None:
    policy = Policy(Mode.AUTO, KnobSpace(Actuator.LIVE, (0, 1, 3, 7), 64))
    base, tried, now = KTable.constant(1, 64), KTable.constant(7, 64), 1_800_000_000.0
    memory = replace(Memory.fresh(tried, now - 1000), probe=Probe(base, 7, now, now + 15), changed_at=now, windows=50)
    for hold in (Observation(now + 20, gap=Gap(Reason.PROMETHEUS_TIMEOUT, "?")), Observation(now + 20)):
        after, decision = decide(memory, hold, policy, now + 20)
        assert (decision.table, decision.changed, decision.valid) == (base, True, True)
        assert after.probe is None


def test_pods_of_the_release_before_are_never_put_on_a_trial_that_they_cannot_end() -> None:
    cluster = settled()
    kind, name = cluster.config("payload")
    content = cluster.children[kind, name]
    for one in cluster.children["Deployment", "demo"]["spec"]["template"]["spec"]["volumes"]:
        if one["name"] == "payload":
            one["configMap"]["name"] = "demo-payload"
    content["metadata"]["name"] = "demo-payload"
    cluster.children = {
        key if key != (kind, name) else (kind, "demo-payload"): value for key, value in cluster.children.items()
    }
    annotations = cluster.children["Deployment", "demo"]["metadata"]["annotations"]
    annotations |= {
        key: "of the release before" for key in annotations if key.endswith(("rendered-hash", "template-hash"))
    }
    cluster.upgraded = True
    cluster.forget()
    for _ in range(120):
        cluster.tick(observed(cluster))
        assert "trial" not in cluster.table
        assert cluster.status["speculation"]["state"] != "Probing"


def test_trials_of_an_hour_never_exceed_their_number() -> None:
    """Those that are made in any case count too."""
    cluster = settled()
    began: set[int] = set()
    for _ in range(360):
        cluster.tick(observed(cluster))
        trial = cluster.table.get("trial")
        if trial is not None:
            began.add(trial["version"])
    assert len(began) <= MOST_TRIALS


def test_an_edit_that_takes_the_tuner_its_word_never_leaves_a_trial_in_force() -> None:
    cluster, base = on_trial()
    cluster.edit(speculation=Speculation(mode=Mode.RECOMMEND))
    for _ in range(3):
        cluster.tick(observed(cluster))
    assert "trial" not in cluster.table
    assert in_force(cluster) == base
