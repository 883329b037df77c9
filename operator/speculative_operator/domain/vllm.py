"""Facts of vLLM by which both the API and the engine's adapter refuse specs."""

from __future__ import annotations

from speculative_operator.domain.spec import Method

IN_ONE_PASS = (Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3)
"""Methods whose weights may have been trained to draft all tokens at once (P-EAGLE, PARD). Source: vLLM 0.32,
config/speculative.py."""
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
    "--speculative-config": "spec.speculator and spec.speculation",
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
