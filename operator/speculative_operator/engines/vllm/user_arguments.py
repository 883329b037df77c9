"""Which of vLLM's flags the operator owns. Used by `checks` and `graphs`."""

from __future__ import annotations

from speculative_operator.engines.shared.flags import ALWAYS, SPECULATION, Flags

FLAGS = Flags(
    owned={
        "--model": "set spec.verifier.model instead",
        "--served-model-name": "set spec.verifier.servedName instead",
        "--revision": "set spec.verifier.revision instead",
        "--host": ALWAYS,
        "--port": ALWAYS,
        "--tensor-parallel-size": "set spec.verifier.tensorParallelSize instead",
        "--pipeline-parallel-size": "set spec.verifier.pipelineParallelSize instead",
        "--data-parallel-size": "set spec.verifier.dataParallelSize instead",
        "--max-model-len": "set spec.verifier.maxModelLen instead",
        "--max-num-seqs": "set spec.verifier.maxNumSeqs instead",
        "--max-num-batched-tokens": "set spec.verifier.maxNumBatchedTokens instead",
        "--enable-expert-parallel": "set spec.verifier.expertParallel instead",
        "--enable-lora": "set spec.verifier.lora instead",
        "--max-loras": "set spec.verifier.lora.maxAdapters instead",
        "--max-lora-rank": "set spec.verifier.lora.maxRank instead",
        "--gpu-memory-utilization": "set spec.verifier.gpuMemoryUtilizationPercent instead",
        "--kv-cache-dtype": "set spec.verifier.kvCacheDtype instead",
        "--quantization": "set spec.verifier.quantization instead",
        "--dtype": "set spec.verifier.dtype instead",
        "--shutdown-timeout": ALWAYS,
        "--scheduler-cls": "K is changed through it",
        "--worker-extension-cls": "the drafter is left out through it",
        "--speculative-config": SPECULATION,
        "--spec-method": SPECULATION,
        "--spec-model": SPECULATION,
        "--spec-tokens": SPECULATION,
    },
    aliases={
        "-tp": "--tensor-parallel-size",
        "-pp": "--pipeline-parallel-size",
        "-dp": "--data-parallel-size",
        "-ep": "--enable-expert-parallel",
        "-q": "--quantization",
        "-sc": "--speculative-config",
    },
    blinding={"--disable-log-stats": "turns off the metrics"},
    abbreviates=True,
    flexible=True,
)
