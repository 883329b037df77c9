"""Combinations that an engine does not support, with who refuses them and what is said.

Shared by test_engine_refusals.py beside it (a real API server) and tests/unit/engines/test_refused_combinations.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.contract.objects import ABSENT, VERIFIER, scheduled, specdep

SERVER, TICK, WITHOUT = "server", "tick", "without"
V1, V2 = ([{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": value}] for value in "01")
HEAD = "hf://example/head"


@dataclass(frozen=True)
class Combination:
    """`parts` are in what is said, the value and the remedy among them; `field` names where."""

    name: str
    by: str
    """Who refuses it: the API server, or the first reconcile; or that it is served without a speculator."""
    changes: Mapping[str, Any]
    field: str
    parts: tuple[str, ...]
    reason: str = "UnsupportedByEngine"

    def body(self) -> dict[str, Any]:
        return specdep(self.changes)


def drafted(method: str, *, model: str | None = HEAD, **others: Any) -> dict[str, Any]:
    """Changes for a speculator of `method`; further fields with __ for the dot."""
    speculator = {"method": method, **({"model": model} if model else {})}
    return {"speculator": speculator, **{key.replace("__", "."): value for key, value in others.items()}}


def engine(kind: str, version: str, image: str = "") -> dict[str, Any]:
    return {"engine.type": kind, "engine.version": version, **({"engine.image": image} if image else {})}


def on(resource: str, version: str, image: str = "example.com/engine:1") -> dict[str, Any]:
    return {**engine("vLLM", version, image), "accelerator.resource": resource}


GAUDI, NEURON, TPU = "habana.ai/gaudi", "aws.amazon.com/neuroncore", "google.com/tpu"
SGLANG, TRT, TGI = engine("SGLang", "0.5.23"), engine("TensorRTLLM", "1.3.0"), engine("TGI", "3.3.7")
CPU = {"accelerator.perReplica": 0}

COMBINATIONS: tuple[Combination, ...] = (
    # vLLM: methods, releases, runners
    Combination(
        "dspark-early",
        WITHOUT,
        drafted("dspark", model=None, engine__version="0.24.0"),
        "speculator.method",
        ("dspark", "0.24.0", "needs engine.version 0.25.1"),
    ),
    Combination(
        "draft-model-early",
        WITHOUT,
        {"engine.version": "0.13.0"},
        "speculator.method",
        ("draft_model", "0.15.0 or newer"),
    ),
    Combination("oldest", TICK, {"engine.version": "0.10.2"}, "engine.version", ("0.10.2", "use 0.11.0 or newer")),
    Combination(
        "suffix-v2", TICK, drafted("suffix", model=None, engine__env=V2), "speculator.method", ("suffix", "remove VLLM")
    ),
    Combination(
        "dspark-v1", TICK, drafted("dspark", model=None, engine__env=V1), "speculator.method", ("dspark", "remove VLLM")
    ),
    Combination(
        "ngram-v2-early",
        WITHOUT,
        drafted("ngram", model=None, engine__env=V2, engine__version="0.31.0"),
        "speculator.method",
        ("ngram", "remove VLLM_USE_V2_MODEL_RUNNER"),
    ),
    Combination(
        "p-eagle-early",
        WITHOUT,
        drafted("eagle3", speculator__parallelDrafting=True, engine__version="0.15.1"),
        "speculator.method",
        ("eagle3 with parallelDrafting", "0.16.0 or newer"),
    ),
    Combination(
        "p-eagle-v2",
        TICK,
        drafted("eagle3", speculator__parallelDrafting=True, engine__env=V2),
        "speculator.method",
        ("eagle3 with parallelDrafting", "remove VLLM_USE_V2_MODEL_RUNNER"),
    ),
    Combination(
        "vocabulary-v2",
        TICK,
        {"speculator.heterogeneousVocabulary": True, "engine.env": V2},
        "speculator.method",
        ("draft_model with heterogeneousVocabulary", "remove VLLM_USE_V2_MODEL_RUNNER"),
    ),
    Combination(
        "adaptive-verification-early",
        TICK,
        drafted("eagle3", speculation__adaptiveVerification=True, engine__version="0.31.0"),
        "speculation.adaptiveVerification",
        ("true needs engine.version 0.32.0 or newer, not 0.31.0", "set it, or remove this"),
    ),
    Combination(
        "adaptive-verification-v1",
        TICK,
        drafted("eagle3", speculation__adaptiveVerification=True, engine__env=V1),
        "speculation.adaptiveVerification",
        ("V1 serves eagle3", "remove VLLM_USE_V2_MODEL_RUNNER"),
    ),
    Combination(
        "adaptive-verification-one-pass",
        TICK,
        drafted("eagle3", speculation__adaptiveVerification=True, speculator__parallelDrafting=True),
        "speculation.adaptiveVerification",
        ("V1 serves eagle3", "remove speculator.parallelDrafting"),
    ),
    Combination(
        "adaptive-verification-vocabulary",
        TICK,
        {"speculator.heterogeneousVocabulary": True, "speculation.adaptiveVerification": True},
        "speculation.adaptiveVerification",
        ("V1 serves draft_model", "remove speculator.heterogeneousVocabulary"),
    ),
    Combination(
        "adaptive-verification-adapters",
        TICK,
        drafted("eagle3", speculation__adaptiveVerification=True, verifier__lora={}),
        "speculation.adaptiveVerification",
        ("adapters of verifier.lora", "remove one of the two"),
    ),
    Combination(
        "adaptive-verification-stages",
        TICK,
        drafted("eagle3", speculation__adaptiveVerification=True, verifier__pipelineParallelSize=2),
        "speculation.adaptiveVerification",
        ("pipelineParallelSize 2", "set 1, or remove this"),
    ),
    Combination(
        "adaptive-verification-argmax",
        TICK,
        drafted(
            "eagle3", speculation__adaptiveVerification=True, speculator__options={"use_local_argmax_reduction": True}
        ),
        "speculation.adaptiveVerification",
        ("speculator.options.use_local_argmax_reduction", "remove one of the two"),
    ),
    Combination(
        "adaptive-verification-eager",
        TICK,
        drafted("eagle3", speculation__adaptiveVerification=True, engine__args=["--enforce-eager"]),
        "speculation.adaptiveVerification",
        ("full CUDA graphs, which engine.args turn off", "remove that argument"),
    ),
    Combination(
        "adaptive-verification-cpu",
        TICK,
        {**drafted("eagle3", speculation__adaptiveVerification=True), **CPU},
        "speculation.adaptiveVerification",
        ("full CUDA graphs, which CPU accelerators have not", "remove this"),
    ),
    Combination(
        "adaptive-verification-attention",
        TICK,
        drafted("eagle3", speculation__adaptiveVerification=True, accelerator__product="NVIDIA-A100-SXM4-80GB"),
        "speculation.adaptiveVerification",
        ("A100-80GB", "FlashAttention 2", "add --attention-backend=TRITON_ATTN to engine.args"),
    ),
    *(
        Combination(
            f"option-{key.replace('_', '-')}",
            TICK,
            drafted("eagle3", speculator__options={key: value}),
            "speculator.options",
            (f"{key.replace('-', '_')} {value!r}", f"set {field} instead"),
            "SpecInvalid",
        )
        for key, value, field in (
            ("method", "ngram", "speculator.method"),
            ("model", "a/b", "speculator.model"),
            ("revision", "main", "speculator.revision"),
            ("quantization", "fp8", "speculator.quantization"),
            ("draft_tensor_parallel_size", 1, "speculator.tensorParallelSize"),
            ("tensor_parallel_size", 1, "speculator.tensorParallelSize"),
            ("parallel_drafting", True, "speculator.parallelDrafting"),
            ("use_heterogeneous_vocab", True, "speculator.heterogeneousVocabulary"),
            ("prompt_lookup_min", 2, "speculator.promptLookup.min"),
            ("prompt-lookup-max", 4, "speculator.promptLookup.max"),
            ("num_speculative_tokens", 5, "speculation.maxSpeculativeTokens or speculation.numSpeculativeTokens"),
            ("num_speculative_tokens_per_batch_size", [[1, 256, 3]], "speculation.schedule"),
            ("enable_adaptive_verification", False, "speculation.adaptiveVerification"),
        )
    ),
    Combination(
        "speculative-config",
        SERVER,
        {"engine.args": ['--speculative-config={"attention_backend":"TRITON_ATTN"}']},
        "engine.args",
        ("--speculative-config", "set the field of the spec instead"),
    ),
    Combination(
        "vocabulary-one-pass",
        TICK,
        {"speculator.heterogeneousVocabulary": True, "speculator.parallelDrafting": True},
        "speculator.heterogeneousVocabulary",
        ("true", "remove one of the two"),
        "SpecInvalid",
    ),
    Combination(
        "vocabulary-early",
        WITHOUT,
        {"speculator.heterogeneousVocabulary": True, "engine.version": "0.25.0"},
        "speculator.method",
        ("heterogeneousVocabulary", "0.25.1 or newer"),
    ),
    Combination(
        "own-name-eagle",
        TICK,
        drafted("eagle", model=VERIFIER),
        "speculator.model",
        (VERIFIER, "eagle3, dflash"),
        "SpecInvalid",
    ),
    Combination(
        "pipeline-early",
        WITHOUT,
        {**drafted("eagle3"), "verifier.pipelineParallelSize": 2, "engine.version": "0.14.0"},
        "speculator.method",
        ("eagle3", "pipelineParallelSize: 1", "engine.version 0.32.0 or newer"),
    ),
    Combination(
        "schedule-early",
        TICK,
        {**scheduled([1, 8, 3], [9, 256, 1]), "engine.version": "0.23.0"},
        "speculation.schedule",
        ("0.23.0", "numSpeculativeTokens"),
    ),
    Combination(
        "p-eagle-schedule",
        TICK,
        {**drafted("eagle3", speculator__parallelDrafting=True), **scheduled([1, 8, 3], [9, 256, 1])},
        "speculation.schedule",
        ("eagle3", "numSpeculativeTokens"),
    ),
    Combination(
        "lora-room",
        TICK,
        {
            **drafted("eagle3"),
            "verifier.lora": {"maxAdapters": 2},
            "verifier.maxNumSeqs": 256,
            "verifier.maxNumBatchedTokens": 1024,
        },
        "verifier.maxNumBatchedTokens",
        ("1024", "or more"),
        "SpecInvalid",
    ),
    # vLLM: what the API server sees in the fields
    Combination(
        "suffix-schedule",
        SERVER,
        {**drafted("suffix", model=None), **scheduled([1, 256, 3])},
        "speculation.schedule",
        ("suffix", "numSpeculativeTokens"),
    ),
    Combination(
        "schedule-data-parallel",
        SERVER,
        {**scheduled([1, 256, 3]), "verifier.dataParallelSize": 2},
        "speculation.schedule",
        ("dataParallelSize is 2", "numSpeculativeTokens"),
    ),
    Combination(
        "draft-tp",
        SERVER,
        {"verifier.tensorParallelSize": 4, "speculator.tensorParallelSize": 2},
        "speculator.tensorParallelSize",
        ("is 2", "write 1 or"),
    ),
    Combination(
        "vocabulary-eagle3",
        SERVER,
        drafted("eagle3", speculator__heterogeneousVocabulary=True),
        "speculator",
        ("eagle3", "remove it"),
    ),
    Combination(
        "one-pass-mtp", SERVER, drafted("mtp", speculator__parallelDrafting=True), "speculator", ("mtp", "remove it")
    ),
    Combination(
        "lookup-eagle3",
        SERVER,
        drafted("eagle3", speculator__promptLookup={"max": 4}),
        "speculator",
        ("eagle3", "remove it"),
    ),
    Combination(
        "lookup-order",
        SERVER,
        drafted("ngram", model=None, speculator__promptLookup={"min": 5, "max": 2}),
        "speculator",
        ("min is 5", "2"),
    ),
    Combination("draft-free-model", SERVER, drafted("ngram"), "speculator", ("ngram", "remove model")),
    Combination(
        "draft-is-verifier", SERVER, {"speculator.model": VERIFIER}, "speculator.model", (VERIFIER, "smaller model")
    ),
    # vLLM: accelerators
    Combination(
        "gaudi-medusa",
        TICK,
        {**drafted("medusa"), **on(GAUDI, "0.26.0")},
        "speculator.method",
        ("medusa", "Gaudi", "ngram, eagle"),
    ),
    Combination(
        "gaudi-draft-model", TICK, on(GAUDI, "0.26.0"), "speculator.method", ("draft_model", "Gaudi", "vllm-gaudi has")
    ),
    Combination(
        "gaudi-newer",
        TICK,
        {**drafted("eagle3"), **on(GAUDI, "0.32.0", "")},
        "engine.version",
        ("0.32.0", "set engine.version 0.26.0"),
    ),
    Combination(
        "neuron-ngram",
        TICK,
        {**drafted("ngram", model=None), **on(NEURON, "0.24.0")},
        "speculator.method",
        ("ngram", "eagle3 only"),
    ),
    Combination(
        "neuron-pipeline",
        TICK,
        {**drafted("eagle3"), **on(NEURON, "0.24.0"), "verifier.pipelineParallelSize": 2},
        "verifier.pipelineParallelSize",
        ("2", "set it to 1"),
    ),
    Combination(
        "neuron-lora",
        TICK,
        {**drafted("eagle3"), **on(NEURON, "0.24.0"), "verifier.lora": {"maxAdapters": 1}},
        "verifier.lora",
        ("adapters", "remove verifier.lora"),
    ),
    Combination(
        "tpu-mtp",
        TICK,
        {**drafted("mtp", model=None), **on(TPU, "0.27.0")},
        "speculator.method",
        ("mtp", "TPU", "dflash"),
    ),
    Combination(
        "tpu-dflash-early",
        WITHOUT,
        {**drafted("dflash"), **on(TPU, "0.24.0")},
        "speculator.method",
        ("dflash", "ngram and eagle3"),
    ),
    Combination(
        "tpu-schedule",
        TICK,
        {**drafted("eagle3"), **on(TPU, "0.27.0"), **scheduled([1, 256, 3])},
        "speculation.schedule",
        ("0.27.0", "numSpeculativeTokens"),
    ),
    Combination(
        "cpu-dspark",
        TICK,
        {**drafted("dspark", model=None), **CPU},
        "speculator.method",
        ("dspark", "CPU", "use eagle3"),
    ),
    Combination(
        "cpu-early",
        WITHOUT,
        {**drafted("eagle3"), **CPU, "engine.version": "0.31.0"},
        "speculator.method",
        ("0.31.0", "use 0.32.0"),
    ),
    Combination("cpu-v2", TICK, {**drafted("eagle3"), **CPU, "engine.env": V2}, "engine.env", ("V2", "remove it")),
    # SGLang
    Combination("sglang-medusa", TICK, {**SGLANG, **drafted("medusa")}, "speculator.method", ("medusa", "use")),
    Combination("sglang-suffix", TICK, {**SGLANG, **drafted("suffix", model=None)}, "speculator.method", ("suffix",)),
    Combination(
        "sglang-p-eagle",
        TICK,
        {**SGLANG, **drafted("eagle3", speculator__parallelDrafting=True)},
        "speculator.method",
        ("parallelDrafting",),
    ),
    Combination(
        "sglang-vocabulary",
        TICK,
        {**SGLANG, "speculator.heterogeneousVocabulary": True},
        "speculator.method",
        ("heterogeneousVocabulary", "vLLM"),
    ),
    Combination(
        "sglang-pipeline",
        TICK,
        {**SGLANG, **drafted("eagle3"), "verifier.pipelineParallelSize": 2},
        "speculator.method",
        ("eagle3", "pipelineParallelSize: 1"),
    ),
    Combination(
        "sglang-amd-ngram",
        TICK,
        {
            **engine("SGLang", "0.5.23", "example.com/sglang:1"),
            **drafted("ngram", model=None),
            "accelerator.resource": "amd.com/gpu",
        },
        "speculator.method",
        ("ngram", "draft_model"),
    ),
    Combination(
        "sglang-tpu",
        TICK,
        {**SGLANG, **drafted("eagle3"), "accelerator.resource": TPU},
        "accelerator.resource",
        (TPU, "vLLM"),
    ),
    Combination(
        "sglang-ngram-schedule",
        TICK,
        {**SGLANG, **drafted("ngram", model=None), **scheduled([1, 8, 3], [9, 256, 1])},
        "speculation.schedule",
        ("numSpeculativeTokens",),
    ),
    Combination(
        "sglang-data-parallel-schedule",
        TICK,
        {**SGLANG, **drafted("eagle3", verifier__dataParallelSize=2), **scheduled([1, 8, 3], [9, 256, 1])},
        "speculation.schedule",
        ("numSpeculativeTokens",),
    ),
    Combination(
        "sglang-oldest", TICK, {**engine("SGLang", "0.4.6"), **drafted("eagle3")}, "engine.version", ("0.4.6", "0.5.23")
    ),
    # TensorRT-LLM
    Combination("trt-eagle", TICK, {**TRT, **drafted("eagle")}, "speculator.method", ("eagle", "eagle3")),
    Combination("trt-medusa", TICK, {**TRT, **drafted("medusa")}, "speculator.method", ("medusa", "use one of")),
    Combination(
        "trt-amd",
        TICK,
        {**TRT, **drafted("eagle3"), "accelerator.resource": "amd.com/gpu"},
        "accelerator.resource",
        ("amd.com/gpu",),
    ),
    Combination(
        "trt-data-parallel",
        TICK,
        {**TRT, **drafted("eagle3"), "verifier.dataParallelSize": 2},
        "dataParallelSize",
        ("dataParallelSize 2", "set 1", "spec.replicas"),
    ),
    Combination(
        "trt-rising",
        TICK,
        {**TRT, **drafted("eagle3"), **scheduled([1, 8, 1], [9, 256, 3])},
        "speculation.schedule",
        ("rises",),
    ),
    Combination(
        "trt-suffix-early",
        TICK,
        {**engine("TensorRTLLM", "1.2.0"), **drafted("suffix", model=None), **scheduled([1, 8, 3], [9, 256, 1])},
        "speculator.method",
        ("suffix", "1.2.0", "1.3.0 or newer"),
    ),
    Combination(
        "trt-oldest",
        TICK,
        {**engine("TensorRTLLM", "0.20.0"), **drafted("eagle3")},
        "engine.version",
        ("0.20.0", "or newer"),
    ),
    # TGI
    Combination(
        "tgi-eagle3", TICK, {**TGI, **drafted("eagle3")}, "speculator.method", ("eagle3", "use one of ngram, medusa")
    ),
    Combination("tgi-draft-model", TICK, TGI, "speculator.method", ("draft_model", "vLLM")),
    Combination(
        "tgi-schedule",
        TICK,
        {**TGI, **drafted("ngram", model=None), **scheduled([1, 8, 3], [9, 256, 1])},
        "speculation.schedule",
        ("numSpeculativeTokens",),
    ),
    Combination(
        "tgi-medusa-schedule",
        TICK,
        {**TGI, **drafted("medusa", model=None), **scheduled([1, 8, 3], [9, 256, 1])},
        "speculation.schedule",
        ("numSpeculativeTokens",),
    ),
    Combination(
        "tgi-pipeline",
        TICK,
        {**TGI, "speculator": ABSENT, "verifier.pipelineParallelSize": 2},
        "pipelineParallelSize",
        ("2", "replicas"),
    ),
    Combination(
        "tgi-tpu", TICK, {**TGI, "speculator": ABSENT, "accelerator.resource": TPU}, "accelerator.resource", (TPU,)
    ),
)
