"""Command line and YAML file of `trtllm-serve` to a `Program`. Called by `__main__`.

The file overrides the flags (tensorrt_llm/commands/serve.py, update_llm_args_with_extra_dict); what it may hold is in
`flags`. K is what the operator renders: a schedule by inclusive upper bounds of batch size, a constant being one row.
The one-way SpeculationGate, `max_concurrency`, AUTO and relaxed acceptance are not emulated.
"""

from __future__ import annotations

import argparse
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from speculative_lab.emulator import notice
from speculative_lab.emulator.arguments import add
from speculative_lab.emulator.captures import CaptureFlags
from speculative_lab.emulator.config import Drain, EngineConfig, ServerConfig
from speculative_lab.emulator.dialect import Program
from speculative_lab.emulator.drafting import Drafting
from speculative_lab.emulator.errors import ConfigError, ValidationError
from speculative_lab.emulator.lengths import ByScheduled, DraftLengths
from speculative_lab.emulator.settings import Settings
from speculative_lab.emulator.shapes import Shapes, shapes
from speculative_lab.emulator.speculative import Speculative
from speculative_lab.emulator.tensorrt_llm import VERSION
from speculative_lab.emulator.tensorrt_llm.flags import (
    CONFIG_FLAGS,
    DECODING_TYPES,
    DRAFT_FREE,
    EFFECTIVE,
    INERT,
    KEYS,
    SPECULATIVE_KEYS,
    WHOLE_BLOCK,
)

TOKENS_PER_BLOCK = 32
GRAPH_BATCHES = (*range(1, 32), *range(32, 129, 8), 256, 512, 1024, 2048)
"""Captured batch sizes of `cuda_graph_config` in its default, up to --max_batch_size (padding off: exact sizes run as
graphs, others eagerly; here every size is padded, as with `enable_padding`)."""
REQUESTS, ITERATIONS = "return_perf_metrics", "enable_iter_perf_stats"
UNLIMITED = 3600.0
"""Seconds of draining: uvicorn waits for open requests without limit (tensorrt_llm/serve/openai_server.py)."""
ENGINE = f"TensorRT-LLM {VERSION}"


@dataclass(frozen=True, slots=True)
class _Drafts:
    """What `speculative_config` asks for."""

    kind: str
    k: int
    speculative: Speculative
    table: Mapping[int, int] | None = None


