"""`speculation.offPolicy: Skip`: what pods are started with, and what is said where they cannot do it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.worlds import SPEC, Cluster, settled, template

from speculative_operator.domain.reasons import Reason
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
from speculative_operator.engines.vllm import adapter as vllm_adapter
from speculative_operator.engines.vllm import plan as vllm_plan
from speculative_operator.reconcile.caps import unused_notices

LIVE = replace(SPEC, speculation=Speculation(off_policy=OffPolicy.SKIP))
NGRAM = Speculator(Method.NGRAM)
RANKS = replace(LIVE, accelerator=replace(SPEC.accelerator, per_replica=2))

TENSOR_PARALLEL = replace(RANKS, verifier=replace(SPEC.verifier, tensor_parallel_size=2))


def container(spec: DeploymentSpec) -> Any:
    return engine_for(spec).container(resolve(spec), KTable.constant(1, 256))


def variables(spec: DeploymentSpec) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in container(spec).env}


def test_pods_are_started_with_the_workers_part() -> None:
    args = container(LIVE).args
    assert args[args.index("--worker-extension-cls") + 1] == "speculative_worker.Extension"
    assert variables(LIVE)["SPECULATIVE_OFF_STEPS"] == "64"
    assert "speculative_worker.py" in container(LIVE).payload
    assert engine_for(LIVE).knobs(LIVE).passes_at_zero == 0
    assert unused_notices(LIVE, engine_for(LIVE).knobs(LIVE)) == ()
    assert "warnings" not in settled(spec=LIVE).status


def test_ranks_that_share_each_layer_have_it_too() -> None:
    assert "--worker-extension-cls" in container(TENSOR_PARALLEL).args
    assert engine_for(TENSOR_PARALLEL).knobs(TENSOR_PARALLEL).can_skip
    status = settled(spec=TENSOR_PARALLEL).status
    assert "warnings" not in status


@pytest.mark.parametrize("lost", [False, True])
def test_pods_of_a_release_that_could_not_stay_until_the_user_asks(lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade of the operator replaces no pods, also where the status is lost."""
    with monkeypatch.context() as before:
        for module in (vllm_plan, vllm_adapter):
            before.setattr(module, "rests", lambda *_: False)
        cluster = settled(spec=TENSOR_PARALLEL)
        assert reasons(cluster) == ["SkipUnused"]
    cluster.upgraded, made = True, cluster.templates
    if lost:
        cluster.status = {}
    for _ in range(3):
        cluster.tick()
        assert reasons(cluster) == ["SkipUnused", "UpgradeWaits"]
    cluster.edit(replicas=3)
    cluster.settle()
    assert cluster.templates == made
    cluster.annotate(adopt="now")
    cluster.settle()
    assert cluster.templates == made + 1
    assert "--worker-extension-cls" in arguments(cluster)
    assert reasons(cluster) == []


@pytest.mark.parametrize("change", [{"verifier": replace(SPEC.verifier, tensor_parallel_size=2, max_num_seqs=64)}, {}])
def test_a_user_who_changes_pods_or_asks_for_off_gets_it(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        for module in (vllm_plan, vllm_adapter):
            before.setattr(module, "rests", lambda *_: False)
        cluster = settled(spec=TENSOR_PARALLEL if change else replace(TENSOR_PARALLEL, speculation=SPEC.speculation))
    cluster.edit(**change, speculation=TENSOR_PARALLEL.speculation)
    cluster.settle()
    assert "--worker-extension-cls" in arguments(cluster)
    assert reasons(cluster) == []


def arguments(cluster: Cluster) -> list[str]:
    (deployment,) = (one for (kind, _), one in cluster.children.items() if kind == "Deployment")
    found: list[str] = template(deployment)["spec"]["containers"][0]["args"]
    return found


def reasons(cluster: Cluster) -> list[str]:
    return sorted(one["reason"] for one in cluster.status.get("warnings", ()))


@pytest.mark.parametrize("policy", [one for one in OffPolicy if one is not OffPolicy.SKIP])
def test_nobody_gets_it_unasked(policy: OffPolicy) -> None:
    spec = replace(SPEC, speculation=Speculation(off_policy=policy))
    assert "--worker-extension-cls" not in container(spec).args
    assert "SPECULATIVE_OFF_STEPS" not in variables(spec)
    assert engine_for(spec).knobs(spec).passes_at_zero > 0
    assert unused_notices(spec, engine_for(spec).knobs(spec)) == ()


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (replace(LIVE, speculator=NGRAM), "ngram makes no pass at K 0"),
        (replace(LIVE, speculator=Speculator(Method.MTP)), "mtp"),
        (replace(RANKS, verifier=replace(SPEC.verifier, pipeline_parallel_size=2)), "pipeline"),
        (replace(RANKS, verifier=replace(SPEC.verifier, data_parallel_size=2)), "actuator"),
        (replace(LIVE, engine=EngineSettings(version="0.34.0")), "actuator Table"),
        (replace(LIVE, engine=EngineSettings(EngineType.SGLANG, "0.5.23")), "SGLang"),
        (replace(LIVE, engine=EngineSettings(EngineType.TENSORRT_LLM, "1.3.0rc15")), "TensorRTLLM"),
        (replace(LIVE, speculator=NGRAM, engine=EngineSettings(EngineType.TGI, "3.3.6")), "TGI"),
    ],
)
def test_where_it_does_no_more_than_soft_a_warning_says_why(spec: DeploymentSpec, word: str) -> None:
    knobs = engine_for(spec).knobs(spec)
    assert "--worker-extension-cls" not in container(spec).args
    (notice,) = unused_notices(spec, knobs)
    assert notice.reason is Reason.SKIP_UNUSED
    assert word in notice.message
    assert "offPolicy" in notice.message
    cluster = Cluster(spec=spec)
    outcome = cluster.tick()
    assert notice.message in [one["message"] for one in cluster.status["warnings"]]
    assert [event.type for event in outcome.events if event.reason is Reason.SKIP_UNUSED] == ["Normal"]


