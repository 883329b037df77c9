"""Engines whose table is part of the pod template: one rollout at a time, seldom, none lost or undone by a restart."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace

import pytest
from tests.unit.reconcile.scripted import Tuner, active_table
from tests.unit.reconcile.worlds import SPEC, Cluster, observed, remade, restart, settled, template

from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import (
    DEFAULT_VERSIONS,
    DeploymentSpec,
    EngineSettings,
    EngineType,
    Method,
    ModelSource,
    Scheme,
    Speculator,
)
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.pace import ROLLOUT_DWELL

HEAD = Speculator(Method.EAGLE3, ModelSource(Scheme.HF, "RedHatAI/Qwen3-8B-speculator.eagle3"))


def of(engine: EngineType) -> DeploymentSpec:
    """An object of another engine at its default version."""
    return replace(SPEC, engine=EngineSettings(engine, DEFAULT_VERSIONS[engine]), speculator=HEAD)


SGLANG = of(EngineType.SGLANG)
NEW = KTable.from_rows([[1, 16, 3], [17, 64, 1], [65, 256, 0]])


def change(tuner: Tuner, table: KTable = NEW) -> None:
    tuner.wishes.append({"table": table, "reason": Reason.FASTER, "changed": True, "message": "faster"})


def files(cluster: Cluster) -> dict[str, str]:
    annotations = template(cluster.children["Deployment", "demo"])["metadata"]["annotations"]
    return {key: text for key, text in annotations.items() if key.startswith(names.ANNOTATION_FILE)}


def completed(cluster: Cluster, at: float) -> None:
    """The Deployment's controller notes when the rollout was complete."""
    done = {"type": "Progressing", "reason": "NewReplicaSetAvailable", "lastUpdateTime": timestamp(at)}
    cluster.children["Deployment", "demo"]["status"]["conditions"] = [done]


def test_a_new_table_is_a_new_file_of_new_pods(tuner: Tuner) -> None:
    cluster = settled(spec=SGLANG)
    before = files(cluster)
    change(tuner)
    assert remade(cluster.tick(observed(cluster))) == [("Deployment", "demo", Reason.FASTER)]
    assert (before.keys(), before) == (files(cluster).keys(), before)
    assert before != files(cluster)
    assert not any(kind == "ConfigMap" for kind, _ in cluster.children)


@pytest.mark.parametrize("spec", [SGLANG, restart()], ids=["table", "restart"])
def test_a_change_survives_an_operator_killed_before_it_wrote_status(tuner: Tuner, spec: DeploymentSpec) -> None:
    cluster = settled(spec=spec)
    wanted = NEW if spec is SGLANG else KTable.constant(2, 256)
    change(tuner, wanted)
    unsaid = deepcopy(cluster.status)
    cluster.tick(observed(cluster))
    rolled = template(cluster.children["Deployment", "demo"])
    cluster.status = unsaid
    cluster.forget()
    cluster.tick()
    cluster.roll()
    cluster.settle()
    assert template(cluster.children["Deployment", "demo"]) == rolled
    assert cluster.templates == 2
    assert active_table(cluster) == wanted
    assert cluster.status["speculation"]["tableVersion"] == unsaid["speculation"]["tableVersion"] + 1


def test_a_change_that_was_never_applied_is_forgotten(tuner: Tuner) -> None:
    """Killed, or refused by the API server, before the Deployment was written: pods and status agree on the old one."""
    cluster = settled(spec=SGLANG)
    old = active_table(cluster)
    change(tuner)
    assert cluster.look(observed(cluster)).actions
    cluster.forget()
    cluster.settle()
    assert (active_table(cluster), cluster.templates) == (old, 1)


def test_a_hand_edited_file_is_put_back() -> None:
    cluster = settled(spec=SGLANG)
    annotations = template(cluster.children["Deployment", "demo"])["metadata"]["annotations"]
    (key,) = files(cluster)
    wanted = annotations[key]
    annotations[key] = json.dumps({"1": {"candidate_steps": [8]}})
    outcome = cluster.tick()
    assert remade(outcome) == [("Deployment", "demo", Reason.REPAIRED)]
    assert files(cluster)[key] == wanted


@pytest.mark.parametrize("spec", [SGLANG, restart()], ids=["table", "restart"])
def test_nobody_is_asked_while_pods_are_replaced(tuner: Tuner, spec: DeploymentSpec) -> None:
    cluster = settled(spec=spec)
    cluster.children["Deployment", "demo"]["status"]["updatedReplicas"] = 1
    asked = tuner.asked
    change(tuner, KTable.constant(2, 256))
    for _ in range(5):
        assert cluster.tick(observed(cluster)).actions == ()
    assert tuner.asked == asked


@pytest.mark.parametrize(("ago", "done"), [(10.0, False), (ROLLOUT_DWELL - 1.0, False), (ROLLOUT_DWELL, True)])
def test_pods_rest_between_rollouts(tuner: Tuner, ago: float, done: bool) -> None:
    cluster = settled(spec=SGLANG)
    completed(cluster, cluster.now - ago)
    change(tuner)
    memory = cluster.memory
    outcome = cluster.tick(observed(cluster))
    assert bool(outcome.actions) is done
    assert memory is not None
    assert outcome.memory is not None
    assert (outcome.memory.changed_at == memory.changed_at) is not done, "what was not done starts no waiting time"


def test_live_tables_need_no_rest(tuner: Tuner) -> None:
    cluster = settled()
    completed(cluster, cluster.now - 10.0)
    change(tuner)
    assert cluster.tick(observed(cluster)).actions


def test_a_load_that_swings_rolls_pods_once_at_most() -> None:
    """The real tuner, two hours in which load and acceptance jump every two minutes: no table lasts as long as its
    rollout, so one that serves both is all that may come, once the swings are known."""
    cluster = settled(spec=SGLANG)
    started, begun = cluster.now, []
    while cluster.now - started < 7200.0:
        busy = int((cluster.now - started) // 120) % 2
        outcome = cluster.tick(observed(cluster, batch=200.0 if busy else 2.0, survival=0.15 if busy else 0.9))
        if any(isinstance(one, ApplyChild) and one.manifest["kind"] == "Deployment" for one in outcome.actions):
            begun.append(cluster.now)
            cluster.roll()
            completed(cluster, cluster.now)
    assert len(begun) <= 1
    assert all(when - started > 1200.0 for when in begun)
