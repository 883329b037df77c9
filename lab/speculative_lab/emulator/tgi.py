"""The face of TGI 3.3: `text-generation-launcher --model-id ... --speculate N`, its API.

Every flag can also be set by a variable of its name, as clap's `env` does. No metrics are emulated: of TGI's the
operator can use none (`engines/tgi.py`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from speculative_lab.emulator.arguments import parser_of
from speculative_lab.emulator.book import Book
from speculative_lab.emulator.captures import CaptureFlags
from speculative_lab.emulator.config import Drain, EngineConfig, ServerConfig
from speculative_lab.emulator.dialect import Dialect, Program
from speculative_lab.emulator.drafting import Drafting
from speculative_lab.emulator.errors import ConfigError
from speculative_lab.emulator.server import run
from speculative_lab.emulator.settings import Settings
from speculative_lab.emulator.shapes import Shapes, shapes
from speculative_lab.emulator.speculative import Speculative

ENGINE = "TGI 3.3.6"
DEFAULT_GRAPHS = (1, 2, 4, 8, 16, 32)
"""Captured batch sizes; with --speculate of whole steps."""


def parse(argv: Sequence[str], environment: Mapping[str, str], settings: Settings) -> Program:
    """The program of these arguments; see `dialect.Parser`."""
    given = parser_of("TGI", ENGINE, environment).parse_args(argv)
    if given.speculate < 0:
        raise ConfigError(f"--speculate {given.speculate} must not be negative")
    # A checkpoint whose name says so is taken for one with Medusa heads: nothing is read here.
    method = "medusa" if "medusa" in given.model_id.lower() else "ngram"
    speculative = Speculative(method=method, k=given.speculate) if given.speculate else None
    found = shapes(
        given.model_id,
        speculative,
        settings,
        tensor_parallel_size=given.num_shard,
        quantization=given.quantize or "",
        kv_cache_dtype=given.kv_cache_dtype or "auto",
    )
    server = ServerConfig(
        served_names=(given.model_id,),
        host=given.hostname,
        port=given.port,
        shutdown_timeout=float(given.graceful_termination_timeout),
        drain=Drain.CLOSES,
        checks_model=False,
    )
    return Program(server, _engine(given, speculative, found))


def _engine(given: argparse.Namespace, speculative: Speculative | None, found: Shapes) -> EngineConfig:
    seats = given.max_batch_size or given.max_concurrent_requests
    length = given.max_total_tokens or min(found.verifier.max_position or 4096, 32768)
    prefill = given.max_batch_prefill_tokens or length + 50
    draft_free = speculative is not None and speculative.method == "ngram"
    return EngineConfig(
        model=given.model_id,
        shapes=found,
        max_model_len=length,
        max_num_seqs=seats,
        max_num_batched_tokens=max(prefill, seats * (given.speculate + 1)),
        block_size=1,
        gpu_memory_utilization=min(given.cuda_memory_fraction, 0.95),
        num_gpu_blocks_override=given.max_batch_total_tokens,
        speculative=speculative,
        # Look-ups that find nothing draft whatever comes: K tokens are verified in every step.
        drafting=Drafting(runner=None, draft_free=draft_free, drafts_blocks=not draft_free, passes_at_zero=0.0)
        if speculative
        else None,
        captures=CaptureFlags(sizes=tuple(size * (given.speculate + 1) for size in DEFAULT_GRAPHS)),
    )


DIALECT = Dialect(engine=ENGINE, parse=parse, book=lambda program, created: Book((), {}), owner="tgi")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator with `argv` (default: the process's arguments); the exit code."""
    return run(DIALECT, argv)


if __name__ == "__main__":
    sys.exit(main())
