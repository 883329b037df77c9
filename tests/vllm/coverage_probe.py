"""Run by vLLM's own interpreter: at which batch sizes its V2 runner finds a full CUDA graph. Called by
test_graph_coverage.py, reads and writes JSON.

Standard input: a list of objects `name`, `sizes` (captured tokens), `seqs`, `schedule`, `ks`. Standard output, last
line: name -> K -> batch sizes that find a full graph. Candidates and choice are vLLM's own `CudaGraphManager`, on a
stand-in that holds what it reads; nothing is captured.
"""
# mypy: disable-error-code="import-not-found,unused-ignore,import-untyped"

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager


def manager(asked: dict[str, Any]) -> Any:
    """A manager with the candidates of one engine."""
    made: Any = object.__new__(CudaGraphManager)
    drafts = SimpleNamespace(
        uses_dynamic_speculative_decoding=lambda: True, num_speculative_tokens_per_batch_size=asked["schedule"]
    )
    made.vllm_config = SimpleNamespace(
        speculative_config=drafts,
        num_speculative_tokens=max(asked["ks"]),
        cache_config=SimpleNamespace(use_kda_recoverssm=False),
        scheduler_config=SimpleNamespace(max_num_seqs=asked["seqs"]),
    )
    made.compilation_config = SimpleNamespace(
        cudagraph_capture_sizes=asked["sizes"], max_cudagraph_capture_size=asked["sizes"][-1]
    )
    made.max_num_reqs, made.decode_query_len = asked["seqs"], max(asked["ks"]) + 1
    made.cudagraph_mode, made.varlen_decode = CUDAGraphMode.FULL_AND_PIECEWISE, False
    made.ubatch_runner, made.use_breakable_cg = None, False
    made.lora_capture_cases, made._lora_dispatch_map, made._max_lora_case = [0], {}, 0
    made.graphs, made._candidates, made._capture_descs, made._graphs_captured = {}, {}, {}, True
    made._init_candidates()
    return made


def full(made: Any, requests: int, k: int) -> bool:
    """True where a decoding step of so many requests with `k` drafts each runs by a full graph."""
    found = made.dispatch(requests, requests * (k + 1), k + 1, 0, max_query_len=k + 1)
    return bool(found.cg_mode == CUDAGraphMode.FULL)


def main() -> None:
    told = {}
    for asked in json.load(sys.stdin):
        made, batches = manager(asked), range(1, asked["seqs"] + 1)
        told[asked["name"]] = {k: [one for one in batches if full(made, one, k)] for k in asked["ks"]}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
