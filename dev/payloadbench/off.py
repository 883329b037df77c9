"""What K = 0 costs on the real engine: without a speculator, as vLLM has it, and off; four engines, turn about.

`python -m payloadbench.off`. Models are random (16 layers of 512 and a drafter of 4 layers of 256): their texts mean
nothing, their steps are some ten milliseconds, of which a drafter's pass is a part as it is on accelerators. Every
request generates the same number of tokens, so that tokens per second are steps per second. The fourth engine is a copy
of the first and tells what two processes differ by: 3 to 5 % where their weights lie on small pages, 1 % on large ones,
which is why these are asked for. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from payloadbench.load import loop, prompts
from payloadbench.paired import Verdict, beside_copies, between, ratio_of, until_resolved
from payloadbench.server import PAYLOAD, STEADY, Server, write_table
from realengine import paths, serving

WIDTHS = (4, 16, 48)
SEATS = 64
TOKENS = 32
"""Of an answer: the shorter the turns, the less a machine that drifts matters."""
OFF_STEPS = 4
TARGET = {"hidden_size": 512, "num_hidden_layers": 16, "num_attention_heads": 8, "intermediate_size": 1408}
DRAFT = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 704}
MAKE = """
import json, sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
for folder, seed, changes in json.loads(sys.argv[1]):
    config = LlamaConfig.from_pretrained(folder)
    for name, value in changes.items():
        setattr(config, name, value)
    torch.manual_seed(seed)
    LlamaForCausalLM(config).save_pretrained(folder)
"""
KINDS = PLAIN, SOFT, OFF, TWIN = ("no drafter", "K = 0", "off", "no drafter again")
SECONDS = 600.0
"""The longest that rounds are run; the engines' starts come on top."""


def make_models(python: Path, folder: Path) -> None:
    """Random weights beside the small models' tokenizer."""
    wanted = []
    for seed, (name, shape) in enumerate((("target", TARGET), ("draft", DRAFT)), start=1):
        shutil.copytree(paths.models() / name, folder / name, ignore=shutil.ignore_patterns("*.safetensors"))
        heads = shape["num_attention_heads"]
        changes = {**shape, "num_key_value_heads": heads // 2, "head_dim": shape["hidden_size"] // heads}
        wanted.append((str(folder / name), seed, changes))
    subprocess.run([str(python), "-c", MAKE, json.dumps(wanted)], check=True)


@contextmanager
def engines(python: Path, home: Path, kinds: Collection[str]) -> Iterator[dict[str, Server]]:
    """Those of `kinds`, serving."""
    table = home / "table.json"
    write_table(table, 1, [(1, SEATS, 0)])
    drafts = {
        "method": "draft_model", "model": str(home / "models" / "draft"), "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": [[1, SEATS - 1, 3], [SEATS, SEATS, 0]],
    }  # fmt: skip
    seats = ["--max-num-seqs", str(SEATS)]
    soft = [*seats, "--speculative-config", json.dumps(drafts), "--scheduler-cls", "speculative_scheduler.scheduler"]
    off = [*soft, "--worker-extension-cls", "speculative_worker.Extension"]
    ours = {
        "PYTHONPATH": str(PAYLOAD), "SPECULATIVE_TABLE_FILE": str(table), "SPECULATIVE_TELEMETRY_PORT": "off",
    }  # fmt: skip
    rests = {**ours, "SPECULATIVE_OFF_STEPS": str(OFF_STEPS)}
    with ExitStack() as stack:
        started = {}
        for kind, flags, variables in zip(KINDS, (seats, soft, off, seats), ({}, ours, rests, {}), strict=True):
            if kind not in kinds:
                continue
            server = Server(python, home / kind.replace(" ", "-"), flags, {**STEADY, **serving.v2(), **variables})
            started[kind] = stack.enter_context(server)
        yield started


def measure(
    python: Path,
    widths: Sequence[int] = WIDTHS,
    seconds: float = SECONDS,
    kinds: Sequence[str] = KINDS,
    report: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """What K = 0 and off cost: `same_texts`, median `milliseconds` of a step by width and kind, and `ratios` of the
    steps per second as `over` has them, by width and kind. Rounds in which each engine of `kinds`, both without a
    drafter among them, has its turn follow one another until off is known at every width, for `seconds` at most."""
    with tempfile.TemporaryDirectory(prefix="payloadbench-") as temporary:
        home = Path(temporary)
        make_models(python, home / "models")
        os.environ[paths.MODELS_VARIABLE] = str(home / "models")
        found: dict[int, dict[str, list[float]]] = {width: {kind: [] for kind in kinds} for width in widths}
        same = True
        with engines(python, home, kinds) as serving:
            report(f"{len(kinds)} engines are up: rounds of {', '.join(map(str, widths))} requests")

            def turn(number: int) -> dict[str, float]:
                nonlocal same
                for width in widths:
                    texts = set()
                    for kind in kinds if number % 2 else reversed(kinds):
                        asked = prompts(width, number + 2)
                        answers = asyncio.run(loop(serving[kind].url, asked, width, TOKENS))
                        texts.add(answers.texts)
                        found[width][kind].append(1000.0 * answers.seconds * width / max(answers.tokens, 1))
                    same = same and len(texts) == 1
                    report(f"round {number + 1}, {width} requests: {_told(found[width])} ms a step")
                return {f"{kind} {width}": over(of, kind, -1)[0] for width, of in found.items() for kind in (OFF, TWIN)}

            turn(-1)  # does not count: what is compiled or cached is, then
            for of in found.values():
                for each in of.values():
                    each.clear()
            until_resolved(turn, seconds, time.monotonic)
    return {
        "same_texts": same,
        "milliseconds": {
            w: {kind: round(statistics.median(ms), 2) for kind, ms in of.items()} for w, of in found.items()
        },
        "ratios": {w: {kind: ratio_of(over(of, kind)) for kind in kinds if kind != PLAIN} for w, of in found.items()},
    }  # fmt: skip


def _told(of: dict[str, list[float]]) -> str:
    return ", ".join(f"{kind} {each[-1]:.1f}" for kind, each in of.items())


def over(of: dict[str, list[float]], kind: str, first: int = 0) -> list[float]:
    """Steps per second of a kind over the mean of both engines without a drafter, for each round from `first` on; of
    the copy over the other one."""
    turns = zip(of[kind][first:], of[PLAIN][first:], of[TWIN][first:], strict=True)
    return [plain / copy if kind == TWIN else between(one, plain, copy) for one, plain, copy in turns]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="payloadbench.off", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the longest that rounds are run (600)")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # engines end with it
    options = parser.parse_args(arguments)
    python = paths.python()
    if python is None:
        print(paths.MISSING, file=sys.stderr)
        return 2
    found = measure(python, seconds=options.seconds, report=lambda line: print(line, file=sys.stderr, flush=True))
    verdicts = {width: beside_copies(of[OFF], of[TWIN]) for width, of in found["ratios"].items()}
    print(json.dumps({**found, "verdicts": verdicts}, default=str))
    return 0 if found["same_texts"] and set(verdicts.values()) == {Verdict.EQUAL} else 1


if __name__ == "__main__":
    sys.exit(main())
