"""How the real engine is started on two cores: environment and flags. For `serve`, tests and the cluster's image.

Where SPECULATIVE_VLLM_DEVICE says `cuda`, tests and measurements start it on an accelerator instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from realengine import paths

CPU_FLAGS = ("--enforce-eager", "--kv-cache-memory-bytes", "268435456", "--disable-uvicorn-access-log")
"""Beside what the operator renders: no graphs on a CPU, a KV cache of 256 MiB instead of a share of the machine, and no
line of log for each request."""
CUDA_FLAGS = (
    *("--attention-backend", "TRITON_ATTN", "--gpu-memory-utilization", "0.05"),
    *("--kv-cache-memory-bytes", "268435456", "--disable-uvicorn-access-log"),
    *("--kernel-config", '{"enable_jit_warmup": false}'),
)
"""Graphs stay on; kernels are compiled when they are first used, which takes a minute less. The small models are
float32, which FlashAttention has no kernels for; several engines share one accelerator."""


def v2() -> dict[str, str]:
    """Variables of an engine with vLLM's V2 runner. On a CPU Triton interprets its kernels, some 30 ms a step."""
    # Torch would compile for a backend that the interpreted Triton does not have.
    on_cpu = {"TRITON_INTERPRET": "1", "TORCHDYNAMO_DISABLE": "1", "REALENGINE_TRITON": str(paths.triton())}
    return {"VLLM_USE_V2_MODEL_RUNNER": "1", **({} if paths.on_accelerator() else on_cpu)}


def environment(home: Path) -> dict[str, str]:
    """Variables of one engine process. `home` is a folder of its own for caches.

    One thread an engine: on two cores two engines with the default threads slow each other down a hundredfold. One
    process instead of three saves half a gigabyte. Nothing may be fetched. vLLM has the V1 runner on a CPU, and on an
    accelerator the one of its choice; `v2` asks for the other.
    """
    device = {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }
    return {
        **({} if paths.on_accelerator() else device),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(home / "hf"),
        "VLLM_CACHE_ROOT": str(home / "vllm"),
        "VLLM_CONFIG_ROOT": str(home / "config"),
    }


def argv(python: Path, model: Path, port: int, more: Sequence[str] = ()) -> list[str]:
    """The command of one engine on loopback, without the operator."""
    return [
        str(python), "-m", "vllm.entrypoints.cli.main", "serve", str(model),
        "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "16", "--shutdown-timeout", "10",
        *(CUDA_FLAGS if paths.on_accelerator() else CPU_FLAGS), *more,
    ]  # fmt: skip
