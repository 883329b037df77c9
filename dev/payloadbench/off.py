"""What K = 0 costs on the real engine: without a speculator, as vLLM has it, and off; three engines, turn about.

`python -m payloadbench.off`. Models are random (16 layers of 512 and a drafter of 4 layers of 256): their texts mean
nothing, their steps are some ten milliseconds, of which a drafter's pass is a part as it is on accelerators. Every
request generates the same number of tokens, so that tokens per second are steps per second. The last line is JSON.
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
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from payloadbench.load import loop, prompts
from payloadbench.server import PAYLOAD, Server, write_table
from realengine import paths, serving

WIDTHS = (4, 16, 48)
SEATS = 64
TOKENS = 96
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
KINDS = ("no drafter", "K = 0", "off")


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
def engines(python: Path, home: Path) -> Iterator[dict[str, Server]]:
    """The three of them, serving."""
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
        for kind, flags, variables in zip(KINDS, (seats, soft, off), ({}, ours, rests), strict=True):
            server = Server(python, home / kind.replace(" ", "-"), flags, {**serving.v2(), **variables})
            started[kind] = stack.enter_context(server)
        yield started


def measure(python: Path, rounds: int) -> dict[str, Any]:
    """Milliseconds of a step by width and kind, median of rounds in which each has its turn, and what K = 0 costs."""
    with tempfile.TemporaryDirectory(prefix="payloadbench-") as temporary:
        home = Path(temporary)
        make_models(python, home / "models")
        os.environ[paths.MODELS_VARIABLE] = str(home / "models")
        found: dict[int, dict[str, list[float]]] = {width: {kind: [] for kind in KINDS} for width in WIDTHS}
        texts: dict[tuple[int, int], set[tuple[str, ...]]] = {}
        with engines(python, home) as serving:
            for number in range(-1, rounds):  # one that does not count: what is compiled or cached is, then
                for width in WIDTHS:
                    for kind in KINDS if number % 2 else reversed(KINDS):
                        asked = prompts(width, number + 2)
                        answers = asyncio.run(loop(serving[kind].url, asked, width, TOKENS))
                        texts.setdefault((number, width), set()).add(answers.texts)
                        if number >= 0:
                            found[width][kind].append(1000.0 * answers.seconds * width / answers.tokens)
    return {
        "same_texts": all(len(kinds) == 1 for kinds in texts.values()),
        "milliseconds": {
            w: {kind: round(statistics.median(ms), 2) for kind, ms in of.items()} for w, of in found.items()
        },
        "percent_over_no_drafter": {w: {kind: over(of, kind) for kind in KINDS[1:]} for w, of in found.items()},
    }  # fmt: skip


def over(of: dict[str, list[float]], kind: str) -> float:
    """Per cent, median over rounds: those that are neighbours are compared."""
    ratios = [one / none for one, none in zip(of[kind], of[KINDS[0]], strict=True)]
    return round(100.0 * (statistics.median(ratios) - 1.0), 1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="payloadbench.off", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # engines end with it
    options = parser.parse_args(arguments)
    python = paths.python()
    if python is None:
        print(paths.MISSING, file=sys.stderr)
        return 2
    found = measure(python, options.rounds)
    print(json.dumps(found))
    return 0 if found["same_texts"] else 1


if __name__ == "__main__":
    sys.exit(main())
