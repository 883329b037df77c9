"""Which of TGI's flags the operator owns. Used by `checks`."""

from __future__ import annotations

from speculative_operator.engines.shared.flags import ALWAYS, SPECULATION, Flags

FLAGS = Flags(
    owned={
        "--model-id": "set spec.verifier.model instead",
        "--revision": "set spec.verifier.revision instead",
        "--hostname": ALWAYS,
        "--port": ALWAYS,
        "--num-shard": "set spec.verifier.tensorParallelSize instead",
        "--sharded": "set spec.verifier.tensorParallelSize instead",
        "--max-batch-size": "set spec.verifier.maxNumSeqs instead",
        "--max-concurrent-requests": "set spec.verifier.maxNumSeqs instead",
        "--max-total-tokens": "set spec.verifier.maxModelLen instead",
        "--max-batch-prefill-tokens": "set spec.verifier.maxNumBatchedTokens instead",
        "--dtype": "set spec.verifier.dtype instead",
        "--quantize": "set spec.verifier.quantization instead",
        "--kv-cache-dtype": "set spec.verifier.kvCacheDtype instead",
        "--cuda-memory-fraction": "set spec.verifier.gpuMemoryUtilizationPercent instead",
        "--graceful-termination-timeout": ALWAYS,
        "--speculate": SPECULATION,
    },
    aliases={"-p": "--port"},
)
