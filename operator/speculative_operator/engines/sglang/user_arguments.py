"""Which of SGLang's flags the operator owns. Used by `checks`."""

from __future__ import annotations

from speculative_operator.engines.shared.flags import ALWAYS, SPECULATION, Flags

LOSSY_FLAGS = ("--speculative-accept-threshold-single", "--speculative-accept-threshold-acc")
"""Below 1.0 they accept drafts that the verifier would not have written."""
SAMPLING_FLAG = "--speculative-use-rejection-sampling"
"""Has drafts verified by their probability on AMD too, where a release does so for eagle and mtp only by itself."""

FLAGS = Flags(
    owned={
        "--model-path": "set spec.verifier.model instead",
        "--served-model-name": "set spec.verifier.servedName instead",
        "--revision": "set spec.verifier.revision instead",
        "--host": ALWAYS,
        "--port": ALWAYS,
        "--tp-size": "set spec.verifier.tensorParallelSize instead",
        "--pp-size": "set spec.verifier.pipelineParallelSize instead",
        "--dp-size": "set spec.verifier.dataParallelSize instead",
        "--ep-size": "set spec.verifier.expertParallel instead",
        "--attn-dp-size": "set spec.verifier.dataParallelSize or spec.replicas instead",
        "--enable-dp-attention": "set spec.verifier.dataParallelSize or spec.replicas instead",
        "--context-length": "set spec.verifier.maxModelLen instead",
        "--max-running-requests": "set spec.verifier.maxNumSeqs instead",
        "--chunked-prefill-size": "set spec.verifier.maxNumBatchedTokens instead",
        "--mem-fraction-static": "set spec.verifier.gpuMemoryUtilizationPercent instead",
        "--kv-cache-dtype": "set spec.verifier.kvCacheDtype instead",
        "--quantization": "set spec.verifier.quantization instead",
        "--dtype": "set spec.verifier.dtype instead",
        "--enable-lora": "set spec.verifier.lora instead",
        "--max-loras-per-batch": "set spec.verifier.lora instead",
        "--max-lora-rank": "set spec.verifier.lora instead",
        "--enable-metrics": ALWAYS,
        "--speculative-algorithm": SPECULATION,
        "--speculative-draft-model-path": SPECULATION,
        "--speculative-draft-model-revision": SPECULATION,
        "--speculative-draft-model-quantization": SPECULATION,
        "--speculative-num-steps": SPECULATION,
        "--speculative-eagle-topk": "drafts are a chain, of which K is the length",
        "--speculative-num-draft-tokens": SPECULATION,
        "--speculative-dflash-block-size": SPECULATION,
        "--speculative-dspark-block-size": SPECULATION,
        "--speculative-ngram-max-bfs-breadth": "drafts are a chain, of which K is the length",
        "--speculative-adaptive": "the table is given to the engine through it",
        "--speculative-adaptive-config": "the table is given to the engine through it",
    },
    aliases={
        "--model": "--model-path",
        "--tensor-parallel-size": "--tp-size",
        "--pipeline-parallel-size": "--pp-size",
        "--data-parallel-size": "--dp-size",
        "--expert-parallel-size": "--ep-size",
        "--ep": "--ep-size",
        "--attention-data-parallel-size": "--attn-dp-size",
        "--speculative-draft-model": "--speculative-draft-model-path",
    },
    blinding={
        "--enable-metrics-for-all-schedulers": "counts every step once for each rank in the metrics",
    },
    abbreviates=True,
)
