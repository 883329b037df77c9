"""The flags of vLLM that the operator owns. Used by `graphs`, `arguments` and `checks`."""

from __future__ import annotations

from speculative_operator.domain.spec import EngineType
from speculative_operator.engines.shared.flags import ALWAYS, SPECULATION, Flags, of_verifier

VERIFIER_FLAGS = {
    "--tensor-parallel-size": "tensorParallelSize", "--pipeline-parallel-size": "pipelineParallelSize",
    "--data-parallel-size": "dataParallelSize", "--enable-expert-parallel": "expertParallel",
    "--max-model-len": "maxModelLen", "--dtype": "dtype", "--quantization": "quantization",
    "--kv-cache-dtype": "kvCacheDtype", "--gpu-memory-utilization": "gpuMemoryUtilizationPercent",
}  # fmt: skip
"""Flag -> field of spec.verifier, in the order in which they are written."""
FLAGS = Flags(
    EngineType.VLLM,
    owned={
        **of_verifier({
            **VERIFIER_FLAGS, "--model": "model", "--revision": "revision", "--served-model-name": "servedName",
            "--max-num-seqs": "maxNumSeqs", "--max-num-batched-tokens": "maxNumBatchedTokens", "--enable-lora": "lora",
            "--max-loras": "lora.maxAdapters", "--max-lora-rank": "lora.maxRank",
        }),
        "--speculative-config": "set spec.speculator (options has its further keys) and spec.speculation instead",
        "--scheduler-cls": "K is changed through it",
        "--worker-extension-cls": "the speculator follows K through it",
        **dict.fromkeys(("--spec-method", "--spec-model", "--spec-tokens"), SPECULATION),
        "--nnodes": "set spec.nodes instead",
        **dict.fromkeys(("--node-rank", "--master-addr"), "the operator sets it for spec.nodes"),
        **dict.fromkeys(("--shutdown-timeout", "--host", "--port"), ALWAYS),
    },
    flexible=True,
)  # fmt: skip
