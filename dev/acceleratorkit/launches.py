"""What a launch costs on this machine, and what the machine is: the measure of all that is launched from Python.

`python -m acceleratorkit.launches` prints one JSON object; `program` runs it in a process of its own, so that its
memory is free again. Microseconds are medians of rounds: `host_us` until the call returns, `whole_us` with the
accelerator's part.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS, CALLS = 9, 400
REQUESTS, TOKENS, BLOCK = 4, 320, 16
"""Of the attention call: requests, their tokens, and tokens of a block of the cache. Heads are those of Qwen3-8B."""
NODES = 300
"""Kernels of the longer graph: as many as a decoder of 36 layers has, about."""


def timed(call: Callable[[], object], wait: Callable[[], object]) -> dict[str, float]:
    """Microseconds of one call."""
    host, whole = [], []
    for _ in range(ROUNDS + 1):
        wait()
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        returned = time.perf_counter()
        wait()
        host.append((returned - began) / CALLS)
        whole.append((time.perf_counter() - began) / CALLS)
    return {  # the first round warms up
        "host_us": round(1e6 * statistics.median(host[1:]), 2),
        "whole_us": round(1e6 * statistics.median(whole[1:]), 2),
    }


def launches(torch: Any) -> dict[str, Any]:
    """Microseconds by kind of launch."""
    wait = torch.cuda.synchronize
    one = torch.zeros(1, device="cuda")
    found: dict[str, Any] = {
        "empty kernel": timed(lambda: torch.cuda._sleep(0), wait),
        "torch, one number added": timed(lambda: one.add_(1), wait),
    }
    for nodes in (1, NODES):
        found[f"graph of {nodes}"] = timed(graph(torch, one, nodes).replay, wait)
    for name, made in {"FlashAttention 3": flash_attention, "torch attention": torch_attention}.items():
        try:
            found[name] = timed(made(torch), wait)
        except Exception as error:  # not for this accelerator, or its kernels are not there
            found[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
    return found


def graph(torch: Any, number: Any, nodes: int) -> Any:
    """A CUDA graph of so many small kernels."""
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        for _ in range(nodes):
            number.add_(1)
    return made


def flash_attention(torch: Any) -> Callable[[], object]:
    """A decoding step's attention of one layer, as vLLM calls it."""
    from vllm.vllm_flash_attn import flash_attn_varlen_func  # type: ignore[import-not-found]  # the kit's own

    blocks = TOKENS // BLOCK
    query = torch.randn(REQUESTS, 32, 128, device="cuda", dtype=torch.bfloat16)
    cache = torch.randn(2, REQUESTS * blocks, BLOCK, 8, 128, device="cuda", dtype=torch.bfloat16)
    table = torch.arange(REQUESTS * blocks, device="cuda", dtype=torch.int32).view(REQUESTS, blocks)
    starts = torch.arange(REQUESTS + 1, device="cuda", dtype=torch.int32)
    lengths = torch.full((REQUESTS,), TOKENS, device="cuda", dtype=torch.int32)
    out = torch.empty_like(query)
    return lambda: flash_attn_varlen_func(
        query, cache[0], cache[1], 1, starts, TOKENS, seqused_k=lengths, block_table=table, causal=True, out=out,
        fa_version=3,
    )  # fmt: skip


def torch_attention(torch: Any) -> Callable[[], object]:
    """The same shapes, in torch's own kernel."""
    query = torch.randn(REQUESTS, 32, 1, 128, device="cuda", dtype=torch.bfloat16)
    key = torch.randn(REQUESTS, 32, TOKENS, 128, device="cuda", dtype=torch.bfloat16)
    return lambda: torch.nn.functional.scaled_dot_product_attention(query, key, key)


def copy_rate(torch: Any) -> float:
    """GB/s that a copy on the device moves, read and written."""
    size = 2 * 10**9
    source, target = (torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2))
    rates = []
    for _ in range(6):
        torch.cuda.synchronize()
        began = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        rates.append(2 * size / 1e9 / (time.perf_counter() - began))
    return round(statistics.median(rates[1:]))


def facts(torch: Any) -> dict[str, Any]:
    """What the machine is, as far as figures hang on it."""
    device = torch.cuda.get_device_properties(0)
    asked = ["nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.max.sm", "--format=csv,noheader,nounits"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip().splitlines()
    cpuinfo = Path("/proc/cpuinfo").read_text()
    return {
        "accelerator": device.name, "memory_bytes": device.total_memory, "processors": device.multi_processor_count,
        "capability": list(torch.cuda.get_device_capability()), "driver_and_clocks": told[:1],
        "host": next((line.partition(": ")[2] for line in cpuinfo.splitlines() if "model name" in line), ""),
        "host_cores": cpuinfo.count("processor\t"), "virtual": " hypervisor" in cpuinfo, "kernel": platform.release(),
        "python": platform.python_version(), "torch": torch.__version__, "copy_gb_per_s": copy_rate(torch),
    }  # fmt: skip


def main() -> int:
    import torch  # type: ignore[import-not-found]  # the machine's

    if not torch.cuda.is_available():
        print("torch sees no accelerator: nvidia-smi says why", file=sys.stderr)
        return 2
    print(json.dumps({"machine": facts(torch), "launches": launches(torch)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
