"""The flags of vLLM that the operator owns. Used by `graphs`, `arguments` and `checks`."""

from __future__ import annotations

from speculative_operator.engines.shared.arguments import ALWAYS, SPECULATION, Flags, of_verifier

VERIFIER_FLAGS = {
    "--tensor-parallel-size": "tensorParallelSize", "--pipeline-parallel-size": "pipelineParallelSize",
    "--data-parallel-size": "dataParallelSize", "--enable-expert-parallel": "expertParallel",
    "--max-model-len": "maxModelLen", "--dtype": "dtype", "--quantization": "quantization",
    "--kv-cache-dtype": "kvCacheDtype", "--gpu-memory-utilization": "gpuMemoryUtilizationPercent",
}  # fmt: skip
"""Flag -> field of spec.verifier, in the order in which they are written."""
FLAGS = Flags(
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
        **dict.fromkeys(("--shutdown-timeout", "--host", "--port"), ALWAYS),
    },
    aliases={
        "-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size",
        "-ep": "--enable-expert-parallel", "-q": "--quantization", "-sc": "--speculative-config",
    },
    blinding={"--disable-log-stats": "turns off the metrics"},
    removed={
        "--speculative-model": "set spec.speculator.model instead",
        "--speculative-model-quantization": "set spec.speculator.quantization instead",
        "--speculative-draft-tensor-parallel-size": "set spec.speculator.tensorParallelSize instead",
        "--speculative-max-model-len": "set max_model_len in spec.speculator.options instead",
        "--num-speculative-tokens": "set spec.speculation.numSpeculativeTokens or maxSpeculativeTokens instead",
        "--speculative-disable-by-batch-size": "leave it out: K falls with the load, or by spec.speculation.schedule",
        "--ngram-prompt-lookup-max": "set spec.speculator.promptLookup.max instead",
        "--ngram-prompt-lookup-min": "set spec.speculator.promptLookup.min instead",
        **dict.fromkeys((
            "--use-v2-block-manager", "--speculative-disable-mqa-scorer", "--spec-decoding-acceptance-method",
            "--typical-acceptance-sampler-posterior-threshold", "--typical-acceptance-sampler-posterior-alpha",
            "--disable-logprobs-during-spec-decoding",
        ), "leave it out: nothing takes its place"),
    },
    flexible=True,
)  # fmt: skip