def parse(argv: Sequence[str], environment: Mapping[str, str], settings: Settings) -> Program:
    """The program of these arguments; see `dialect.Parser`."""
    given = _parser().parse_args([word for word in argv if word != "serve"])
    content = _file(given.config_file)
    drafts = _drafts(content.get("speculative_config"))
    cache = content.get("kv_cache_config") or {}
    found = shapes(
        given.model,
        drafts.speculative if drafts else None,
        settings,
        tensor_parallel_size=_value(given, content, "tensor_parallel_size"),
        quantization=_quantization(content),
        kv_cache_dtype=str(cache.get("dtype", "auto")),
    )
    engine = _engine(given, content, found, drafts)
    options = {key: int(bool(content.get(key))) for key in (REQUESTS, ITERATIONS)}
    return Program(_server(given, options), engine, _lengths(drafts, engine.max_num_seqs), options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trtllm-emulator", description=notice(ENGINE), allow_abbrev=False)
    parser.add_argument("--version", action="version", version=notice(ENGINE))
    parser.add_argument("model", metavar="MODEL", help="the verifier to serve")
    for flag in (*EFFECTIVE, *INERT):
        add(parser, flag)
    parser.add_argument(*CONFIG_FLAGS, dest="config_file")
    return parser


def _file(path: str | None) -> dict[str, Any]:
    """Content of the YAML file. Raises ConfigError for a bad file, ValidationError for unknown keys."""
    if path is None:
        return {}
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold a mapping")
    _check_keys("TorchLlmArgs", content, KEYS)
    return content


def _check_keys(model: str, content: Mapping[str, Any], known: frozenset[str]) -> None:
    unknown = [key for key in content if key not in known]
    if unknown:
        raise ValidationError(model, [(key, "Extra inputs are not permitted", "extra_forbidden") for key in unknown])


def _value(given: argparse.Namespace, content: Mapping[str, Any], name: str) -> Any:
    """A setting that the file may override."""
    return content.get(name, getattr(given, name))


def _quantization(content: Mapping[str, Any]) -> str:
    algorithm = (content.get("quant_config") or {}).get("quant_algo")
    return str(algorithm or "").lower()


def _drafts(raw: object) -> _Drafts | None:
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise ValidationError(
            "TorchLlmArgs", [("speculative_config", "Input should be a valid dictionary", "dict_type")]
        )
    kind = raw.get("decoding_type")
    if kind not in DECODING_TYPES:
        message = f"Invalid decoding type: {kind}; known are {', '.join(sorted(DECODING_TYPES))}"
        raise ValidationError("TorchLlmArgs", [("speculative_config.decoding_type", message, "value_error")])
    _check_keys(f"{kind}DecodingConfig", raw, SPECULATIVE_KEYS)
    k = raw.get("max_draft_len", raw.get("num_nextn_predict_layers", 1 if kind == "MTP" else None))
    if type(k) is not int or k < 1:
        raise ValidationError(
            "TorchLlmArgs", [("speculative_config.max_draft_len", f"must be > 0, got {k}", "value_error")]
        )
    model = raw.get("speculative_model", raw.get("speculative_model_dir"))
    if model is None and kind not in DRAFT_FREE and kind != "MTP":
        raise ValidationError("TorchLlmArgs", [("speculative_config.speculative_model", "Field required", "missing")])
    speculative = Speculative(method=DECODING_TYPES[kind], k=k, model=model, parallel_drafting=kind in WHOLE_BLOCK)
    return _Drafts(kind, k, speculative, _table(raw.get("draft_len_schedule"), k))


def _table(raw: object, longest: int) -> Mapping[int, int] | None:
    """K by the largest batch size that it holds for; beyond the last one nothing is drafted. Raises ValidationError."""
    if raw is None:
        return None
    field = "speculative_config.draft_len_schedule"
    try:
        table = {int(bound): int(k) for bound, k in raw.items()} if isinstance(raw, Mapping) else {}
    except (TypeError, ValueError):
        raise ValidationError("TorchLlmArgs", [(field, "Input should be a valid integer", "int_parsing")]) from None
    bounds = sorted(table)
    if not table or bounds[0] < 1 or table[bounds[0]] != longest or set(table.values()) - set(range(longest + 1)):
        message = f"Value error, {raw} must hold draft lengths up to max_draft_len={longest}, which comes first"
        raise ValidationError("TorchLlmArgs", [(field, message, "value_error")])
    return {bound: table[bound] for bound in bounds}


def _engine(
    given: argparse.Namespace, content: Mapping[str, Any], found: Shapes, drafts: _Drafts | None
) -> EngineConfig:
    seats = _value(given, content, "max_batch_size")
    length = _value(given, content, "max_seq_len") or found.verifier.max_position or 32768
    k = drafts.k if drafts else 0
    widths = {width + 1 for width in (drafts.table.values() if drafts and drafts.table else ())} | {k + 1}
    batches = sorted({batch for batch in GRAPH_BATCHES if batch <= seats} | {seats})
    chunked = bool(_value(given, content, "enable_chunked_prefill"))
    tokens = _value(given, content, "max_num_tokens")
    cache = content.get("kv_cache_config") or {}
    return EngineConfig(
        model=given.model,
        shapes=found,
        max_model_len=length,
        max_num_seqs=seats,
        max_num_batched_tokens=max(tokens, seats * (k + 1)) if chunked else max(tokens, length, seats * (k + 1)),
        block_size=TOKENS_PER_BLOCK,
        chunked_prefill=True,
        gpu_memory_utilization=cache.get("free_gpu_memory_fraction", given.free_gpu_memory_fraction),
        speculative=drafts.speculative if drafts else None,
        drafting=_drafting(drafts) if drafts else None,
        captures=CaptureFlags(
            eager="cuda_graph_config" in content and content["cuda_graph_config"] is None,
            sizes=tuple(sorted({batch * width for batch in batches for width in widths})),
        ),
        keeps_drafts=drafts is not None,
    )


def _drafting(drafts: _Drafts) -> Drafting:
    return Drafting(
        runner=None,
        draft_free=drafts.kind in DRAFT_FREE,
        drafts_blocks=drafts.kind in WHOLE_BLOCK,
        passes_at_zero=0.0,
    )


def _lengths(drafts: _Drafts | None, seats: int) -> DraftLengths | None:
    if drafts is None or drafts.table is None:
        return None
    bounds, lengths = list(drafts.table), (*drafts.table.values(), 0)
    return ByScheduled([lengths[bisect_left(bounds, batch)] for batch in range(seats + 1)])


def _server(given: argparse.Namespace, options: Mapping[str, int]) -> ServerConfig:
    return ServerConfig(
        served_names=(given.model,),
        host=given.host,
        port=given.port,
        shutdown_timeout=UNLIMITED,
        drain=Drain.CLOSES,
        checks_model=False,
        metrics=bool(options[REQUESTS]),
    )
