"""Combinations that an engine does not support and the API server takes, with what the first reconcile says of them.

Shared by test_engine_refusals.py beside it (a real API server) and tests/unit/engines/test_refused_combinations.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.contract.objects import VERIFIER, scheduled, specdep

TICK, WITHOUT = "tick", "without"
V1, V2 = ([{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": value}] for value in "01")
HEAD = "hf://example/head"


@dataclass(frozen=True)
class Combination:
    """`parts` are in what is said, the value and the remedy among them; `field` names where."""

    name: str
    changes: Mapping[str, Any]
    field: str
    parts: tuple[str, ...]
    by: str = TICK
    """TICK: the first reconcile refuses it; WITHOUT: it is served without a speculator."""
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
SGLANG, TRT = engine("SGLang", "0.5.23"), engine("TensorRTLLM", "1.3.0")
CPU = {"accelerator.perReplica": 0}

COMBINATIONS: tuple[Combination, ...] = (
    # vLLM: methods, releases, runners
    Combination(
        "dspark-early",
        drafted("dspark", model=None, engine__version="0.24.0"),
        "speculator.method",
        ("dspark", "0.24.0", "needs engine.version 0.25.1"),
        by=WITHOUT,
    ),
    Combination(
        "draft-model-early",
        {"engine.version": "0.13.0"},
        "speculator.method",
        ("draft_model", "0.15.0 or newer"),
        by=WITHOUT,
    ),
    Combination("oldest", {"engine.version": "0.10.2"}, "engine.version", ("0.10.2", "use 0.11.0 or newer")),
    Combination(
        "suffix-v2", drafted("suffix", model=None, engine__env=V2), "speculator.method", ("suffix", "remove VLLM")
    ),
    Combination(
        "dspark-v1", drafted("dspark", model=None, engine__env=V1), "speculator.method", ("dspark", "remove VLLM")
    ),
    Combination(
        "ngram-v2-early",
        drafted("ngram", model=None, engine__env=V2, engine__version="0.31.0"),
        "speculator.method",
        ("ngram", "remove VLLM_USE_V2_MODEL_RUNNER"),
        by=WITHOUT,
    ),
    Combination(
        "p-eagle-early",
        drafted("eagle3", speculator__parallelDrafting=True, engine__version="0.15.1"),
        "speculator.method",
        ("eagle3 with parallelDrafting", "0.16.0 or newer"),
        by=WITHOUT,
    ),
    Combination(
        "p-eagle-v2",
        drafted("eagle3", speculator__parallelDrafting=True, engine__env=V2),
        "speculator.method",
        ("eagle3 with parallelDrafting", "remove VLLM_USE_V2_MODEL_RUNNER"),
    ),
    Combination(
        "vocabulary-v2",
        {"speculator.heterogeneousVocabulary": True, "engine.env": V2},
        "speculator.method",
        ("draft_model with heterogeneousVocabulary", "remove VLLM_USE_V2_MODEL_RUNNER"),
    ),
    Combination(
        "adaptive-verification-early",
        drafted("eagle3", speculation__adaptiveVerification=True, engine__version="0.31.0"),
        "speculation.adaptiveVerification",
        ("true needs engine.version 0.32.0 or newer, not 0.31.0", "set it, or remove this"),
    ),
    Combination(
        "adaptive-verification-v1",
        drafted("eagle3", speculation__adaptiveVerification=True, engine__env=V1),
        "speculation.adaptiveVerification",
        ("V1 serves eagle3", "remove VLLM_USE_V2_MODEL_RUNNER"),
    ),
    Combination(
        "adaptive-verification-one-pass",
        drafted("eagle3", speculation__adaptiveVerification=True, speculator__parallelDrafting=True),
        "speculation.adaptiveVerification",
        ("V1 serves eagle3", "remove speculator.parallelDrafting"),
    ),
    Combination(
        "adaptive-verification-vocabulary",
        {"speculator.heterogeneousVocabulary": True, "speculation.adaptiveVerification": True},
        "speculation.adaptiveVerification",
        ("V1 serves draft_model", "remove speculator.heterogeneousVocabulary"),
    ),
    Combination(
        "adaptive-verification-adapters",
        drafted("eagle3", speculation__adaptiveVerification=True, verifier__lora={}),
        "speculation.adaptiveVerification",
        ("adapters of verifier.lora", "remove one of the two"),
    ),
    Combination(
        "adaptive-verification-stages",
        drafted("eagle3", speculation__adaptiveVerification=True, verifier__pipelineParallelSize=2),
        "speculation.adaptiveVerification",
        ("pipelineParallelSize 2", "set 1, or remove this"),
    ),
    Combination(
        "adaptive-verification-argmax",
        drafted(
            "eagle3", speculation__adaptiveVerification=True, speculator__options={"use_local_argmax_reduction": True}
        ),
        "speculation.adaptiveVerification",
        ("speculator.options.use_local_argmax_reduction", "remove one of the two"),
    ),
    Combination(
        "adaptive-verification-eager",
        drafted("eagle3", speculation__adaptiveVerification=True, engine__args=["--enforce-eager"]),
        "speculation.adaptiveVerification",
        ("full CUDA graphs, which engine.args turn off", "remove that argument"),
    ),
    Combination(
        "adaptive-verification-cpu",
        {**drafted("eagle3", speculation__adaptiveVerification=True), **CPU},
        "speculation.adaptiveVerification",
        ("full CUDA graphs, which CPU accelerators have not", "remove this"),
    ),
    Combination(
        "adaptive-verification-attention",
        drafted("eagle3", speculation__adaptiveVerification=True, accelerator__product="NVIDIA-A100-SXM4-80GB"),
        "speculation.adaptiveVerification",
        ("A100-80GB", "FlashAttention 2", "add --attention-backend=TRITON_ATTN to engine.args"),
    ),
    *(
        Combination(
            f"option-{key.replace('_', '-')}",
            drafted("eagle3", speculator__options={key: value}),
            "speculator.options",
            (f"{key.replace('-', '_')} {value!r}", f"set {field} instead"),
            reason="SpecInvalid",
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
        "vocabulary-one-pass",
        {"speculator.heterogeneousVocabulary": True, "speculator.parallelDrafting": True},
        "speculator.heterogeneousVocabulary",
        ("true", "remove one of the two"),
        reason="SpecInvalid",
    ),
    Combination(
        "vocabulary-early",
        {"speculator.heterogeneousVocabulary": True, "engine.version": "0.25.0"},
        "speculator.method",
        ("heterogeneousVocabulary", "0.25.1 or newer"),
        by=WITHOUT,
    ),
    Combination(
        "own-name-eagle",
        drafted("eagle", model=VERIFIER),
        "speculator.model",
        (VERIFIER, "eagle3, dflash"),
        reason="SpecInvalid",
    ),
    Combination(
        "own-name-draft-model",
        {"speculator.model": VERIFIER},
        "speculator.model",
        (VERIFIER, "set another speculator"),
        reason="SpecInvalid",
    ),
    *(
        Combination(
            f"flag{argument}",
            {"engine.args": ["--enforce-eager", argument]},
            "engine.args",
            (argument, "remove it from engine.args"),
            reason="SpecInvalid",
        )
        for argument in ("--speculative-config", "--max_num_seqs=9", "-tp=2", "--speculative-config.method=x", "-ep")
    ),
    *(
        Combination(
            f"{method}-schedule",
            {**drafted(method, model=HEAD if method == "medusa" else None), **scheduled([1, 256, 3])},
            "speculation.schedule",
            (method, "numSpeculativeTokens"),
        )
        for method in ("suffix", "ngram_gpu", "medusa")
    ),
    Combination(
        "data-parallel-schedule",
        {**drafted("eagle3", verifier__dataParallelSize=2), **scheduled([1, 256, 3])},
        "speculation.schedule",
        ("dataParallelSize 2", "numSpeculativeTokens"),
    ),
    Combination(
        "pipeline-early",
        {**drafted("eagle3"), "verifier.pipelineParallelSize": 2, "engine.version": "0.14.0"},
        "speculator.method",
        ("eagle3", "pipelineParallelSize: 1", "engine.version 0.32.0 or newer"),
        by=WITHOUT,
    ),
    Combination(
        "schedule-early",
        {**scheduled([1, 8, 3], [9, 256, 1]), "engine.version": "0.23.0"},
        "speculation.schedule",
        ("0.23.0", "numSpeculativeTokens"),
    ),
    Combination(
        "p-eagle-schedule",
        {**drafted("eagle3", speculator__parallelDrafting=True), **scheduled([1, 8, 3], [9, 256, 1])},
        "speculation.schedule",
        ("eagle3", "numSpeculativeTokens"),
    ),
    Combination(
        "lora-room",
        {
            **drafted("eagle3"),
            "verifier.lora": {"maxAdapters": 2},
            "verifier.maxNumSeqs": 256,
            "verifier.maxNumBatchedTokens": 1024,
        },
        "verifier.maxNumBatchedTokens",
        ("1024", "or more"),
        reason="SpecInvalid",
    ),
    # vLLM: accelerators
    Combination(
        "gaudi-medusa",
        {**drafted("medusa"), **on(GAUDI, "0.26.0")},
        "speculator.method",
        ("medusa", "Gaudi", "ngram, eagle"),
    ),
    Combination(
        "gaudi-draft-model", on(GAUDI, "0.26.0"), "speculator.method", ("draft_model", "Gaudi", "vllm-gaudi has")
    ),
    Combination(
        "gaudi-newer",
        {**drafted("eagle3"), **on(GAUDI, "0.32.0", "")},
        "engine.version",
        ("0.32.0", "set engine.version 0.26.0"),
    ),
    Combination(
        "neuron-ngram",
        {**drafted("ngram", model=None), **on(NEURON, "0.24.0")},
        "speculator.method",
        ("ngram", "eagle3 only"),
    ),
    Combination(
        "neuron-pipeline",
        {**drafted("eagle3"), **on(NEURON, "0.24.0"), "verifier.pipelineParallelSize": 2},
        "verifier.pipelineParallelSize",
        ("2", "set it to 1"),
    ),
    Combination(
        "neuron-lora",
        {**drafted("eagle3"), **on(NEURON, "0.24.0"), "verifier.lora": {"maxAdapters": 1}},
        "verifier.lora",
        ("adapters", "remove verifier.lora"),
    ),
    Combination(
        "tpu-mtp", {**drafted("mtp", model=None), **on(TPU, "0.27.0")}, "speculator.method", ("mtp", "TPU", "dflash")
    ),
    Combination(
        "tpu-dflash-early",
        {**drafted("dflash"), **on(TPU, "0.24.0")},
        "speculator.method",
        ("dflash", "ngram and eagle3"),
        by=WITHOUT,
    ),
    Combination(
        "tpu-schedule",
        {**drafted("eagle3"), **on(TPU, "0.27.0"), **scheduled([1, 256, 3])},
        "speculation.schedule",
        ("0.27.0", "numSpeculativeTokens"),
    ),
    Combination(
        "cpu-dspark", {**drafted("dspark", model=None), **CPU}, "speculator.method", ("dspark", "CPU", "use eagle3")
    ),
    Combination(
        "cpu-early",
        {**drafted("eagle3"), **CPU, "engine.version": "0.31.0"},
        "speculator.method",
        ("0.31.0", "use 0.32.0"),
        by=WITHOUT,
    ),
    Combination("cpu-v2", {**drafted("eagle3"), **CPU, "engine.env": V2}, "engine.env", ("V2", "remove it")),
    # SGLang
    Combination("sglang-medusa", {**SGLANG, **drafted("medusa")}, "speculator.method", ("medusa", "use")),
    Combination("sglang-suffix", {**SGLANG, **drafted("suffix", model=None)}, "speculator.method", ("suffix",)),
    Combination(
        "sglang-p-eagle",
        {**SGLANG, **drafted("eagle3", speculator__parallelDrafting=True)},
        "speculator.method",
        ("parallelDrafting",),
    ),
    Combination(
        "sglang-vocabulary",
        {**SGLANG, "speculator.heterogeneousVocabulary": True},
        "speculator.method",
        ("heterogeneousVocabulary", "vLLM"),
    ),
    Combination(
        "sglang-pipeline",
        {**SGLANG, **drafted("eagle3"), "verifier.pipelineParallelSize": 2},
        "speculator.method",
        ("eagle3", "pipelineParallelSize: 1"),
    ),
    Combination(
        "sglang-amd-ngram",
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
        {**SGLANG, **drafted("eagle3"), "accelerator.resource": TPU},
        "accelerator.resource",
        (TPU, "vLLM"),
    ),
    Combination(
        "sglang-ngram-schedule",
        {**SGLANG, **drafted("ngram", model=None), **scheduled([1, 8, 3], [9, 256, 1])},
        "speculation.schedule",
        ("numSpeculativeTokens",),
    ),
    Combination(
        "sglang-data-parallel-schedule",
        {**SGLANG, **drafted("eagle3", verifier__dataParallelSize=2), **scheduled([1, 8, 3], [9, 256, 1])},
        "speculation.schedule",
        ("numSpeculativeTokens",),
    ),
    Combination(
        "sglang-oldest", {**engine("SGLang", "0.4.6"), **drafted("eagle3")}, "engine.version", ("0.4.6", "0.5.23")
    ),
    # TensorRT-LLM
    Combination("trt-eagle", {**TRT, **drafted("eagle")}, "speculator.method", ("eagle", "eagle3")),
    Combination("trt-medusa", {**TRT, **drafted("medusa")}, "speculator.method", ("medusa", "use one of")),
    Combination(
        "trt-amd",
        {**TRT, **drafted("eagle3"), "accelerator.resource": "amd.com/gpu"},
        "accelerator.resource",
        ("amd.com/gpu",),
    ),
    Combination(
        "trt-data-parallel",
        {**TRT, **drafted("eagle3"), "verifier.dataParallelSize": 2},
        "dataParallelSize",
        ("dataParallelSize 2", "set 1", "spec.replicas"),
    ),
    Combination(
        "trt-rising",
        {**TRT, **drafted("eagle3"), **scheduled([1, 8, 1], [9, 256, 3])},
        "speculation.schedule",
        ("rises",),
    ),
    Combination(
        "trt-suffix-early",
        {**engine("TensorRTLLM", "1.2.0"), **drafted("suffix", model=None), **scheduled([1, 8, 3], [9, 256, 1])},
        "speculator.method",
        ("suffix", "1.2.0", "1.3.0 or newer"),
    ),
    Combination(
        "trt-oldest", {**engine("TensorRTLLM", "0.20.0"), **drafted("eagle3")}, "engine.version", ("0.20.0", "or newer")
    ),
)
