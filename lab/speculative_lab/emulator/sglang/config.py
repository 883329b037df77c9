"""Command line and adaptive file of SGLang 0.5.23 to a `Program`. Called by `__main__`.

Defaults and resets are those of sglang/srt/server_args.py and sglang/srt/arg_groups (speculative_hook.py,
cuda_graph_hook.py), with the traps that they hold: with a speculator 48 requests run at once unless told otherwise.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from speculative_lab.emulator import notice
from speculative_lab.emulator.arguments import add
from speculative_lab.emulator.captures import CaptureFlags
from speculative_lab.emulator.config import Drain, EngineConfig, ServerConfig
from speculative_lab.emulator.dialect import Program
from speculative_lab.emulator.drafting import Drafting
from speculative_lab.emulator.errors import ConfigError
from speculative_lab.emulator.lengths import Constant, DraftLengths
from speculative_lab.emulator.settings import Settings
from speculative_lab.emulator.sglang import ENGINE, VERSION, adaptive
from speculative_lab.emulator.sglang.flags import EFFECTIVE, INERT
from speculative_lab.emulator.shapes import Shapes, shapes
from speculative_lab.emulator.speculative import Speculative

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
ADAPTIVE = frozenset({"EAGLE", "EAGLE3", "NEXTN"})
"""NEXTN is EAGLE by another name."""
DEFAULT_STEPS = 3
DEFAULT_TREE = ("llama", "grok-1")
"""Models for which unset speculation means a tree of drafts, which is not emulated."""
DEFAULT_NGRAM_TOKENS = 12
RUNNING_WITH_SPECULATOR = 48
RUNNING = 2048
GRAPH_BATCHES = ((20, 8, 8), (35, 24, 80), (60, 32, 160), (90, 256, 512))
"""Memory (GiB) up to which the largest captured batch is: below 4 ranks, from 4 ranks on. 512 for larger memories."""
LOG_INTERVAL = "decode_log_interval"
UNLIMITED = 3600.0
"""Seconds of draining: SGLang waits until its requests have ended, however long."""

log = logging.getLogger(__name__)


def parse(argv: Sequence[str], environment: Mapping[str, str], settings: Settings) -> Program:
    """The program of these arguments; see `dialect.Parser`."""
    given = _parser().parse_args(argv)
    if not given.model_path:
        raise ConfigError("--model-path is required")
    steps = _steps(given)
    speculative = _speculative(given, steps)
    found = shapes(
        given.model_path,
        speculative,
        settings,
        tensor_parallel_size=given.tensor_parallel_size,
        quantization=given.quantization or "",
        kv_cache_dtype=given.kv_cache_dtype,
    )
    batches = _graph_batches(given, found)
    engine = _engine(given, speculative, found, batches, steps)
    return Program(_server(given), engine, _lengths(steps, batches), {LOG_INTERVAL: given.decode_log_interval})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sglang-emulator", description=notice(ENGINE), allow_abbrev=False)
    parser.add_argument("-v", "--version", action="version", version=f"{VERSION} ({notice(ENGINE)})")
    for flag in (*EFFECTIVE, *INERT):
        add(parser, flag)
    return parser


class _Steps:
    """Drafts per step: one number, or what the adaptive mode may take."""

    def __init__(self, start: int, slots: Mapping[int, adaptive.SlotConfig] | None = None) -> None:
        self.start = start
        self.slots = slots

    @property
    def every(self) -> tuple[int, ...]:
        return adaptive.union(self.slots) if self.slots else (self.start,)


def _steps(given: argparse.Namespace) -> _Steps | None:
    """None without a speculator. Raises ConfigError."""
    algorithm = given.speculative_algorithm
    if algorithm is None:
        return None
    if algorithm not in CHAINS:
        return _Steps(_width(given, algorithm) - 1)
    slots = _adaptive(given, algorithm)
    topk = given.speculative_eagle_topk
    untold = given.speculative_num_steps is None and slots is None
    if untold and topk is None and any(name in given.model_path.lower() for name in DEFAULT_TREE):
        topk = 4
    if topk not in (None, 1):
        raise ConfigError("--speculative-eagle-topk above 1, a tree of drafts, is not emulated: give 1, and the steps")
    if slots is not None:
        return _Steps(adaptive.initial(slots, given.speculative_num_steps), slots)
    steps = given.speculative_num_steps if given.speculative_num_steps is not None else DEFAULT_STEPS
    if steps < 1:
        raise ConfigError(f"--speculative-num-steps {steps} must be at least 1")
    if given.speculative_num_draft_tokens not in (None, steps + 1):
        log.warning("speculative_num_draft_tokens is set to %d, speculative_num_steps + 1, with topk 1", steps + 1)
    return _Steps(steps)


def _width(given: argparse.Namespace, algorithm: str) -> int:
    """Tokens verified at once by an algorithm that drafts them together."""
    if algorithm == "DSPARK" and given.speculative_dspark_block_size:
        return int(given.speculative_dspark_block_size) + 1
    width = given.speculative_num_draft_tokens or given.speculative_dflash_block_size
    width = width or (DEFAULT_NGRAM_TOKENS if algorithm == "NGRAM" else None)
    if not width or width < 2:
        raise ConfigError(f"--speculative-num-draft-tokens must be 2 or more with {algorithm}, got {width}")
    return int(width)


def _adaptive(given: argparse.Namespace, algorithm: str) -> Mapping[int, adaptive.SlotConfig] | None:
    if not given.speculative_adaptive:
        return None
    why = ""
    if algorithm not in ADAPTIVE:
        why = f"speculative_algorithm={algorithm} (only EAGLE/EAGLE3 are supported)"
    elif given.speculative_eagle_topk not in (None, 1):
        why = f"speculative_eagle_topk={given.speculative_eagle_topk} (only topk=1 is supported)"
    elif given.enable_dp_attention:
        why = "attention DP is not supported"
    if why:
        log.warning("Adaptive speculative decoding is disabled: %s", why)
        return None
    return adaptive.slots(_file(given.speculative_adaptive_config))


def _file(path: str | None) -> object:
    """The adaptive configuration; raises ConfigError for a file that cannot be read."""
    if path is None:
        return adaptive.DEFAULT
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--speculative-adaptive-config {path}: {error}") from None


def _speculative(given: argparse.Namespace, steps: _Steps | None) -> Speculative | None:
    if steps is None:
        return None
    algorithm = given.speculative_algorithm
    if algorithm not in ("NGRAM", "NEXTN") and not given.speculative_draft_model_path:
        raise ConfigError(f"--speculative-draft-model-path is required with {algorithm}")
    return Speculative(
        method=METHODS[algorithm],
        k=max(steps.every),
        model=given.speculative_draft_model_path,
        parallel_drafting=algorithm in ("DFLASH", "DSPARK"),
    )


def _engine(
    given: argparse.Namespace,
    speculative: Speculative | None,
    found: Shapes,
    batches: tuple[int, ...],
    steps: _Steps | None,
) -> EngineConfig:
    seats = given.max_running_requests
    if seats is None and speculative is not None:
        seats = RUNNING_WITH_SPECULATOR
        log.warning(
            "Max running requests is reset to %d for speculative decoding; --max-running-requests overrides", seats
        )
    seats = seats or RUNNING
    widths = [k + 1 for k in (steps.every if steps else (0,))]
    chunk = given.chunked_prefill_size
    context = given.context_length or found.verifier.max_position or 32768
    return EngineConfig(
        model=given.model_path,
        shapes=found,
        max_model_len=context,
        max_num_seqs=seats,
        max_num_batched_tokens=max(chunk if chunk > 0 else context, seats * max(widths)),
        block_size=given.page_size,
        chunked_prefill=chunk > 0,
        gpu_memory_utilization=given.mem_fraction_static,
        num_gpu_blocks_override=given.max_total_tokens // given.page_size if given.max_total_tokens else None,
        cache_dtype=given.kv_cache_dtype,
        speculative=speculative,
        drafting=_drafting(speculative) if speculative else None,
        captures=CaptureFlags(eager=not batches, sizes=tuple(sorted({b * width for b in batches for width in widths}))),
    )


def _drafting(speculative: Speculative) -> Drafting:
    draft_free = speculative.method == "ngram"
    return Drafting(
        runner=None,
        draft_free=draft_free,
        drafts_blocks=speculative.parallel_drafting,
        passes_at_zero=0.0 if draft_free else 1.0,
    )


def _graph_batches(given: argparse.Namespace, found: Shapes) -> tuple[int, ...]:
    """Batch sizes that are captured; empty without graphs."""
    if given.disable_cuda_graph:
        return ()
    if given.cuda_graph_bs:
        return tuple(sorted(set(given.cuda_graph_bs)))
    largest = given.cuda_graph_max_bs or _largest_batch(found)
    if given.disable_cuda_graph_padding:
        return tuple(range(1, largest + 1))
    if given.speculative_algorithm is None:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest + 1, 32)]
    else:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, largest + 1, 16)]
    return tuple(sorted({*(size for size in sizes if size <= largest), largest}))


def _largest_batch(found: Shapes) -> int:
    memory = found.accelerator.memory_bytes / 2**30
    for limit, few, many in GRAPH_BATCHES:
        if memory < limit:
            return few if found.tensor_parallel_size < 4 else many
    return 512


def _lengths(steps: _Steps | None, batches: tuple[int, ...]) -> DraftLengths | None:
    if steps is None:
        return None
    return adaptive.AdaptiveSteps(steps.slots, steps.start, batches) if steps.slots else Constant(steps.start)


def _server(given: argparse.Namespace) -> ServerConfig:
    return ServerConfig(
        served_names=(given.served_model_name or given.model_path,),
        host=given.host,
        port=given.port,
        shutdown_timeout=UNLIMITED,
        drain=Drain.SERVES,
        checks_model=False,
        metrics=given.enable_metrics,
    )
