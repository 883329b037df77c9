"""What K costs on an accelerator, and what off saves there: random weights in the shapes of real models, turn about.

`python -m payloadbench.accelerator` needs SPECULATIVE_VLLM_PYTHON and SPECULATIVE_VLLM_DEVICE=cuda, and 70 GB of the
accelerator's memory. Random weights accept nothing, so drafts are accepted at given rates (vLLM's synthetic
acceptance), whatever they say; times are those of steps, which accepted drafts must earn back. With `--climb` the tuner
serves a load that climbs and falls, beside no speculator and a constant K. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from payloadbench import tuned
from payloadbench.load import loop, prompts
from payloadbench.server import PAYLOAD, Server, write_table
from realengine import counters, paths

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 128, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
    "rope_theta": 1000000, "hidden_act": "silu", "attention_bias": False, "dtype": "bfloat16",
    "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 4, "tie_word_embeddings": False,
}  # fmt: skip
VERIFIER = {**QWEN3, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36}
DRAFT = {
    **QWEN3, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
    "tie_word_embeddings": True,
}  # fmt: skip
SEATS = 256
TOKENS = 128
OFF_STEPS = 64
DEPTH = 8
CONSTANT = 4
RATES = (0.72, 0.52, 0.38, 0.28, 0.2, 0.15, 0.11, 0.08)
"""Of drafts accepted, by position: those of Qwen3-0.6B for Qwen3-8B are of this kind."""
WARM = 24
"""Tokens of a run that comes before what is timed: K = 0 is off after some steps."""
MEMORY = ("--gpu-memory-utilization", "0.3", "--kv-cache-memory-bytes", "5800000000")
"""Several engines share the accelerator; a token takes 147 kB of this cache, and with the speculator's 262 kB."""
ENGINES = ("without", "soft", "off")
PIECEWISE = "piecewise"
"""An engine without a speculator, on the runner and with the graphs of those that change K: what these cost alone."""
TELEMETRY = {"soft": 18001, "off": 18002}


@dataclass(frozen=True, slots=True)
class Arm:
    """One kind of step: the engine that makes it and its K."""

    name: str
    engine: str
    k: int | None = None


ARMS = (
    Arm("without a speculator", "without"),
    Arm("without, V1 and piecewise graphs", PIECEWISE),
    Arm("K = 0", "soft", 0),
    Arm("off", "off", 0),
    *(Arm(f"K = {k}", "soft", k) for k in (1, 2, CONSTANT)),
)


def make_models(folder: Path) -> None:
    """Configurations beside the small models' tokenizer; vLLM makes the weights up."""
    for name, shape in (("verifier", VERIFIER), ("draft", DRAFT)):
        shutil.copytree(paths.models() / "target", folder / name, ignore=shutil.ignore_patterns("*.safetensors"))
        (folder / name / "config.json").write_text(json.dumps(shape))


@contextmanager
def engines(python: Path, home: Path, backend: str, names: Sequence[str]) -> Iterator[dict[str, Server]]:
    """Those of `names`, started at once, serving; each speculating one reads `home/NAME.json`."""
    make_models(home / "models")
    drafts = {
        "method": "draft_model", "model": str(home / "models" / "draft"), "num_speculative_tokens": DEPTH,
        "num_speculative_tokens_per_batch_size": [
            [1, SEATS - DEPTH, DEPTH], *([SEATS - k, SEATS - k, k] for k in reversed(range(DEPTH)))
        ],
        "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": RATES,
    }  # fmt: skip
    common = [
        *("--load-format", "dummy", "--dtype", "bfloat16", "--attention-backend", backend),
        *("--max-num-seqs", str(SEATS), *MEMORY, "--max-cudagraph-capture-size", "1024"),
        *("--kernel-config", json.dumps({"enable_jit_warmup": False})),
    ]
    ours = [
        *("--speculative-config", json.dumps(drafts), "--scheduler-cls", "speculative_scheduler.scheduler"),
        *("--worker-extension-cls", "speculative_worker.Extension"),
    ]
    piecewise = ["--compilation-config", json.dumps({"cudagraph_mode": "PIECEWISE"})]
    flags = {"without": common, PIECEWISE: [*common, *piecewise], "soft": [*common, *ours], "off": [*common, *ours]}
    servers = {}
    for name in names:
        write_table(home / f"{name}.json", 1, [(1, SEATS, 0)])
        table = {
            "PYTHONPATH": str(PAYLOAD), "SPECULATIVE_TABLE_FILE": str(home / f"{name}.json"),
            "SPECULATIVE_TELEMETRY_PORT": str(TELEMETRY.get(name)), "SPECULATIVE_TELEMETRY_HOST": "127.0.0.1",
        }  # fmt: skip
        variables = {
            "VLLM_USE_V2_MODEL_RUNNER": "1" if name == "without" else "0",
            **(table if name in TELEMETRY else {}),
            **({"SPECULATIVE_OFF_STEPS": str(OFF_STEPS)} if name == "off" else {}),
        }
        servers[name] = Server(python, home / name, flags[name], variables, home / "models" / "verifier")
    with ExitStack() as stack, ThreadPoolExecutor(len(servers)) as pool:
        for started in [pool.submit(stack.enter_context, server) for server in servers.values()]:
            started.result()
        yield servers


