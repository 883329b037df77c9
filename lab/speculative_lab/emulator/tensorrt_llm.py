"""The face of TensorRT-LLM 1.3: `trtllm-serve MODEL --config file.yaml`, its API and its metrics.

The file overrides the flags (tensorrt_llm/commands/serve.py, update_llm_args_with_extra_dict); a key that is not in
data/tensorrt_llm_keys.csv is refused, as by the models of tensorrt_llm/llmapi/llm_args.py. K is what the operator
renders: a schedule by inclusive upper bounds of batch size, a constant being one row.
"""

from __future__ import annotations

import argparse
import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from speculative_lab.emulator import rows
from speculative_lab.emulator.arguments import parser_of
from speculative_lab.emulator.assembly import by_scheduled
from speculative_lab.emulator.book import Book
from speculative_lab.emulator.captures import CaptureFlags
from speculative_lab.emulator.config import Drain, EngineConfig, ServerConfig
from speculative_lab.emulator.core import StepResult
from speculative_lab.emulator.dialect import Dialect, Program
from speculative_lab.emulator.drafting import Drafting
from speculative_lab.emulator.errors import ConfigError, invalid
from speculative_lab.emulator.families import recorded
from speculative_lab.emulator.requests import FinishReason, Request
from speculative_lab.emulator.server import run
from speculative_lab.emulator.settings import Settings
from speculative_lab.emulator.shapes import Shapes, shapes
from speculative_lab.emulator.speculative import Speculative

ENGINE = "TensorRT-LLM 1.3.0"
TOKENS_PER_BLOCK = 32
GRAPH_BATCHES = (*range(1, 32), *range(32, 129, 8), 256, 512, 1024, 2048)
"""Captured batch sizes of `cuda_graph_config` in its default, up to --max_batch_size (padding off: exact sizes run as
graphs, others eagerly; here every size is padded, as with `enable_padding`)."""
METRICS = ("return_perf_metrics", "enable_iter_perf_stats")
"""Keys without which there is nothing to read of whole requests, or of iterations."""
UNLIMITED = 3600.0
"""Seconds of draining: uvicorn waits for open requests without limit (tensorrt_llm/serve/openai_server.py)."""
DECODING_TYPES = {
    "MTP": "mtp",
    "Eagle3": "eagle3",
    "Eagle": "eagle3",
    "NGram": "ngram",
    "Draft_Target": "draft_model",
    "PARD": "draft_model",
    "DFlash": "dflash",
    "DSpark": "dspark",
    "SA": "suffix",
}
"""decoding_type to the method whose acceptance is emulated."""
WHOLE_BLOCK = frozenset({"PARD", "DFlash", "DSpark"})
"""One pass drafts all tokens."""


def parse(argv: Sequence[str], environment: Mapping[str, str], settings: Settings) -> Program:
    """The program of these arguments; see `dialect.Parser`."""
    parser = parser_of("TensorRT-LLM", ENGINE)
    parser.add_argument("model", metavar="MODEL", help="the verifier to serve")
    given = parser.parse_args([word for word in argv if word != "serve"])
    content = _file(given.config)
    drafts = content.get("speculative_config")
    speculative = _speculative(drafts) if drafts is not None else None
    table = _table(drafts.get("draft_len_schedule"), speculative.k) if drafts and speculative else {}
    found = shapes(
        given.model,
        speculative,
        settings,
        tensor_parallel_size=_value(given, content, "tensor_parallel_size"),
        kv_cache_dtype=str((content.get("kv_cache_config") or {}).get("dtype", "auto")),
    )
    server = ServerConfig(
        served_names=(given.model,),
        host=given.host,
        port=given.port,
        shutdown_timeout=UNLIMITED,
        drain=Drain.CLOSES,
        checks_model=False,
        metrics=all(content.get(key) for key in METRICS),
    )
    engine = _engine(given, content, found, speculative, table)
    bounds, lengths = list(table), (*table.values(), 0)
    dense = [lengths[bisect_left(bounds, batch)] for batch in range(engine.max_num_seqs + 1)]
    return Program(server, engine, by_scheduled(dense) if table else None)


def _file(path: str | None) -> dict[str, Any]:
    """Content of the YAML file. Raises ConfigError for a bad file and for unknown keys."""
    if path is None:
        return {}
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold a mapping")
    _check_keys("TorchLlmArgs", content)
    return content


def _check_keys(part: str, content: Mapping[str, Any]) -> None:
    known = next(row["keys"].split() for row in rows("tensorrt_llm_keys.csv") if row["part"] == part)
    unknown = [(key, "Extra inputs are not permitted") for key in content if key not in known]
    if unknown:
        raise invalid(part, *unknown)


def _value(given: argparse.Namespace, content: Mapping[str, Any], name: str) -> Any:
    """A setting that the file may override."""
    return content.get(name, getattr(given, name))


def _speculative(raw: Mapping[str, Any]) -> Speculative:
    """The drafts that `speculative_config` asks for. Raises ConfigError."""
    _check_keys("speculative_config", raw)
    kind = raw.get("decoding_type", "")
    if kind not in DECODING_TYPES:
        raise invalid("TorchLlmArgs", ("decoding_type", f"Invalid decoding type: {kind}"))
    k = raw.get("max_draft_len", raw.get("num_nextn_predict_layers"))
    if type(k) is not int or k < 1:
        raise invalid("TorchLlmArgs", ("max_draft_len", f"must be > 0, got {k}"))
    model = raw.get("speculative_model", raw.get("speculative_model_dir"))
    if model is None and kind not in ("MTP", "NGram", "SA"):
        raise invalid("TorchLlmArgs", ("speculative_model", "Field required"))
    return Speculative(method=DECODING_TYPES[kind], k=k, model=model, parallel_drafting=kind in WHOLE_BLOCK)


