"""Each situation in which K is what it is: `explain` names the right cause and a next step that exists.

The status of each comes from ticks of the operator itself, over a cluster in a dictionary.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.scripted import Tuner, removed
from tests.unit.reconcile.worlds import SPEC, STATIC, Cluster, observed, restart, settled

from speculative_operator.api.crd import schema
from speculative_operator.cli import diagnosis, explain
from speculative_operator.cli.diagnosis import cause_of
from speculative_operator.cli.parsers import COMMANDS
from speculative_operator.domain import names
from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineSettings, Mode, RolloutStrategy, Speculation
from speculative_operator.domain.table import KTable


def body_of(cluster: Cluster, **annotations: str) -> dict[str, Any]:
    """The object as the API server has it after the last tick."""
    mode = cluster.spec.speculation.mode.value
    return {
        "metadata": {"name": "demo", "namespace": "models", "annotations": annotations},
        "spec": {"verifier": {"model": "hf://Qwen/Qwen3-8B"}, "speculation": {"mode": mode}},
        "status": cluster.status,
    }


def scripted(monkeypatch: pytest.MonkeyPatch, reason: Reason, message: str, **more: Any) -> Cluster:
    """A cluster whose tuner answers with `reason`."""
    tuner = Tuner()
    monkeypatch.setattr("speculative_operator.reconcile.table.deciding.decide", tuner)
    cluster = settled(spec=more.pop("spec", SPEC))
    tuner.wishes.append({"reason": reason, "message": message} | more)
    cluster.tick(observed(cluster))
    return cluster


def missing(reason: Reason, message: str) -> Callable[[pytest.MonkeyPatch], Cluster]:
    def make(_: pytest.MonkeyPatch) -> Cluster:
        cluster = settled()
        gaps = {one["metadata"]["name"]: Gap(reason, message) for one in cluster.pods}
        cluster.tick(Observation(cluster.now, gaps))
        return cluster

    return make


def refused(**change: Any) -> Callable[[pytest.MonkeyPatch], Cluster]:
    def make(_: pytest.MonkeyPatch) -> Cluster:
        cluster = Cluster(spec=replace(SPEC, **change))
        cluster.tick()
        return cluster

    return make


def says(reason: Reason, message: str, **more: Any) -> Callable[[pytest.MonkeyPatch], Cluster]:
    return lambda patch: scripted(patch, reason, message, **more)


def in_mode(spec: DeploymentSpec) -> Callable[[pytest.MonkeyPatch], Cluster]:
    return lambda _: settled(spec=spec)


def no_full_window(_: pytest.MonkeyPatch) -> Cluster:
    cluster = settled()
    cluster.tick(observed(cluster))
    return cluster


def drafter_dead(patch: pytest.MonkeyPatch) -> Cluster:
    tuner = Tuner()
    patch.setattr("speculative_operator.reconcile.table.deciding.decide", tuner)
    return removed(tuner)


def rolling_out(_: pytest.MonkeyPatch) -> Cluster:
    cluster = settled()
    cluster.edit(engine=replace(cluster.spec.engine, args=("--seed=1",)))
    cluster.tick()
    deployment = cluster.children["Deployment", "demo"]
    generation = deployment["metadata"]["generation"]
    deployment["status"] |= {"observedGeneration": generation, "updatedReplicas": 1}
    cluster.tick()
    return cluster


def pods_down(_: pytest.MonkeyPatch) -> Cluster:
    cluster = settled()
    for pod in cluster.pods:
        pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    cluster.children["Deployment", "demo"]["status"] |= {"readyReplicas": 0, "availableReplicas": 0}
    cluster.tick()
    return cluster


def no_replicas(_: pytest.MonkeyPatch) -> Cluster:
    cluster = settled()
    cluster.edit(replicas=0)
    cluster.settle()
    return cluster


def capacity_not_kept(patch: pytest.MonkeyPatch) -> Cluster:
    table = KTable.constant(1, 256)
    message = "K 1 is faster"
    spec = replace(restart(), rollout_strategy=RolloutStrategy.RECREATE)
    return scripted(patch, Reason.FASTER, message, spec=spec, table=table, changed=True)


SITUATIONS: dict[str, tuple[Callable[[pytest.MonkeyPatch], Cluster], Reason, str]] = {
    "no full window yet": (no_full_window, Reason.STARTING, "speculative status demo -n models -w"),
    "too little evidence": (says(Reason.COLLECTING, "12 drafts of 20"), Reason.COLLECTING, "wait: "),
    "latency target": (says(Reason.SLO, "K 5 misses tpotP99 40 ms"), Reason.SLO, "spec.speculation.objective"),
    "target out of reach": (
        says(Reason.TARGET_OUT_OF_REACH, "no K meets 10 ms"), Reason.TARGET_OUT_OF_REACH, "spec.speculation.objective",
    ),
    "guard": (says(Reason.GUARD, "4 % slower than off"), Reason.GUARD, "speculative plan FILE"),
    "too many requests": (says(Reason.HIGH_CONCURRENCY, "K 3 -> 0"), Reason.HIGH_CONCURRENCY, "spec.replicas"),
    "low acceptance": (says(Reason.LOW_ACCEPTANCE, "K 3 -> 1"), Reason.LOW_ACCEPTANCE, "speculative pairs"),
    "no candidate K": (says(Reason.HOLDING, "K 3 is the only candidate"), Reason.HOLDING, "speculative status"),
    "drafter dead": (drafter_dead, Reason.DEAD_WEIGHT, "spec.speculator.model"),
    "holding for a rollout": (rolling_out, Reason.ROLLING_OUT, "speculative status demo"),
    "metrics missing": (
        missing(Reason.METRICS_MISSING, "no samples"), Reason.METRICS_MISSING, "speculative doctor",
    ),
    "stale metrics": (missing(Reason.METRICS_STALE, "60 s old"), Reason.METRICS_STALE, "STALE_AFTER_SECONDS"),
    "Prometheus down": (missing(Reason.PROMETHEUS_ERROR, "HTTP 503"), Reason.PROMETHEUS_ERROR, "prometheus.url"),
    "capacity not kept": (capacity_not_kept, Reason.ROLLOUT_NEEDS_APPROVAL, "speculative approve demo -n models"),
    "no requests": (missing(Reason.IDLE, "no requests"), Reason.IDLE, "status.url"),
    "pods down": (pods_down, Reason.PODS_NOT_READY, "kubectl describe pods -n models"),
    "no replicas": (no_replicas, Reason.SCALED_TO_ZERO, "spec.replicas"),
    "Static": (in_mode(STATIC), Reason.FIXED, "spec.speculation.mode: Auto"),
    "Disabled": (in_mode(replace(SPEC, speculation=Speculation(mode=Mode.DISABLED))), Reason.DISABLED, "mode: Auto"),
    "engine cannot": (
        refused(engine=EngineSettings(version="0.1.0")), Reason.UNSUPPORTED_BY_ENGINE, "docs/engines.md",
    ),
    "Recommend": (
        says(Reason.RECOMMENDED, "proposed", spec=replace(SPEC, speculation=Speculation(mode=Mode.RECOMMEND))),
        Reason.RECOMMENDED, "spec.speculation.mode: Auto",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_cause_and_the_next_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, reason, step = SITUATIONS[name]
    body = body_of(made(monkeypatch))
    cause = cause_of(body)
    assert cause.reason == reason.value, f"{cause}\n{body['status']['conditions']}"
    assert step in cause.next
    assert "{" not in cause.next
    text = "\n".join(explain.explanation(body))
    assert f"  why       {reason.value}: " in text
    assert f"  next      {cause.next}" in text
    assert explain.summary(body)["cause"]["reason"] == reason.value


def test_a_paused_object_is_paused_whatever_else_is_wrong() -> None:
    cluster = settled()
    cluster.annotate(paused=True)
    gaps = {one["metadata"]["name"]: Gap(Reason.METRICS_MISSING, "none") for one in cluster.pods}
    cluster.tick(Observation(cluster.now, gaps))
    cause = cause_of(body_of(cluster, **{names.ANNOTATION_PAUSED: "true"}))
    assert (cause.reason, cause.next) == ("Paused", "speculative resume demo -n models")


def test_a_pod_that_does_not_follow_its_table_is_the_cause() -> None:
    body = body_of(settled())
    found = next(one for one in body["status"]["conditions"] if one["type"] == "TuningConverged")
    found |= {"status": "False", "reason": "TableNotInForce", "message": "demo-1 serves with table 5"}
    cause = cause_of(body)
    assert (cause.reason, cause.message) == ("TableNotInForce", "demo-1 serves with table 5")
    assert cause.next.startswith("kubectl delete pod POD -n models")


def test_adaptive_verification_is_said_where_drafts_are_made() -> None:
    body = body_of(settled())
    assert not [line for line in explain.explanation(body) if line.startswith("  verifies")]
    body["spec"].setdefault("speculation", {})["adaptiveVerification"] = True
    (line,) = [line for line in explain.explanation(body) if line.startswith("  verifies")]
    assert "vLLM estimates to be worth their time" in line
    body["spec"]["speculation"]["mode"] = "Disabled"
    assert not [line for line in explain.explanation(body) if line.startswith("  verifies")]


def test_an_object_without_status_sends_to_the_doctor() -> None:
    body = {"metadata": {"name": "demo", "namespace": "models"}, "spec": {}}
    assert cause_of(body).next == "speculative doctor"
    assert "None" not in "\n".join(explain.explanation({**body, "spec": {"verifier": {"model": "hf://a/b"}}}))


NAMES_A_STEP = (
    "speculative ", "spec.", "status.", "kubectl ", "prometheus.", "SPECULATIVE_", "settings", "rename", "writer",
)  # fmt: skip
"""A next step has a command, a field, a setting, or names whose turn it is."""


def test_each_next_step_names_what_exists() -> None:
    properties = schema()["properties"]
    for reason, step in diagnosis.NEXT.items():
        for path in re.findall(r"\b(?:spec|status)(?:\.\w+)+", step):
            node: Any = {"properties": properties}
            for part in path.split("."):
                assert part in node["properties"], f"{reason}: {path}"
                node = node["properties"][part]
        for word in re.findall(r"\bspeculative (\w+)", step):
            assert word in COMMANDS, f"{reason}: speculative {word}"
        assert any(word in step for word in NAMES_A_STEP), f"{reason}: {step}"