class Bench:
    """Runs of arms at widths, while time is left."""

    def __init__(self, serving: dict[str, Server], home: Path) -> None:
        self._serving, self._home = serving, home
        self.arms = [arm for arm in ARMS if arm.engine in serving]
        self._version = 1
        self.texts: dict[tuple[int, int], dict[str, tuple[str, ...]]] = {}

    def run(self, arm: Arm, width: int, seed: int) -> float:
        """Milliseconds of one step of `width` requests."""
        if arm.k is not None:
            self._version += 1
            write_table(self._home / f"{arm.engine}.json", self._version, [(1, SEATS, arm.k)])
            time.sleep(0.3)  # the file is looked at five times a second
        url = self._serving[arm.engine].url
        asyncio.run(loop(url, prompts(width, 1000 + seed), width, WARM))
        before = self._counters(url)
        answers = asyncio.run(loop(url, prompts(width, seed), width, TOKENS))
        seen = self._counters(url).since(before)
        self.texts.setdefault((seed, width), {})[arm.name] = answers.texts
        length = 1.0 + seen.accepted / seen.drafts if seen.drafts else 1.0
        return 1000.0 * answers.seconds * width / max(answers.tokens, 1) * length

    @staticmethod
    def _counters(url: str) -> counters.Counters:
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:  # noqa: S310  (loopback)
            return counters.read(answer.read().decode())

    def climb(self, widths: Sequence[int], seconds: float) -> dict[str, Any]:
        """The tuner's engine through loads of `seconds` each, and for fewer the two that it is compared with."""
        product = "H200" if "H200" in accelerator() else "H100-SXM"
        spec = {
            "verifier": {"model": "hf://Qwen/Qwen3-8B"},
            "speculator": {"method": "draft_model", "model": "hf://Qwen/Qwen3-0.6B"},
            "accelerator": {"product": product}, "speculation": {"offPolicy": "Skip"},
        }  # fmt: skip
        tuner = tuned.Tuner(spec, self._home / "off.json", self._version)
        try:
            ports = (self._serving["off"].port, TELEMETRY["off"])
            found = {"tuned": asyncio.run(tuned.climb(ports, widths, seconds, seconds / 3.0, tuner))}
        finally:
            tuner.end()
        write_table(self._home / "soft.json", self._version + 1, [(1, SEATS, CONSTANT)])
        for name, engine in ((ARMS[0].name, "without"), (f"K = {CONSTANT}", "soft")):
            found[name] = asyncio.run(tuned.climb((self._serving[engine].port,), widths, seconds / 4.0, seconds / 6.0))
        return {name: [asdict(phase) for phase in phases] for name, phases in found.items()}

    def same_texts(self) -> dict[str, float]:
        """Share of requests that say what they say without a speculator, by arm."""
        found: dict[str, list[bool]] = {}
        for arms in self.texts.values():
            reference = arms[ARMS[0].name]
            for name, texts in arms.items():
                found.setdefault(name, []).extend(one == other for one, other in zip(texts, reference, strict=True))
        return {name: round(sum(same) / len(same), 3) for name, same in found.items()}


def measure(python: Path, home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds by width and arm, medians of rounds in which each has its turn, and per cent over no speculator."""
    began, widths, rounds = time.monotonic(), options.widths, options.rounds
    names = [*ENGINES, *([PIECEWISE] if options.piecewise else [])]
    with engines(python, home, options.backend, names) as serving:
        bench = Bench(serving, home)
        found: dict[int, dict[str, list[float]]] = {width: {arm.name: [] for arm in bench.arms} for width in widths}
        print(f"engines serve after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        for number in range(-1, rounds):  # one that does not count: what is compiled or cached is, then
            if time.monotonic() - began > options.within:
                break
            for width in widths:
                for arm in bench.arms if number % 2 else reversed(bench.arms):
                    milliseconds = bench.run(arm, width, number + 2)
                    print(number, width, arm.name, round(milliseconds, 2), file=sys.stderr, flush=True)
                    if number >= 0:
                        found[width][arm.name].append(milliseconds)
        rounded = {w: {arm: [round(one, 3) for one in ms] for arm, ms in of.items()} for w, of in found.items()}
        return {
            "accelerator": accelerator(), "same_texts": bench.same_texts(), "milliseconds": rounded,
            "percent_over_without": {w: {arm.name: over(of, arm) for arm in bench.arms[1:]} for w, of in found.items()},
            "climb": bench.climb(options.climb, options.seconds) if options.climb else None,
        }  # fmt: skip


def accelerator() -> str:
    """Its name, as the driver gives it."""
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def over(of: dict[str, list[float]], arm: Arm) -> float | None:
    """Per cent, median over rounds: those that are neighbours are compared. None where no round counted."""
    ratios = [one / none for one, none in zip(of[arm.name], of[ARMS[0].name], strict=False)]
    return round(100.0 * (statistics.median(ratios) - 1.0), 1) if ratios else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="payloadbench.accelerator", description=__doc__)
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 4, 16, 48, 128])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--within", type=float, default=3600.0, help="seconds after which no round begins")
    parser.add_argument("--climb", type=int, nargs="+", default=[], help="loads for the tuner, one after another")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each of them lasts")
    parser.add_argument("--piecewise", action="store_true", help="a fourth engine; needs 95 GB in all")
    parser.add_argument("--backend", default="FLASH_ATTN", help="vLLM's attention kernels")
    parser.add_argument("--logs", type=Path, help="folder for the engines' logs")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # engines end with it
    options = parser.parse_args(arguments)
    python = paths.python()
    if python is None or not paths.on_accelerator():
        print(f"{paths.PYTHON_VARIABLE} and {paths.DEVICE_VARIABLE}=cuda are needed", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="payloadbench-") as temporary:
        home = Path(temporary)
        try:
            print(json.dumps(measure(python, home, options)))
        finally:
            for log in home.glob("*/engine.log") if options.logs else ():
                shutil.copy(log, options.logs / f"{log.parent.name}.log")
    return 0


if __name__ == "__main__":
    sys.exit(main())