def _table(raw: object, longest: int) -> Mapping[int, int]:
    """K by the largest batch size that it holds for, ascending; empty for a constant K. Beyond the last one nothing is
    drafted. Raises ConfigError."""
    if raw is None:
        return {}
    rows = sorted(raw.items()) if isinstance(raw, Mapping) else []
    whole = all(type(cell) is int for row in rows for cell in row)
    if not rows or not whole or rows[0][0] < 1 or rows[0][1] != longest or any(k > longest for _, k in rows):
        message = f"Value error, {raw} must hold draft lengths up to max_draft_len={longest}, which comes first"
        raise invalid("TorchLlmArgs", ("draft_len_schedule", message))
    return dict(rows)


def _engine(
    given: argparse.Namespace,
    content: Mapping[str, Any],
    found: Shapes,
    speculative: Speculative | None,
    table: Mapping[int, int],
) -> EngineConfig:
    seats = _value(given, content, "max_batch_size")
    length = _value(given, content, "max_seq_len") or found.verifier.max_position or 32768
    k = speculative.k if speculative else 0
    batches = {batch for batch in GRAPH_BATCHES if batch <= seats} | {seats}
    tokens = max(_value(given, content, "max_num_tokens"), seats * (k + 1))
    chunked = _value(given, content, "enable_chunked_prefill")
    cache = content.get("kv_cache_config") or {}
    return EngineConfig(
        model=given.model,
        shapes=found,
        max_model_len=length,
        max_num_seqs=seats,
        max_num_batched_tokens=tokens if chunked else max(tokens, length),
        block_size=TOKENS_PER_BLOCK,
        gpu_memory_utilization=cache.get("free_gpu_memory_fraction", given.free_gpu_memory_fraction),
        speculative=speculative,
        drafting=Drafting(
            runner=None,
            draft_free=speculative.method in ("ngram", "suffix"),
            drafts_blocks=speculative.parallel_drafting,
            passes_at_zero=0.0,
        )
        if speculative
        else None,
        captures=CaptureFlags(
            eager="cuda_graph_config" in content and content["cuda_graph_config"] is None,
            sizes=tuple(sorted({batch * (width + 1) for batch in batches for width in {k, *table.values()}})),
        ),
        keeps_drafts=speculative is not None,
    )


_T = "trtllm_"
_REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.ABORT: "cancelled"}


class TensorRtMetrics(Book):
    """The metrics as far as the operator reads them: whole requests when they end, iterations as gauges.

    Names and moments are those of tensorrt_llm/metrics/collector.py (commit 050f80de, of 1.3). A series appears when it
    is first written to; there are no `_created` twins.
    """

    def __init__(self, config: EngineConfig, model: str) -> None:
        super().__init__(
            recorded("tensorrt_llm_families.csv"), {"model_name": model, "engine_type": "trtllm"}, seeded=False
        )
        self._pool = config.pool()

    def record(self, result: StepResult, running: int, waiting: int, kv_usage: float) -> None:
        """See `Book`."""
        self.set(f"{_T}num_generation_requests", result.decoded)
        self.gauges(running, waiting, kv_usage)

    def gauges(self, running: int, waiting: int, kv_usage: float) -> None:
        """See `Book`."""
        self.set(f"{_T}num_requests_running", running)
        self.set(f"{_T}num_requests_waiting", waiting)
        self.set(f"{_T}kv_cache_utilization", kv_usage)
        self.set(f"{_T}kv_cache_max_blocks", self._pool.blocks)
        self.set(f"{_T}kv_cache_tokens_per_block", self._pool.block_size)

    def finish(self, request: Request, reason: FinishReason, now: float) -> None:
        """See `Book`."""
        if request.first_token is None or request.last_token is None:
            return
        decode = request.last_token - request.first_token
        self._told("request_success_total", 1, _REASONS[reason])
        self._told("prompt_tokens_total", request.prompt_tokens)
        self._told("generation_tokens_total", request.generated)
        self.observe(f"{_T}time_to_first_token_seconds", request.first_token - request.arrival)
        if decode:  # a time of 0 is not told, as in the collector
            self.observe(f"{_T}request_decode_time_seconds", decode)
            self.observe(f"{_T}time_per_output_token_seconds", decode / (request.generated - 1))
        for drafted, accepted in request.drafts:
            for position in range(drafted):
                self._told("spec_decode_drafted_tokens_total", 1, str(position))
                self._told("spec_decode_accepted_tokens_total", position < accepted, str(position))

    def _told(self, name: str, amount: float, label: str = "") -> None:
        """Raise a counter; amounts of 0 bring no series."""
        if amount:
            self.add(_T + name, amount, label)


DIALECT = Dialect(
    engine=ENGINE,
    parse=parse,
    book=lambda program, created: TensorRtMetrics(program.engine, program.engine.model),
    owner="tensorrt_llm",
    metrics="/prometheus/metrics",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator with `argv` (default: the process's arguments); the exit code."""
    return run(DIALECT, argv)


if __name__ == "__main__":
    sys.exit(main())
