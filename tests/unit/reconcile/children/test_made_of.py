"""Within one release no edit waits: whatever makes another pod template has another hash of what was asked for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from tests.unit.reconcile.paired import CACHED, PAIRED, advance, serving
from tests.unit.reconcile.scripted import REMOVABLE, Tuner, active_table
from tests.unit.reconcile.worlds import SPEC, Cluster, observed, restart, settled, template

from speculative_operator.domain import names
from speculative_operator.domain.platform import Measuring, Route
from speculative_operator.domain.spec import (
    DEFAULT_VERSIONS,
    AcceleratorRequest,
    Cache,
    Check,
    DailyWindow,
    DeploymentSpec,
    EmptyDir,
    EngineSettings,
    EngineType,
    Goal,
    LoraLimits,
    Medium,
    Method,
    Mode,
    ModelSource,
    Objective,
    OffPolicy,
    RolloutStrategy,
    Scheme,
    Speculation,
    Speculator,
    Target,
    Tuning,
    Weights,
    Workload,
)
from speculative_operator.domain.table import KTable
from speculative_operator.engines.registry import engine_for
from speculative_operator.render import Capabilities

HUB = ModelSource(Scheme.HF, "Qwen/Qwen3-8B")
DRAFT = ModelSource(Scheme.HF, "Qwen/Qwen3-0.6B")
EAGLE = ModelSource(Scheme.HF, "RedHatAI/Qwen3-8B-speculator.eagle3")
ENV = ({"name": "A", "value": "1"},)
ABLE = Capabilities(job_image="registry.example.com/operator:1", node_folders=("/var/models",))

VALUES: dict[str, tuple[Any, ...]] = {
    "generation": (2,),
    "verifier.source": (
        replace(HUB, revision="a" * 40),
        replace(HUB, content="c"),
        ModelSource(Scheme.PVC, "models/qwen"),
        ModelSource(Scheme.OCI, "registry.example.com/qwen:1"),
    ),
    "verifier.served_name": ("other",),
    "verifier.aliases": (("second",),),
    "verifier.tensor_parallel_size": (2,),
    "verifier.pipeline_parallel_size": (2,),
    "verifier.data_parallel_size": (2,),
    "verifier.max_model_len": (4096,),
    "verifier.max_num_seqs": (64, None),
    "verifier.dtype": ("bfloat16",),
    "verifier.quantization": ("fp8",),
    "verifier.kv_cache_dtype": ("fp8",),
    "verifier.gpu_memory_utilization_percent": (80,),
    "verifier.max_num_batched_tokens": (16_384,),
    "verifier.expert_parallel": (True,),
    "verifier.lora": (LoraLimits(), LoraLimits(4), LoraLimits(4, 32), None),
    "speculator": (
        None,
        Speculator(Method.DRAFT_MODEL, DRAFT),
        Speculator(Method.EAGLE3, EAGLE),
        Speculator(Method.NGRAM),
        Speculator(Method.SUFFIX),
        Speculator(Method.MTP),
        Speculator(Method.MEDUSA, EAGLE),
    ),
    "speculator.source": (EAGLE, replace(EAGLE, revision="b" * 40), ModelSource(Scheme.PVC, "models/draft")),
    "speculator.tensor_parallel_size": (1, 2),
    "speculator.quantization": ("fp8",),
    "speculator.parallel_drafting": (True,),
    "speculator.heterogeneous_vocabulary": (True,),
    "speculator.prompt_lookup_min": (2,),
    "speculator.prompt_lookup_max": (6,),
    "speculator.options": ({"moe_backend": "triton"},),
    "engine.version_named": (True,),
    "engine.version": ("0.31.0", "0.5.21", "1.1.0", "3.3.5"),
    "engine.image": ("registry.example.com/engine:1",),
    "engine.args": (("--seed=1",), ("--seed=2",)),
    "engine.env": (ENV, ({"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"},)),
    "accelerator.resource": ("amd.com/gpu",),
    "accelerator.product": ("H200-SXM",),
    "accelerator.per_replica": (2, 4),
    "accelerator.hourly_cost": (3.0, None),
    "replicas": (3,),
    "weights.secret_name": ("hub",),
    "weights.check": (Check.DISABLED,),
    "weights.hub_endpoint": ("https://hub.example.com",),
    "weights.s3_endpoint": ("https://s3.example.com",),
    "weights.proxy": ("http://proxy.example.com:3128",),
    "weights.no_proxy": (("example.com",),),
    "weights.ca_config_map": ("authorities",),
    "weights.env": (ENV,),
    "weights.repin": ("today",),
    "rollout_strategy": (RolloutStrategy.RECREATE,),
    "rollout_tuning": (Tuning.INTERRUPT,),
    "rollout_window": (DailyWindow(120, 300),),
    "accept": ("0123abcd",),
    "suspend": ("2026-11-28T08:00:00Z",),
    "verified": ("{}",),
    "target": (Target.DEPLOYMENT,),
    "route": (Route("public"),),
    "nodes": (2,),
    "inference_service.display_name": ("Granite",),
    "inference_service.description": ("Answers",),
    "inference_service.exposed": (True,),
    "inference_service.authenticated": (True,),
    "inference_service.anonymous": (True,),
    "inference_service.tls": (True,),
    "inference_service.connection": ("registry",),
    "inference_service.hardware_profile": ("gpu",),
    "inference_service.hardware_profile_namespace": ("shared",),
    "inference_service.queue": ("team-a",),
    "template": ({"spec": {"priorityClassName": "high"}}, {"metadata": {"annotations": {"a": "b"}}}),
    "adopt": ("today",),
    "auto_speculator": (True,),
    "measure": (Measuring(900),),
    "speculation.workload": tuple(Workload),
    "speculation.adaptive_verification": (True,),
    "speculation.mode": (Mode.DISABLED,),
    "speculation.objective": (Objective(Goal.LATENCY, 0.02, 1.0),),
}
"""Values of each field, each an edit of its own."""
SPECULATIONS = tuple(
    Speculation(mode, start, most, schedule, off_policy)
    for mode, start, most, off_policy, schedule in itertools.product(
        Mode, (None, 1, 3), (3, 8), OffPolicy,
        (None, KTable.constant(3, 256), KTable.from_rows([[1, 64, 3], [65, 256, 0]])),
    )
    if (schedule is None or mode is Mode.STATIC)
    and mode is not Mode.DISABLED
)  # fmt: skip
ELSEWHERE = {
    *("name", "namespace", "uid", "paused", "candidate_of"),  # no edits of a running object, or none that reaches pods
    *("engine.type", "speculator.method", "weights.cache"),  # each is below
    *("speculation.num_speculative_tokens", "speculation.max_speculative_tokens"),
    *("speculation.schedule", "speculation.off_policy"),
}


def leaves(value: Any, path: str = "") -> Iterator[str]:
    for one in fields(value):
        below, inner = f"{path}.{one.name}".lstrip("."), getattr(value, one.name)
        plain = below in VALUES and below != "speculator"
        yield from leaves(inner, below) if is_dataclass(inner) and not plain else (below,)


def with_value(spec: DeploymentSpec, path: str, value: Any) -> DeploymentSpec | None:
    """`spec` with another value at `path`; None where it has no such part."""
    head, _, rest = path.partition(".")
    part = getattr(spec, head)
    if rest and part is None:
        return None
    return replace(spec, **{head: replace(part, **{rest: value}) if rest else value})


def edits(spec: DeploymentSpec) -> Iterator[DeploymentSpec]:
    yield spec
    for path, values in VALUES.items():
        found = (with_value(spec, path, value) for value in values)
        yield from (one for one in found if one is not None)
    for speculation in SPECULATIONS:
        yield replace(spec, speculation=speculation)


def of(kind: EngineType, method: Method, source: ModelSource | None = None) -> DeploymentSpec:
    return replace(SPEC, engine=EngineSettings(kind, DEFAULT_VERSIONS[kind]), speculator=Speculator(method, source))


BASES = {
    "vLLM-draft": SPEC,
    "vLLM-suffix": restart(),
    "vLLM-ngram": of(EngineType.VLLM, Method.NGRAM),
    "vLLM-eagle": of(EngineType.VLLM, Method.EAGLE3, EAGLE),
    "vLLM-parallel": replace(
        SPEC,
        verifier=replace(SPEC.verifier, data_parallel_size=2),
        accelerator=AcceleratorRequest("nvidia.com/gpu", per_replica=2),
    ),
    "SGLang-eagle": of(EngineType.SGLANG, Method.EAGLE3, EAGLE),
    "SGLang-ngram": of(EngineType.SGLANG, Method.NGRAM),
    "TensorRTLLM-eagle": of(EngineType.TENSORRT_LLM, Method.EAGLE3, EAGLE),
    "TensorRTLLM-draft": of(EngineType.TENSORRT_LLM, Method.DRAFT_MODEL, DRAFT),
    "vLLM-off": replace(SPEC, speculation=Speculation(Mode.DISABLED)),
}


def made(cluster: Cluster) -> tuple[str, Mapping[str, Any]]:
    deployment = cluster.children["Deployment", "demo"]
    return deployment["metadata"]["annotations"][names.ANNOTATION_MADE_OF], template(deployment)


def test_every_field_of_the_spec_is_edited() -> None:
    found = {*leaves(SPEC)}
    assert found - {*VALUES, *ELSEWHERE} == set(), "give each new field values above"
    assert {*VALUES, *ELSEWHERE} - found - {"speculator"} == set()


def one_each(specs: Iterator[DeploymentSpec], **change: Any) -> int:
    """How many of `specs` are served; each template has a hash of its own."""
    known: dict[str, tuple[DeploymentSpec, Mapping[str, Any]]] = {}
    served = 0
    for spec in specs:
        if engine_for(spec).refusals(spec):
            continue
        cluster = Cluster(spec=spec, **change)
        cluster.tick()
        made_of, pods = made(cluster)
        other, theirs = known.setdefault(made_of, (spec, pods))
        assert pods == theirs, f"{spec} would wait where pods run of {other}"
        served += 1
    return served


@pytest.mark.parametrize("base", BASES)
def test_one_hash_means_one_template(base: str) -> None:
    """Of any two edits of one object, hence of any edit and its return."""
    assert one_each(edits(BASES[base]), capabilities=ABLE) > 40


CACHE = CACHED.cache or Cache()
PLACES = {
    "claim": CACHED,
    "node": Weights(cache=Cache(node_path="/var/models")),
    "emptyDir": Weights(cache=Cache(empty_dir=EmptyDir("100Gi"))),
    "memory": Weights(cache=Cache(empty_dir=EmptyDir("100Gi", Medium.MEMORY))),
    "more": Weights(cache=Cache(empty_dir=EmptyDir("200Gi"))),
    "node collects": Weights(cache=Cache(node_path="/var/models", collect=True)),
    "node reserves": Weights(cache=Cache(node_path="/var/models", reserve_percent=5)),
    "claim collects": Weights(cache=replace(CACHE, collect=True)),
    "none": Weights(),
    "unread": Weights(check=Check.DISABLED),
}


WAY = ("unread", "none", "claim", "node", "emptyDir", "memory", "more", "none", "node", "node collects", "node",
       "node reserves", "unread", "claim", "claim collects", "claim")  # fmt: skip
"""Each as an edit of the one before it."""


def test_no_edit_of_where_weights_lie_waits() -> None:
    cluster = serving(spec=replace(PAIRED, weights=PLACES[WAY[0]]))
    for place in WAY[1:]:
        cluster.edit(weights=PLACES[place])
        advance(cluster)
        assert waiting(cluster) == [], place


@pytest.mark.parametrize("place", ["claim", "node", "emptyDir", "none"])
def test_no_edit_of_how_weights_come_waits(place: str) -> None:
    cluster = serving(spec=replace(PAIRED, weights=PLACES[place]))
    for path in ("secret_name", "hub_endpoint", "s3_endpoint", "proxy", "no_proxy", "ca_config_map", "env"):
        for value in (*VALUES[f"weights.{path}"], getattr(Weights(), path)):
            cluster.edit(weights=replace(cluster.spec.weights, **{path: value}))
            cluster.tick()
            cluster.roll()
            assert waiting(cluster) == [], (path, value)


def test_neither_the_removal_of_the_drafter_nor_its_return_waits(tuner: Tuner) -> None:
    cluster = settled(spec=REMOVABLE)
    for change in (tuner.remove, tuner.bring_back):
        change(active_table(cluster))
        before = cluster.templates
        cluster.tick(observed(cluster))
        cluster.settle()
        assert (cluster.templates, waiting(cluster)) == (before + 1, [])


def waiting(cluster: Cluster) -> list[str]:
    return [one["message"] for one in cluster.status.get("warnings", ()) if one["reason"] == "UpgradeWaits"]
