"""The face of SGLang 0.5.23: `python -m sglang.launch_server`, its API, and K by batch size.

Defaults and resets are those of sglang/srt/server_args.py and sglang/srt/arg_groups (speculative_hook.py,
cuda_graph_hook.py), with the traps that they hold: with a speculator 48 requests run at once unless told otherwise. Of
its adaptive mode one candidate per slot is emulated, which is a table; trees of drafts are not.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path

from speculative_lab.emulator.arguments import parser_of
from speculative_lab.emulator.assembly import constant
from speculative_lab.emulator.captures import CaptureFlags
from speculative_lab.emulator.config import Drain, EngineConfig, ServerConfig
from speculative_lab.emulator.core import DraftLengths
from speculative_lab.emulator.dialect import Dialect, Program
from speculative_lab.emulator.drafting import Drafting
from speculative_lab.emulator.errors import ConfigError
from speculative_lab.emulator.server import run
from speculative_lab.emulator.settings import Settings
from speculative_lab.emulator.sglang_metrics import SglangMetrics
from speculative_lab.emulator.shapes import Shapes, shapes
from speculative_lab.emulator.speculative import Speculative

ENGINE = "SGLang 0.5.23"
METHODS = {
    "EAGLE": "eagle",
    "EAGLE3": "eagle3",
    "NEXTN": "mtp",
    "STANDALONE": "draft_model",
    "NGRAM": "ngram",
    "DFLASH": "dflash",
    "DSPARK": "dspark",
}
"""--speculative-algorithm to the method whose acceptance is emulated."""
CHAINS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"})
ADAPTIVE = CHAINS - {"STANDALONE"}
RUNNING_WITH_SPECULATOR = 48
RUNNING = 2048
LARGEST_GRAPH = 256
"""Largest captured batch of accelerators of 60 to 90 GiB."""
UNLIMITED = 3600.0
"""Seconds of draining: SGLang waits until its requests have ended, however long."""

log = logging.getLogger(__name__)


def parse(argv: Sequence[str], environment: Mapping[str, str], settings: Settings) -> Program:
    """The program of these arguments; see `dialect.Parser`."""
    given = parser_of("SGLang", ENGINE).parse_args(argv)
    if not given.model_path:
        raise ConfigError("--model-path is required")
    table = _table(given)
    speculative = _speculative(given, table)
    found = shapes(
        given.model_path,
        speculative,
        settings,
        tensor_parallel_size=given.tensor_parallel_size,
        quantization=given.quantization or "",
        kv_cache_dtype=given.kv_cache_dtype,
    )
    batches = _graph_batches(given)
    server = ServerConfig(
        served_names=(given.served_model_name or given.model_path,),
        host=given.host,
        port=given.port,
        shutdown_timeout=UNLIMITED,
        drain=Drain.SERVES,
        checks_model=False,
        metrics=given.enable_metrics,
    )
    engine = _engine(given, speculative, found, batches, sorted(set(table.values())) or [0])
    return Program(server, engine, _lengths(table, batches))


def _table(given: argparse.Namespace) -> Mapping[int, int]:
    """K by the batch size from which it holds; empty without a speculator. Raises ConfigError."""
    algorithm = given.speculative_algorithm
    if algorithm is None:
        return {}
    steps = given.speculative_num_steps or 0
    if algorithm == "DSPARK":
        steps = given.speculative_dspark_block_size or 0
    elif algorithm not in CHAINS:
        steps = (given.speculative_num_draft_tokens or 0) - 1
    elif given.speculative_eagle_topk != 1:
        raise ConfigError("--speculative-eagle-topk above 1, a tree of drafts, is not emulated: give 1, and the steps")
    if steps < 1:
        raise ConfigError(f"{algorithm} needs its number of drafts, 1 or more; got {steps}")
    if not given.speculative_adaptive:
        return {1: steps}
    if algorithm not in ADAPTIVE:
        log.warning("Adaptive speculative decoding is disabled: only EAGLE/EAGLE3 are supported")
        return {1: steps}
    found = _slots(given.speculative_adaptive_config)
    if steps not in found.values():
        raise ConfigError(f"speculative_num_steps={steps} must be one of the candidate steps {sorted(found.values())}")
    return found


def _slots(path: str | None) -> Mapping[int, int]:
    """The table of an adaptive configuration whose slots have one candidate each. Raises ConfigError."""
    try:
        content = json.loads(Path(path or "").read_text(encoding="utf-8"))
        found = {int(key): slot["candidate_steps"] for key, slot in content.items()}
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise ConfigError(f"--speculative-adaptive-config {path}: {error}") from None
    for batch, steps in found.items():
        if not isinstance(steps, list) or len(steps) != 1 or type(steps[0]) is not int or steps[0] < 0:
            raise ConfigError(f"BS {batch}: candidate_steps {steps!r} is not emulated; give a list of one number")
    return {batch: steps[0] for batch, steps in sorted(found.items())}


def _speculative(given: argparse.Namespace, table: Mapping[int, int]) -> Speculative | None:
    if not table:
        return None
    algorithm = given.speculative_algorithm
    if algorithm not in ("NGRAM", "NEXTN") and not given.speculative_draft_model_path:
        raise ConfigError(f"--speculative-draft-model-path is required with {algorithm}")
    return Speculative(
        method=METHODS[algorithm],
        k=max(table.values()),
        model=given.speculative_draft_model_path,
        parallel_drafting=algorithm in ("DFLASH", "DSPARK"),
    )


def _engine(
    given: argparse.Namespace,
    speculative: Speculative | None,
    found: Shapes,
    batches: Sequence[int],
    ks: Sequence[int],
) -> EngineConfig:
    seats = given.max_running_requests
    if seats is None and speculative is not None:
        seats = RUNNING_WITH_SPECULATOR
        log.warning(
            "Max running requests is reset to %d for speculative decoding; --max-running-requests overrides", seats
        )
    seats = seats or RUNNING
    chunk, context = given.chunked_prefill_size, given.context_length or found.verifier.max_position or 32768
    draft_free = speculative is not None and speculative.method == "ngram"
    return EngineConfig(
        model=given.model_path,
        shapes=found,
        max_model_len=context,
        max_num_seqs=seats,
        max_num_batched_tokens=max(chunk if chunk > 0 else context, seats * (max(ks) + 1)),
        block_size=given.page_size,
        gpu_memory_utilization=given.mem_fraction_static,
        num_gpu_blocks_override=given.max_total_tokens // given.page_size if given.max_total_tokens else None,
        cache_dtype=given.kv_cache_dtype,
        speculative=speculative,
        drafting=Drafting(
            runner=None,
            draft_free=draft_free,
            drafts_blocks=speculative.parallel_drafting,
            passes_at_zero=0.0 if draft_free else 1.0,
        )
        if speculative
        else None,
        captures=CaptureFlags(not batches, tuple(sorted({batch * (k + 1) for batch in batches for k in ks}))),
    )


def _graph_batches(given: argparse.Namespace) -> Sequence[int]:
    """Batch sizes that are captured, ascending; empty without graphs."""
    if given.disable_cuda_graph:
        return ()
    largest = given.cuda_graph_max_bs or LARGEST_GRAPH
    if given.speculative_algorithm is None:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, largest + 1, 16)]
    else:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, largest + 1, 16)]
    return sorted({*(size for size in sizes if size <= largest), largest})


def _lengths(table: Mapping[int, int], batches: Sequence[int]) -> DraftLengths | None:
    """K of the slot of the requests that will decode; a batch counts as the next captured size, where there is one."""
    if len(table) < 2:
        return constant(*table.values()) if table else None
    firsts = list(table)

    def k(scheduled: int, decoding: int) -> int:
        place = bisect_left(batches, decoding)
        padded = batches[place] if place < len(batches) else decoding
        return table[firsts[max(0, bisect_right(firsts, padded) - 1)]]

    return k


DIALECT = Dialect(
    engine=ENGINE,
    parse=parse,
    book=lambda program, created: SglangMetrics(program.engine, program.server.served_names[0]),
    owner="sglang",
    checks=("/health_generate", "/ready", "/ping"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator with `argv` (default: the process's arguments, without those of a Python module); exit code."""
    return run(DIALECT, argv)


if __name__ == "__main__":
    sys.exit(main())
