"""Objects to domain values: what is right arrives whole, what is wrong is refused with field, value and remedy."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.objects import BAD_NAMES, GOOD, GOOD_NAMES, UNKNOWN, Bad, specdep
from tests.contract.refused import BAD
from tests.contract.strategies import objects

from speculative_operator.api.convert import SpecError, to_domain
from speculative_operator.domain import names
from speculative_operator.domain.spec import (
    DEFAULT_VERSIONS,
    AcceleratorRequest,
    AccessMode,
    Cache,
    Check,
    DeploymentSpec,
    EngineSettings,
    EngineType,
    Goal,
    LoraLimits,
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
    Verifier,
    Weights,
    Workload,
)
from speculative_operator.domain.table import KTable

MARKS = {"serving.speculative.dev/paused": "true", "serving.speculative.dev/repin": "2026-11-20"}
WHOLE: dict[str, Any] = {
    "verifier": {
        "model": "hf://Qwen/Qwen3-8B",
        "revision": "main",
        "servedName": "chat",
        "aliases": ["gpt-4"],
        "tensorParallelSize": 2,
        "pipelineParallelSize": 2,
        "dataParallelSize": 1,
        "maxModelLen": 8192,
        "maxNumSeqs": 256,
        "dtype": "bfloat16",
        "quantization": "fp8",
        "kvCacheDtype": "fp8",
        "gpuMemoryUtilizationPercent": 90,
        "maxNumBatchedTokens": 8192,
        "expertParallel": True,
        "lora": {"maxAdapters": 4, "maxRank": 64},
    },
    "speculator": {
        "method": "eagle3",
        "model": "pvc://heads/eagle/",
        "tensorParallelSize": 1,
        "quantization": "fp8",
        "parallelDrafting": True,
        "heterogeneousVocabulary": False,
        "options": {"draft_load_config": {"b": 1, "a": [2.5, None]}, "attention-backend": "TRITON_ATTN"},
    },
    "speculation": {
        "mode": "Static",
        "numSpeculativeTokens": 3,
        "maxSpeculativeTokens": 5,
        "adaptiveVerification": True,
        "schedule": [[1, 16, 5], [17, 256, 1]],
        "offPolicy": "Never",
        "workload": "Code",
        "objective": {"goal": "Latency", "tpotP99": "40ms", "ttftP99": "1m30s"},
    },
    "engine": {
        "type": "vLLM",
        "version": "0.32.0",
        "image": "vllm/vllm-openai:v0.32.0",
        "args": ["--enforce-eager"],
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {"name": "B", "value": ""}],
    },
    "accelerator": {"resource": "nvidia.com/gpu", "product": "H100-SXM", "perReplica": 4, "hourlyCost": "5.00"},
    "replicas": 2,
    "weights": {
        "secretName": "hf",
        "check": "Disabled",
        "cache": {"size": "500Gi", "storageClassName": "fast", "accessMode": "ReadWriteOnce"},
        "hubEndpoint": "https://hub.example.com",
        "s3Endpoint": "http://minio:9000",
        "proxy": "http://proxy:3128",
        "noProxy": [".svc", "10.0.0.0/8"],
        "caConfigMap": "trusted",
        "env": [{"name": "A", "value": "1"}],
    },
    "rollout": {"strategy": "Recreate"},
    "target": "LeaderWorkerSet",
    "nodes": 2,
    "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"zone": "a"}, "gone": None}},
}


def test_every_field_arrives() -> None:
    body = specdep()
    body["metadata"] |= {"uid": "u", "generation": 7, "annotations": MARKS}
    body["spec"] = WHOLE
    spec = to_domain(body)
    assert (spec.name, spec.namespace, spec.uid, spec.generation, spec.paused) == ("pair", "default", "u", 7, True)
    assert spec.verifier == Verifier(
        ModelSource(Scheme.HF, "Qwen/Qwen3-8B", "main"), "chat", 2, 2, 1, 8192, 256, "bfloat16", "fp8", "fp8", 90,
        8192, True, LoraLimits(4, 64), ("gpt-4",),
    )  # fmt: skip
    options = {"attention_backend": "TRITON_ATTN", "draft_load_config": {"a": [2.5, None], "b": 1}}
    assert spec.speculator == Speculator(
        Method.EAGLE3, ModelSource(Scheme.PVC, "heads/eagle"), 1, "fp8", True, options=options
    )
    assert json.dumps(spec.speculator.options) == json.dumps(options), "in one order, whatever a file has"
    assert spec.speculation == Speculation(
        Mode.STATIC,
        3,
        5,
        KTable.from_rows([[1, 16, 5], [17, 256, 1]]),
        OffPolicy.NEVER,
        Workload.CODE,
        Objective(Goal.LATENCY, 0.04, 90.0),
        adaptive_verification=True,
    )
    assert spec.engine == EngineSettings(
        version_named=True,
        image="vllm/vllm-openai:v0.32.0",
        args=("--enforce-eager",),
        env=(
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "B", "value": ""},
        ),
    )
    assert spec.accelerator == AcceleratorRequest("nvidia.com/gpu", "H100-SXM", 4, 5.0)
    assert spec.weights == Weights(
        "hf",
        Check.DISABLED,
        Cache("speculative-weights", "500Gi", "fast", AccessMode.READ_WRITE_ONCE),
        "https://hub.example.com",
        "http://minio:9000",
        "http://proxy:3128",
        (".svc", "10.0.0.0/8"),
        "trusted",
        ({"name": "A", "value": "1"},),
        "2026-11-20",
    )
    assert (spec.replicas, spec.rollout_strategy, spec.target) == (
        2,
        RolloutStrategy.RECREATE,
        Target.LEADER_WORKER_SET,
    )
    assert spec.template == WHOLE["template"]


def test_defaults() -> None:
    spec = to_domain(specdep({"verifier.tensorParallelSize": 4, "verifier.pipelineParallelSize": 2}))
    assert spec.verifier.served_name == "pair"
    assert spec.accelerator.per_replica == 8
    assert spec.speculation == Speculation()
    assert spec.engine == EngineSettings()
    assert spec.weights == Weights()
    assert not spec.paused
    assert spec.template == {}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"claimName": "models"}, Cache("models")),
        ({"size": 5}, Cache("speculative-weights", "5")),
        ({"claimName": "models", "size": "1Ti"}, Cache("models", "1Ti")),
    ],
)
def test_caches(given: dict[str, Any], expected: Cache) -> None:
    assert to_domain(specdep({"weights.cache": given})).weights == Weights(cache=expected)


@pytest.mark.parametrize("engine", EngineType)
def test_version_is_the_engines_own_where_none_is_given(engine: EngineType) -> None:
    assert to_domain(specdep({"engine.type": engine.value})).engine.version == DEFAULT_VERSIONS[engine]
    given = to_domain(specdep({"engine.type": engine.value, "engine.version": "0.1.2"}))
    assert (given.engine.version, given.engine.version_named) == ("0.1.2", True)


def test_options_of_drafting_arrive() -> None:
    spec = to_domain(specdep({"speculator": {"method": "ngram", "promptLookup": {"min": 2, "max": 5}}}))
    assert spec.speculator == Speculator(Method.NGRAM, prompt_lookup_min=2, prompt_lookup_max=5)
    spec = to_domain(specdep({"speculator.heterogeneousVocabulary": True, "verifier.lora": {}}))
    assert spec.speculator is not None
    assert (spec.speculator.heterogeneous_vocabulary, spec.verifier.lora) == (True, LoraLimits(1, 16))


def test_one_checkpoint_may_be_verifier_and_speculator() -> None:
    spec = to_domain(specdep(GOOD["one-checkpoint-verifiers-revision"]))
    assert spec.speculator is not None
    assert spec.speculator.source is not None
    assert spec.speculator.source.uri == spec.verifier.source.uri


def test_no_accelerator_stays_none() -> None:
    assert to_domain(specdep({"accelerator.perReplica": 0})).accelerator.per_replica == 0


def test_converts_what_the_server_accepts() -> None:
    for case, changes in GOOD.items():
        assert to_domain(specdep(changes)).name == "pair", case


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_refuses_what_the_server_refuses(bad: Bad) -> None:
    with pytest.raises(SpecError) as caught:
        to_domain(bad.body())
    error = caught.value
    if bad.rule:
        assert bad.is_told_by(error.field, str(error)), error
    else:
        assert error.field.startswith(bad.field)
        assert (bad.in_python or bad.remedy) in error.remedy
    assert str(error).startswith(error.field)


@pytest.mark.parametrize("case", UNKNOWN)
def test_refuses_unknown_fields(case: str) -> None:
    changes, field = UNKNOWN[case]
    with pytest.raises(SpecError, match="the field does not exist"):
        to_domain(specdep(changes))
    with pytest.raises(SpecError) as caught:
        to_domain(specdep(changes))
    assert caught.value.field == field


@pytest.mark.parametrize("name", BAD_NAMES)
def test_refuses_names(name: str) -> None:
    with pytest.raises(SpecError, match=r"metadata\.name is .*use at most 53"):
        to_domain(specdep(name=name))


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_accepts_names(name: str) -> None:
    assert to_domain(specdep(name=name)).name == name


def test_a_misspelt_field_is_told_with_the_right_spelling() -> None:
    for wrong in ("served_name", "servedname"):
        with pytest.raises(SpecError, match=rf"spec\.verifier\.{wrong} .*the field does not exist: write servedName"):
            to_domain(specdep({f"verifier.{wrong}": "chat"}))


def test_long_values_are_cut() -> None:
    with pytest.raises(SpecError) as caught:
        to_domain(specdep({"verifier.model": "x" * 5000}))
    assert len(str(caught.value)) < 400


def outcome(body: dict[str, Any]) -> DeploymentSpec | SpecError:
    try:
        return to_domain(body)
    except SpecError as error:
        return error


@given(objects())
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_converts_or_says_why(body: dict[str, Any]) -> None:
    first = outcome(body)
    if isinstance(first, SpecError):
        assert first.field.startswith("spec")
        assert first.remedy
    else:
        assert outcome(body) == first
        table = first.speculation.schedule
        assert table is None or table.max_k <= first.speculation.max_speculative_tokens


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*WHOLE, "model"]), inner, max_size=4),
    max_leaves=8,
)


@given(spec=JSON, metadata=st.none() | st.just({"name": "a"}))
def test_any_json_converts_or_says_why(spec: Any, metadata: Any) -> None:
    assert str(outcome({"metadata": metadata, "spec": spec}))


@pytest.mark.parametrize(
    ("name", "owner", "expected"),
    [
        ("qwen-candidate", {"kind": names.KIND, "name": "qwen", "controller": True}, "qwen"),
        ("qwen-candidate", {"kind": names.KIND, "name": "other", "controller": True}, ""),
        ("qwen-candidate", {"kind": names.KIND, "name": "qwen"}, ""),
        ("qwen-candidate", {"kind": "Deployment", "name": "qwen", "controller": True}, ""),
        ("qwen-candidate", None, ""),
        ("other", {"kind": names.KIND, "name": "qwen", "controller": True}, ""),
    ],
)
def test_a_candidate_is_known_by_name_and_controller(name: str, owner: dict[str, Any] | None, expected: str) -> None:
    body = specdep(name=name)
    body["metadata"]["ownerReferences"] = [owner] if owner else []
    assert to_domain(body).candidate_of == expected


def test_measuring_has_its_defaults() -> None:
    given = to_domain(specdep({"speculator": {"auto": True, "measure": {}}})).measure
    assert given is not None
    assert (given.deadline_seconds, given.priority_class_name) == (1800, "")
    assert to_domain(specdep({"speculator": {"auto": True}})).measure is None
