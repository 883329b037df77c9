"""An engine in one process on vLLM's V2 runner whose speculator's passes are counted. Run by the engine's interpreter.

`passes_probe.py METHOD VERIFIER SPECULATOR TABLE K...` serves two requests, puts each K into the table file in turn,
and has a third request join meanwhile. Prints one JSON object: for each (K, off or not, prompts or not) the steps of
the engine and the passes of the speculator in them, and the texts.
"""
# mypy: disable-error-code="import-not-found,unused-ignore,import-untyped"

from __future__ import annotations

import importlib
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams

BOOT = [[1, 1, 3], [2, 2, 2], [3, 3, 1], [4, 4, 0]]
STEPS, TOKENS = 8, 160
SPECULATORS = "vllm.v1.worker.gpu.spec_decode"
CLASSES = (
    (f"{SPECULATORS}.standalone_ar.speculator", "StandaloneARSpeculator", "_run_model"),
    (f"{SPECULATORS}.target_dependent_ar.speculator", "TargetDependentARSpeculator", "_run_model"),
    (f"{SPECULATORS}.ngram.speculator", "NgramGPUSpeculator", "propose"),
)
"""A pass is a call of these."""


class Counted:
    """Steps and passes by what the step is."""

    def __init__(self) -> None:
        self.steps: Counter[str] = Counter()
        self.passes: Counter[str] = Counter()
        self.now = ""

    def step(self, plan: Any) -> None:
        decoding = plan.total_num_scheduled_tokens - sum(map(len, plan.scheduled_spec_decode_tokens.values()))
        prompts = decoding > len(plan.num_scheduled_tokens)
        off = "off" if getattr(plan, "speculative_off", False) else "on"
        self.now = f"K {plan.num_spec_tokens_to_schedule} {off} {'prompts' if prompts else 'decoding'}"
        self.steps[self.now] += 1


def watch(counted: Counted) -> None:
    runner: Any = importlib.import_module("vllm.v1.worker.gpu.model_runner").GPUModelRunner
    execute = runner.execute_model

    def execute_model(self: Any, plan: Any, *args: Any, **kwargs: Any) -> Any:
        if plan.total_num_scheduled_tokens and not kwargs.get("dummy_run"):
            counted.step(plan)
        return execute(self, plan, *args, **kwargs)

    runner.execute_model = execute_model
    for module, name, method in CLASSES:
        found = getattr(importlib.import_module(module), name)
        own = getattr(found, method)

        def call(self: Any, *args: Any, own: Any = own, **kwargs: Any) -> Any:
            counted.passes[counted.now] += 1
            return own(self, *args, **kwargs)

        setattr(found, method, call)


def main(method: str, verifier: str, speculator: str, table: str, *ks: str) -> None:
    def put(version: int, k: int) -> None:
        new = Path(f"{table}.new")
        new.write_text(json.dumps({"version": version, "rows": [[1, 4, k]]}))
        new.rename(table)
        time.sleep(0.3)

    put(1, 0)
    config = {"method": method, "num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": BOOT}
    config |= {"model": speculator} if speculator else {"prompt_lookup_min": 1, "prompt_lookup_max": 4}
    engine = LLM(
        model=verifier, dtype="float32", max_model_len=512, max_num_seqs=4, max_num_batched_tokens=256,
        enforce_eager=True, kv_cache_memory_bytes=1 << 26, disable_log_stats=False, speculative_config=config,
        scheduler_cls="speculative_scheduler.scheduler", worker_extension_cls="speculative_worker.Extension",
    ).llm_engine  # fmt: skip
    counted = Counted()
    watch(counted)
    sampling = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    for number, prompt in enumerate(("import os\ndef ", "class Reader:\n")):
        engine.add_request(str(number), prompt, sampling)
    texts: dict[str, list[int]] = {}
    for turn, k in enumerate(map(int, ks)):
        put(turn + 2, k)
        for step in range(STEPS):
            if turn == 1 and step == STEPS // 2:
                engine.add_request("joins", "def close(self):\n", sampling)
            for output in engine.step():
                texts[output.request_id] = list(output.outputs[0].token_ids)
    worker = importlib.import_module("speculative_worker").STATE
    told = {"refused": worker.refused, "rested": worker.rested}
    print(json.dumps({"steps": counted.steps, "passes": counted.passes, "texts": texts, **told}))


if __name__ == "__main__":
    main(*sys.argv[1:])
