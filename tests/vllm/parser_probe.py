"""Run by vLLM's own interpreter: what vLLM makes of command lines. Called by test_parser.py, reads and writes JSON.

Standard input: a list of objects `name`, `args`, `seqs`, `budget`, `blackwell`, `v1`. Standard output, last line: the
same number of objects with `name` and `problem`, or with the parsed `model`, `served`, `lookup` and `sizes`; at last
one object with `flags`: each spelling of a flag of the parser, and how many values it takes in argparse's words. Sizes
of graphs come from vLLM's own `VllmConfig._set_cudagraph_sizes`, on a stand-in that holds what it reads.
"""
# mypy: disable-error-code="import-not-found,unused-ignore,import-untyped"

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Annotated, Any

from pydantic import TypeAdapter
from vllm.config import CompilationConfig, CUDAGraphMode, VllmConfig
from vllm.config.speculative import SpeculativeConfig
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.platforms import current_platform
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup


def answer(parser: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """What vLLM makes of one command line."""
    try:
        parsed = parser.parse_args(asked["args"])
    except SystemExit:
        return {"name": asked["name"], "problem": "the argument parser refuses it"}
    config = parsed.speculative_config or {}
    try:
        check_fields(config)
        lookup = dense(config, asked["seqs"])
        sizes = captured(parsed, config, asked)
    except (ValueError, TypeError, AssertionError) as error:
        return {"name": asked["name"], "problem": str(error)}
    served = (parsed.served_model_name or [None])[0]
    model = parsed.model_tag or parsed.model
    return {"name": asked["name"], "model": model, "served": served, "lookup": lookup, "sizes": sizes}


def check_fields(config: dict[str, Any]) -> None:
    """Every key exists, and every value is of its form. Raises ValueError (pydantic's is one) or KeyError's text."""
    fields = SpeculativeConfig.__pydantic_fields__
    for key, value in config.items():
        if key not in fields:
            raise ValueError(f"SpeculativeConfig has no {key}")
        field = fields[key]
        form: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        TypeAdapter(form).validate_python(read_first(key, value))
    if config.get("method") == "ngram":
        target = SimpleNamespace(verify_with_parallel_config=lambda *_: None)
        SpeculativeConfig(**config, target_model_config=target, target_parallel_config=SimpleNamespace())


def read_first(key: str, value: Any) -> Any:
    """What vLLM's own validators of a field, which run before its form is checked, make of a value."""
    for one in SpeculativeConfig.__pydantic_decorators__.field_validators.values():
        if key in one.info.fields and one.info.mode == "before":
            value = one.func(value)
    return value


def dense(config: dict[str, Any], seqs: int) -> list[int]:
    """K by scheduled requests as the scheduler looks it up; empty without a schedule."""
    rows = config.get("num_speculative_tokens_per_batch_size")
    return build_dynamic_sd_schedule_lookup(rows, seqs, config["num_speculative_tokens"])[1:] if rows else []


def captured(parsed: Any, config: dict[str, Any], asked: dict[str, Any]) -> list[int]:
    """Sizes of graphs that vLLM would capture on a GPU."""
    k = config.get("num_speculative_tokens", 0)
    rows = config.get("num_speculative_tokens_per_batch_size")
    given = {
        "cudagraph_capture_sizes": parsed.cudagraph_capture_sizes,
        "max_cudagraph_capture_size": parsed.max_cudagraph_capture_size,
    }
    compilation = CompilationConfig(
        cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE, **{key: value for key, value in given.items() if value}
    )
    speculative = SimpleNamespace(
        num_speculative_tokens_per_batch_size=rows, uses_dynamic_speculative_decoding=lambda: bool(rows)
    )
    stand_in = SimpleNamespace(
        model_config=SimpleNamespace(enforce_eager=parsed.enforce_eager),
        compilation_config=compilation,
        scheduler_config=SimpleNamespace(max_num_seqs=asked["seqs"], max_num_batched_tokens=asked["budget"]),
        speculative_config=speculative if config else None,
        uniform_decode_query_len=1 + k,
        num_speculative_tokens=k,
        performance_mode="balanced",
    )
    type(current_platform).is_device_capability_family = classmethod(lambda cls, *args, **kwargs: asked["blackwell"])
    VllmConfig._set_cudagraph_sizes(stand_in)  # type: ignore[arg-type]  # holds what the method reads
    if asked["v1"] and config and not rows:
        compilation.adjust_cudagraph_sizes_for_spec_decode(1 + k)
    return list(compilation.cudagraph_capture_sizes)


def options(parser: Any) -> list[tuple[str, Any]]:
    """Every spelling of a flag that the parser takes, with its action."""
    return [(one, action) for action in parser._actions for one in action.option_strings]


def main() -> None:
    parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    flags = {one: str(action.nargs or (1 if action.nargs is None else 0)) for one, action in options(parser)}
    print(json.dumps([*(answer(parser, asked) for asked in json.load(sys.stdin)), {"name": "", "flags": flags}]))


if __name__ == "__main__":
    main()
