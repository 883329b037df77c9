"""Run by vLLM's own interpreter: does vLLM start with these command lines, and what does it accept of what it drafts?
Called by test_verdicts.py and test_quantized.py, reads and writes JSON.

Standard input: a list of objects `name`, `args`, `prompts`, `tokens`. Standard output, last line: the same number of
objects with `name`, and either `problem` or `drafts`, `drafted`, `accepted`, `texts`, `loaded`: of each model, verifier
first, what was read of its weights before kernels lay them out anew. vLLM is imported once; each
command line has a fork of this process to itself, in which models are loaded and texts generated.
"""
# mypy: disable-error-code="import-not-found,unused-ignore,import-untyped"

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from typing import Any

import vllm.v1.engine.llm_engine
import vllm.v1.worker.cpu_worker  # noqa: F401  (imported once for all forks)
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.model_executor.model_loader import base_loader
from vllm.utils.argparse_utils import FlexibleArgumentParser

from vllm import LLM, SamplingParams

COUNTERS = {
    "vllm:spec_decode_num_drafts": "drafts",
    "vllm:spec_decode_num_draft_tokens": "drafted",
    "vllm:spec_decode_num_accepted_tokens": "accepted",
}
LOADED: list[dict[str, Any]] = []
_lay_out = base_loader.process_weights_after_loading


def look_and_lay_out(model: Any, config: Any, device: Any) -> None:
    """What vLLM calls when a model's weights are read."""
    schemes = {type(module.scheme).__name__ for module in model.modules() if hasattr(module, "scheme")}
    stored = sum(one.numel() * one.element_size() for one in model.parameters())
    LOADED.append({"quantization": config.quantization, "schemes": sorted(schemes), "bytes": stored})
    _lay_out(model, config, device)


base_loader.process_weights_after_loading = look_and_lay_out


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Load and generate."""
    parsed = make_arg_parser(FlexibleArgumentParser(prog="vllm serve")).parse_args(asked["args"])
    parsed.model = parsed.model_tag
    given = EngineArgs.from_cli_args(parsed)
    given.disable_log_stats = False
    model = LLM.from_engine_args(given)
    settings = SamplingParams(temperature=0.0, max_tokens=asked["tokens"], ignore_eos=True)
    told = model.generate(asked["prompts"], settings, use_tqdm=False)
    found = dict.fromkeys(COUNTERS.values(), 0)
    for metric in model.get_metrics():
        if name := COUNTERS.get(metric.name):
            found[name] += int(metric.value)
    return {**found, "texts": [one.outputs[0].text for one in told], "loaded": LOADED}


def forked(asked: dict[str, Any]) -> dict[str, Any]:
    """The answer of a process of its own; where it dies without one, that is the problem."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            told = answer(asked)
        except BaseException as problem:
            traceback.print_exc()
            told = {"problem": f"{type(problem).__name__}: {problem}"}
        with contextlib.suppress(OSError), os.fdopen(writing, "w") as pipe:
            json.dump(told, pipe)
        sys.stderr.flush()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    return {"name": asked["name"], **(json.loads(text) if text else {"problem": f"ended with status {status}"})}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed on the way is log
    json.dump([forked(asked) for asked in json.load(sys.stdin)], answers)


if __name__ == "__main__":
    main()