HEAD = replace(LIVE, speculator=replace(SPEC.speculator, method=Method.EAGLE3))  # type: ignore[type-var]
V1, V2 = ({"name": "VLLM_USE_V2_MODEL_RUNNER", "value": value} for value in "01")


@pytest.mark.parametrize("release", ["0.32.0", "0.33.0"])
@pytest.mark.parametrize("env", [(), (V2,)])
@pytest.mark.parametrize("method", [Method.EAGLE, Method.EAGLE3])
def test_a_head_on_the_v2_runner_is_told_the_variable_that_helps(
    method: Method, env: tuple[dict[str, str], ...], release: str
) -> None:
    speculator = replace(SPEC.speculator, method=method)  # type: ignore[type-var]
    spec = replace(LIVE, speculator=speculator, engine=EngineSettings(version=release, env=env))
    (notice,) = unused_notices(spec, engine_for(spec).knobs(spec))
    assert '{name: VLLM_USE_V2_MODEL_RUNNER, value: "0"} to spec.engine.env' in notice.message
    told = replace(spec, engine=replace(spec.engine, env=(V1,)))
    assert engine_for(told).refusals(told) == ()
    assert unused_notices(told, engine_for(told).knobs(told)) == ()
    assert "--worker-extension-cls" in container(told).args


@pytest.mark.parametrize(
    "spec",
    [
        replace(HEAD, accelerator=RANKS.accelerator, verifier=replace(SPEC.verifier, pipeline_parallel_size=2)),
        replace(HEAD, engine=EngineSettings(version="0.34.0")),
        replace(HEAD, engine=EngineSettings(version="0.30.0")),
    ],
)
def test_no_variable_is_named_where_none_helps(spec: DeploymentSpec) -> None:
    (notice,) = unused_notices(spec, engine_for(spec).knobs(spec))
    assert "engine.env" not in notice.message


@pytest.mark.parametrize("change", [{"speculator": None}, {"speculation": Speculation(mode=Mode.DISABLED)}])
def test_pods_without_a_speculator_have_none_to_leave_out(change: dict[str, Any]) -> None:
    spec = replace(LIVE, **change)
    spec = replace(spec, speculation=replace(spec.speculation, off_policy=OffPolicy.SKIP))
    assert unused_notices(spec, engine_for(spec).knobs(spec)) == ()
    assert "--worker-extension-cls" not in container(spec).args


@pytest.mark.parametrize(("spec", "off"), [(LIVE, True), (replace(LIVE, speculator=NGRAM), False), (SPEC, False)])
def test_status_says_that_k_0_is_off_where_it_is(spec: DeploymentSpec, off: bool) -> None:
    scheduled = replace(spec.speculation, mode=Mode.STATIC, schedule=KTable.from_rows([[1, 8, 1], [9, 256, 0]]))
    cluster = settled(spec=replace(spec, speculation=scheduled))
    message = cluster.condition("SpeculationActive")["message"]
    assert message.startswith("K by scheduled requests: 1-8:1 9-256:0")
    assert message.endswith("; at K 0 it is off: nothing of the speculator runs") is off
