"""Which of trtllm-serve's flags the operator owns. Used by `checks`."""

from __future__ import annotations

from speculative_operator.engines.shared.flags import ALWAYS, Flags

_FILE = "the operator writes that file, with K in it"

FLAGS = Flags(
    owned={
        "--host": ALWAYS,
        "--port": ALWAYS,
        "--backend": "only the pytorch backend speculates as the operator knows it",
        "--tp_size": "set spec.verifier.tensorParallelSize instead",
        "--pp_size": "set spec.verifier.pipelineParallelSize instead",
        "--ep_size": "set spec.verifier.expertParallel instead",
        "--max_batch_size": "set spec.verifier.maxNumSeqs instead",
        "--max_seq_len": "set spec.verifier.maxModelLen instead",
        "--max_num_tokens": "set spec.verifier.maxNumBatchedTokens instead",
        "--kv_cache_free_gpu_memory_fraction": "set spec.verifier.gpuMemoryUtilizationPercent instead",
        "--kv_cache_dtype": "set spec.verifier.kvCacheDtype instead",
        "--revision": "set spec.verifier.revision instead",
        "--config": _FILE,
        "--max_beam_width": "speculation and beam search exclude each other",
    },
    aliases={
        "--tensor_parallel_size": "--tp_size",
        "--pipeline_parallel_size": "--pp_size",
        "--moe_expert_parallel_size": "--ep_size",
        "--free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction",
        "--extra_llm_api_options": "--config",
    },
)
