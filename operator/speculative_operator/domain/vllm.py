"""Facts of vLLM by which both the API and the engine's adapter refuse specs, and what its options say to others."""

from __future__ import annotations

from speculative_operator.domain.spec import DeploymentSpec, Method

IN_ONE_PASS = (Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3)
"""Methods whose weights may have been trained to draft all tokens at once (P-EAGLE, PARD). Source: vLLM 0.32,
config/speculative.py."""
ADAPTIVE = (Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3, Method.MTP, Method.DFLASH, Method.DSPARK)
"""Methods that estimate how likely each draft is accepted (`enable_adaptive_verification`). For the others vLLM ignores
the key. Source: vLLM 0.32, v1/worker/gpu/spec_decode/speculator.py."""
FIELDS_OF_KEYS = {
    "method": "speculator.method",
    "model": "speculator.model",
    "revision": "speculator.revision",
    "quantization": "speculator.quantization",
    "draft_tensor_parallel_size": "speculator.tensorParallelSize",
    "tensor_parallel_size": "speculator.tensorParallelSize",
    "parallel_drafting": "speculator.parallelDrafting",
    "use_heterogeneous_vocab": "speculator.heterogeneousVocabulary",
    "prompt_lookup_min": "speculator.promptLookup.min",
    "prompt_lookup_max": "speculator.promptLookup.max",
    "num_speculative_tokens": "speculation.maxSpeculativeTokens or speculation.numSpeculativeTokens",
    "num_speculative_tokens_per_batch_size": "speculation.schedule",
    "enable_adaptive_verification": "speculation.adaptiveVerification",
}
"""Key of `--speculative-config` -> the field of the spec that sets it. All other keys are the user's
(`speculator.options`)."""
ALWAYS_SET = "nothing: the operator sets it"
FIELDS_OF_FLAGS = {
    "--model": "spec.verifier.model",
    "--revision": "spec.verifier.revision",
    "--served-model-name": "spec.verifier.servedName",
    "--tensor-parallel-size": "spec.verifier.tensorParallelSize",
    "--pipeline-parallel-size": "spec.verifier.pipelineParallelSize",
    "--data-parallel-size": "spec.verifier.dataParallelSize",
    "--max-model-len": "spec.verifier.maxModelLen",
    "--max-num-seqs": "spec.verifier.maxNumSeqs",
    "--max-num-batched-tokens": "spec.verifier.maxNumBatchedTokens",
    "--enable-expert-parallel": "spec.verifier.expertParallel",
    "--enable-lora": "spec.verifier.lora",
    "--max-loras": "spec.verifier.lora.maxAdapters",
    "--max-lora-rank": "spec.verifier.lora.maxRank",
    "--speculative-config": "spec.speculator (options has its further keys) and spec.speculation",
    "--spec-method": "spec.speculator.method",
    "--spec-model": "spec.speculator.model",
    "--spec-tokens": "spec.speculation.numSpeculativeTokens",
    "--scheduler-cls": "spec.speculation",
    "--worker-extension-cls": "spec.speculation.offPolicy",
    "--dtype": "spec.verifier.dtype",
    "--quantization": "spec.verifier.quantization",
    "--kv-cache-dtype": "spec.verifier.kvCacheDtype",
    "--gpu-memory-utilization": "spec.verifier.gpuMemoryUtilizationPercent",
    "--shutdown-timeout": ALWAYS_SET,
    "--host": ALWAYS_SET,
    "--port": ALWAYS_SET,
}
"""Flag -> the field of the spec that sets it. Given twice, engine and operator would use different values."""
ALIASES = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-ep": "--enable-expert-parallel",
    "-q": "--quantization",
    "-sc": "--speculative-config",
}
"""Short form -> flag."""


def drafting_kv_cache_dtype(spec: DeploymentSpec) -> str:
    """Number format of the speculator's KV cache: its own option, else the verifier's; empty: the engine's choice."""
    options = spec.speculator.options if spec.speculator is not None else {}
    return str(options.get("kv_cache_dtype") or spec.verifier.kv_cache_dtype)
