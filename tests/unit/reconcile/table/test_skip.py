"""`speculation.offPolicy: Skip`, the default: what pods are started with, and what becomes of those that run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.worlds import SPEC, Cluster, settled, template

from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import (
    DeploymentSpec,
    EngineSettings,
    EngineType,
    Method,
    Mode,
    OffPolicy,
    Speculation,
    Speculator,
)
from speculative_operator.domain.table import KTable
from speculative_operator.engines.registry import engine_for
from speculative_operator.engines.vllm import arguments as vllm_arguments
from speculative_operator.engines.vllm import plan as vllm_plan

NGRAM = Speculator(Method.NGRAM)
RANKS = replace(SPEC, accelerator=replace(SPEC.accelerator, per_replica=2))
TENSOR_PARALLEL = replace(RANKS, verifier=replace(SPEC.verifier, tensor_parallel_size=2))
WORKER = "--worker-extension-cls"
V1 = {"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}


def container(spec: DeploymentSpec) -> Any:
    return engine_for(spec).container(resolve(spec), KTable.constant(1, 256))


def variables(spec: DeploymentSpec) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in container(spec).env}


def arguments(cluster: Cluster) -> list[str]:
    (deployment,) = (one for (kind, _), one in cluster.children.items() if kind == "Deployment")
    found: list[str] = template(deployment)["spec"]["containers"][0]["args"]
    return found


def told_to_skip(cluster: Cluster) -> bool:
    deployment = cluster.children["Deployment", "demo"]
    names = {one["name"] for one in template(deployment)["spec"]["containers"][0]["env"]}
    return "SPECULATIVE_OFF_STEPS" in names


def reasons(cluster: Cluster) -> list[str]:
    return sorted(one["reason"] for one in cluster.status.get("warnings", ()))


@pytest.mark.parametrize("spec", [SPEC, TENSOR_PARALLEL, replace(SPEC, speculator=NGRAM)])
def test_pods_are_started_with_the_workers_part(spec: DeploymentSpec) -> None:
    args = container(spec).args
    assert args[args.index(WORKER) + 1] == "speculative_worker.Extension"
    assert variables(spec)["SPECULATIVE_OFF_STEPS"] == "64"
    assert container(spec).payload
    assert engine_for(spec).knobs(spec).passes_at_zero == 0
    cluster = settled(spec=spec)
    assert cluster.status["speculation"]["skips"] is True
    assert "warnings" not in cluster.status


def without_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a release of the operator that knew no worker."""
    for module in (vllm_plan, vllm_arguments):
        monkeypatch.setattr(module, "has_worker", lambda *_: False)


@pytest.mark.parametrize("lost", [False, True])
def test_pods_of_a_release_that_could_not_stay_until_the_user_asks(lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade of the operator replaces no pods, also where the status is lost."""
    with monkeypatch.context() as before:
        without_the_worker(before)
        cluster = settled(spec=TENSOR_PARALLEL)
        assert "skips" not in cluster.status["speculation"]
    cluster.upgraded, made = True, cluster.templates
    if lost:
        cluster.status = {}
    for _ in range(3):
        cluster.tick()
        assert reasons(cluster) == ["UpgradeWaits"]
        assert "skips" not in cluster.status["speculation"]
    cluster.edit(replicas=3)
    cluster.settle()
    assert cluster.templates == made
    cluster.annotate(adopt="now")
    cluster.settle()
    assert cluster.templates == made + 1
    assert WORKER in arguments(cluster)
    assert told_to_skip(cluster)
    assert reasons(cluster) == []


@pytest.mark.parametrize("other", [OffPolicy.KEEP_RUNNING, OffPolicy.REMOVE])
def test_a_user_who_asks_for_it_or_for_another_gets_that(other: OffPolicy) -> None:
    cluster = settled(spec=replace(SPEC, speculation=Speculation(off_policy=other)))
    assert not told_to_skip(cluster)
    for policy in (OffPolicy.SKIP, other):
        made = cluster.templates
        cluster.edit(speculation=Speculation(off_policy=policy))
        cluster.settle()
        assert told_to_skip(cluster) is (policy is OffPolicy.SKIP)
        assert cluster.templates == made + 1
        assert reasons(cluster) == []


@pytest.mark.parametrize(
    "spec",
    [
        replace(SPEC, speculator=Speculator(Method.SUFFIX)),
        replace(SPEC, engine=EngineSettings(version="0.32.0", env=(V1,))),
        replace(SPEC, engine=EngineSettings(version="0.31.0")),
        replace(RANKS, verifier=replace(SPEC.verifier, pipeline_parallel_size=2)),
        replace(RANKS, verifier=replace(SPEC.verifier, data_parallel_size=2)),
        replace(SPEC, engine=EngineSettings(EngineType.SGLANG, "0.5.23")),
        replace(SPEC, engine=EngineSettings(EngineType.TENSORRT_LLM, "1.3.0rc15")),
    ],
)
def test_where_the_engine_cannot_it_works_like_keep_running_and_warns_nobody(spec: DeploymentSpec) -> None:
    assert "SPECULATIVE_OFF_STEPS" not in variables(spec)
    running = replace(spec, speculation=Speculation(off_policy=OffPolicy.KEEP_RUNNING))
    assert engine_for(spec).knobs(spec) == engine_for(spec).knobs(running)
    cluster = Cluster(spec=spec)
    cluster.tick()
    assert [one for one in reasons(cluster) if one not in ("UnsupportedByEngine",)] == []
    assert "skips" not in cluster.status["speculation"]


@pytest.mark.parametrize("change", [{"speculator": None}, {"speculation": Speculation(mode=Mode.DISABLED)}])
def test_pods_without_a_speculator_have_none_to_skip(change: dict[str, Any]) -> None:
    spec = replace(SPEC, **change)
    assert WORKER not in container(spec).args
    assert "skips" not in settled(spec=spec).status["speculation"]


@pytest.mark.parametrize("policy", [OffPolicy.SKIP, OffPolicy.KEEP_RUNNING])
def test_status_says_that_k_0_is_off_where_it_is(policy: OffPolicy) -> None:
    table = KTable.from_rows([[1, 8, 1], [9, 256, 0]])
    cluster = settled(spec=replace(SPEC, speculation=Speculation(Mode.STATIC, schedule=table, off_policy=policy)))
    message = cluster.condition("SpeculationActive")["message"]
    assert message.startswith("K by scheduled requests: 1-8:1 9-256:0")
    assert message.endswith("; at K 0 it is off: nothing of the speculator runs") is (policy is OffPolicy.SKIP)
