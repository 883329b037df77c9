"""Command line and variables of `text-generation-launcher` to a `Program`. Called by `__main__`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from speculative_lab.emulator import notice
from speculative_lab.emulator.arguments import add
from speculative_lab.emulator.captures import CaptureFlags
from speculative_lab.emulator.config import Drain, EngineConfig, ServerConfig
from speculative_lab.emulator.dialect import Program
from speculative_lab.emulator.drafting import Drafting
from speculative_lab.emulator.errors import ConfigError
from speculative_lab.emulator.flags import Flag, Kind
from speculative_lab.emulator.settings import Settings
from speculative_lab.emulator.shapes import Shapes, shapes
from speculative_lab.emulator.speculative import Speculative
from speculative_lab.emulator.tgi import ENGINE, VERSION
from speculative_lab.emulator.tgi.flags import EFFECTIVE, INERT

DEFAULT_GRAPHS = (1, 2, 4, 8, 16, 32)
"""--cuda-graphs in its default; with --speculate as batch sizes of whole steps."""
MEDUSA = "medusa"
"""A checkpoint whose name says so is taken for one with Medusa heads: nothing is read here."""


def parse(argv: Sequence[str], environment: Mapping[str, str], settings: Settings) -> Program:
    """The program of these arguments; see `dialect.Parser`."""
    given = _parser(environment).parse_args(argv)
    speculative = _speculative(given)
    found = shapes(
        given.model_id,
        speculative,
        settings,
        tensor_parallel_size=given.num_shard or 1,
        quantization=given.quantize or "",
        kv_cache_dtype=given.kv_cache_dtype or "auto",
    )
    return Program(_server(given), _engine(given, speculative, found))


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tgi-emulator", description=notice(ENGINE), allow_abbrev=False)
    parser.add_argument("-V", "--version", action="version", version=f"{VERSION} ({notice(ENGINE)})")
    for flag in (*EFFECTIVE, *INERT):
        add(parser, _with_variable(flag, environment))
    return parser


def _with_variable(flag: Flag, environment: Mapping[str, str]) -> Flag:
    """The flag with the value of its variable for a default; argparse converts texts as it does arguments."""
    text = environment.get(flag.names[0].lstrip("-").replace("-", "_").upper(), "")
    if not text or flag.kind is Kind.SWITCH:
        return flag
    return Flag(flag.names, flag.kind, text, flag.choices)


def _speculative(given: argparse.Namespace) -> Speculative | None:
    if not given.speculate:
        return None
    if given.speculate < 0:
        raise ConfigError(f"--speculate {given.speculate} must not be negative")
    medusa = MEDUSA in given.model_id.lower()
    return Speculative(method="medusa" if medusa else "ngram", k=given.speculate)


def _engine(given: argparse.Namespace, speculative: Speculative | None, found: Shapes) -> EngineConfig:
    seats = given.max_batch_size or given.max_concurrent_requests
    length = given.max_total_tokens or min(found.verifier.max_position or 4096, 32768)
    width = given.speculate + 1 if given.speculate else 1
    graphs = _graphs(given.cuda_graphs)
    prefill = given.max_batch_prefill_tokens or length + 50
    return EngineConfig(
        model=given.model_id,
        shapes=found,
        max_model_len=length,
        max_num_seqs=seats,
        max_num_batched_tokens=max(prefill, seats * width),
        block_size=1,
        gpu_memory_utilization=min(given.cuda_memory_fraction, 0.95),
        num_gpu_blocks_override=given.max_batch_total_tokens,
        speculative=speculative,
        drafting=_drafting(speculative) if speculative else None,
        captures=CaptureFlags(eager=not graphs, sizes=tuple(size * width for size in graphs)),
    )


def _drafting(speculative: Speculative) -> Drafting:
    """Look-ups that find nothing draft whatever comes: K tokens are verified in every step."""
    draft_free = speculative.method == "ngram"
    return Drafting(runner=None, draft_free=draft_free, drafts_blocks=not draft_free, passes_at_zero=0.0)


def _graphs(text: str | None) -> tuple[int, ...]:
    if text is None:
        return DEFAULT_GRAPHS
    try:
        return tuple(sorted({int(size) for size in text.split(",")} - {0}))
    except ValueError:
        raise ConfigError(f"--cuda-graphs {text} must be whole numbers separated by commas") from None


def _server(given: argparse.Namespace) -> ServerConfig:
    return ServerConfig(
        served_names=(given.model_id,),
        host=given.hostname,
        port=given.port,
        shutdown_timeout=float(given.graceful_termination_timeout),
        drain=Drain.CLOSES,
        checks_model=False,
    )
