"""Command line and YAML file of `trtllm-serve` to a `Program`. Called by `__main__`.

The file overrides the flags (tensorrt_llm/commands/serve.py, update_llm_args_with_extra_dict); what it may hold is in
`flags`. The one-way SpeculationGate and relaxed acceptance are accepted and not emulated.
"""

from __future__ import annotations

import argparse
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
from speculative_lab.emulator.tensorrt_llm import VERSION, VERSION_VARIABLE, schedule
from speculative_lab.emulator.tensorrt_llm.flags import (
    CONFIG_FLAGS,
    DECODING_TYPES,
    DRAFT_FREE,
    EFFECTIVE,
    INERT,
    KEYS,
    ONLY_SINCE_1_3,
    SPECULATIVE_KEYS,
    WHOLE_BLOCK,
)
from speculative_lab.emulator.tensorrt_llm.schedule import UPPER_BOUNDS_SINCE, Release

CONFIG_FLAG_SINCE: Release = (1, 2)
TOKENS_PER_BLOCK = 32
GRAPH_BATCHES = (*range(1, 32), *range(32, 129, 8), 256, 512, 1024, 2048)
"""Captured batch sizes of `cuda_graph_config` in its default, up to --max_batch_size (padding off: exact sizes run as
graphs, others eagerly; here every size is padded, as with `enable_padding`)."""
REQUESTS, ITERATIONS = "return_perf_metrics", "enable_iter_perf_stats"
UNLIMITED = 3600.0
"""Seconds of draining: uvicorn waits for open requests without limit (tensorrt_llm/serve/openai_server.py)."""
AUTO_LIMIT = 32
"""Requests above which AUTO drafts nothing."""


@dataclass(frozen=True, slots=True)
class _Drafts:
    """What `speculative_config` asks for."""

    kind: str
    k: int
    speculative: Speculative
    table: Mapping[int, int] | None = None


def parse(argv: Sequence[str], environment: Mapping[str, str], settings: Settings) -> Program:
    """The program of these arguments; see `dialect.Parser`."""
    release = _release(environment)
    given = _parser(release).parse_args([word for word in argv if word != "serve"])
    content = _file(given.config_file)
    drafts = _drafts(content.get("speculative_config"), release, _value(given, content, "max_batch_size"))
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
    options = {key: int(bool(content.get(key))) for key in (REQUESTS, ITERATIONS)} | {"minor": release[1]}
    return Program(_server(given, options), engine, _lengths(drafts, engine.max_num_seqs, release), options)


def _release(environment: Mapping[str, str]) -> Release:
    text = environment.get(VERSION_VARIABLE) or VERSION
    try:
        return tuple(int(part) for part in text.lstrip("v").split(".")[:2])
    except ValueError:
        raise ConfigError(f"{VERSION_VARIABLE}={text!r} is not understood: give a release such as {VERSION}") from None


def _parser(release: Release) -> argparse.ArgumentParser:
    engine = "TensorRT-LLM " + ".".join(map(str, release))
    parser = argparse.ArgumentParser(prog="trtllm-emulator", description=notice(engine), allow_abbrev=False)
    parser.add_argument("--version", action="version", version=notice(engine))
    parser.add_argument("model", metavar="MODEL", help="the verifier to serve")
    for flag in (*EFFECTIVE, *INERT):
        add(parser, flag)
    names = CONFIG_FLAGS if release >= CONFIG_FLAG_SINCE else CONFIG_FLAGS[1:]
    parser.add_argument(*names, dest="config_file")
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


def _drafts(raw: object, release: Release, seats: int) -> _Drafts | None:
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise ValidationError(
            "TorchLlmArgs", [("speculative_config", "Input should be a valid dictionary", "dict_type")]
        )
    kind = raw.get("decoding_type")
    known = set(DECODING_TYPES) - (ONLY_SINCE_1_3 if release < UPPER_BOUNDS_SINCE else frozenset())
    if kind not in known:
        message = f"Invalid decoding type: {kind}; known are {', '.join(sorted(known))}"
        raise ValidationError("TorchLlmArgs", [("speculative_config.decoding_type", message, "value_error")])
    _check_keys(f"{kind}DecodingConfig", raw, SPECULATIVE_KEYS)
    k = 5 if kind == "AUTO" and seats <= 4 else 3 if kind == "AUTO" else raw.get("max_draft_len")
    k = k if k is not None else raw.get("num_nextn_predict_layers", 1 if kind == "MTP" else None)
    if type(k) is not int or k < 1:
        raise ValidationError(
            "TorchLlmArgs", [("speculative_config.max_draft_len", f"must be > 0, got {k}", "value_error")]
        )
    model = raw.get("speculative_model", raw.get("speculative_model_dir"))
    if model is None and kind not in DRAFT_FREE and kind != "MTP":
        raise ValidationError("TorchLlmArgs", [("speculative_config.speculative_model", "Field required", "missing")])
    speculative = Speculative(method=DECODING_TYPES[kind], k=k, model=model, parallel_drafting=kind in WHOLE_BLOCK)
    return _Drafts(kind, k, speculative, _table(raw, k, release, kind))


def _table(raw: Mapping[str, Any], k: int, release: Release, kind: str) -> Mapping[int, int] | None:
    """The schedule by batch size; `max_concurrency` is one of a single step. Raises ValidationError for both."""
    given, most = raw.get("draft_len_schedule"), raw.get("max_concurrency", AUTO_LIMIT if kind == "AUTO" else None)
    if given is None and most is None:
        return None
    if given is None:
        return {int(most or 0): k} if release >= UPPER_BOUNDS_SINCE else {1: k, int(most or 0) + 1: 0}
    if most is not None and release >= UPPER_BOUNDS_SINCE:
        message = "Value error, draft_len_schedule and max_concurrency are mutually exclusive"
        raise ValidationError("TorchLlmArgs", [("speculative_config", message, "value_error")])
    return schedule.checked(given, k, release)


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
        request_metrics="detailed" if drafts else "none",
    )


def _drafting(drafts: _Drafts) -> Drafting:
    return Drafting(
        runner=None,
        draft_free=drafts.kind in DRAFT_FREE,
        drafts_blocks=drafts.kind in WHOLE_BLOCK,
        passes_at_zero=0.0,
    )


def _lengths(drafts: _Drafts | None, seats: int, release: Release) -> DraftLengths | None:
    if drafts is None or drafts.table is None:
        return None
    return ByScheduled(schedule.dense(drafts.table, seats, release))


def _server(given: argparse.Namespace, options: Mapping[str, int]) -> ServerConfig:
    return ServerConfig(
        served_names=(given.model,),
        host=given.host,
        port=given.port,
        shutdown_timeout=UNLIMITED,
        drain=Drain.CLOSES,
        checks_model=False,
        reports_speculation=False,
        metrics=bool(options[REQUESTS]),
    )
