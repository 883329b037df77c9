"""Engines with random weights in the shapes of real models: how each is started, and what is asked of it.

Called by `bench`. Random weights accept nothing, so drafts are accepted at given rates (vLLM's synthetic acceptance),
whatever they say. Where no accelerator is, shapes are tiny and nothing but the way is tried.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from payloadbench.load import loop, prompts
from payloadbench.server import PAYLOAD, Server, ServerError, free_port, write_table
from realengine import counters, paths
from realengine.load import Client, Load

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 128, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
    "rope_theta": 1000000, "hidden_act": "silu", "attention_bias": False, "dtype": "bfloat16", "hidden_size": 4096,
    "intermediate_size": 12288, "num_hidden_layers": 36, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 4,
    "tie_word_embeddings": False,
}  # fmt: skip
"""Qwen3-8B."""
TINY = {
    "head_dim": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 2048, "hidden_size": 128,
    "intermediate_size": 352, "num_hidden_layers": 3, "dtype": "float32",
}  # fmt: skip
SPECULATORS: dict[str, dict[str, Any]] = {
    "draft_model": {
        "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
        "tie_word_embeddings": True,
    },
    "eagle3": {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1,
        "draft_vocab_size": 32000,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 18, 33], "use_aux_hidden_state": True},
    },
}  # fmt: skip
"""What differs in Qwen3-0.6B, and in the EAGLE-3 heads that are published for Qwen3-8B."""
TINY_EAGLE = {"draft_vocab_size": 1024, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}}
KS = (0, 1, 3)
RATES = (0.72, 0.52, 0.38)
"""Of drafts accepted, by position: those of the published speculators for Qwen3-8B are of this kind."""
SEATS = 128
OFF_STEPS = 64
LENGTHS = 16
"""Of answers under steady traffic, each five tokens longer than the one before."""
CACHE_TOKENS = 30_000
"""Of each engine's KV cache: all requests of every load fit, and three engines into one accelerator."""
TOKEN_BYTES = {"": 147_456, "eagle3": 151_552, "draft_model": 262_144}
"""What one takes there, by speculator."""
RESTED = re.compile(r"^speculative_payload_\w*rested_steps_total (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Engine:
    """One way to start vLLM."""

    name: str
    runner: int = 2
    speculator: str = ""
    skip: bool = False
    """Whether steps may leave the speculator out (offPolicy Skip); else K = 0 is vLLM's own (KeepRunning)."""
    graphs: str = ""
    """vLLM's CUDA graph mode, where it is not its own choice."""
    adaptive: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """What all engines of a run share."""

    python: Path
    home: Path
    backend: str = ""
    """vLLM's attention kernels; empty on a CPU."""
    seats: int = SEATS


def make_models(folder: Path, tiny: bool) -> None:
    """Configurations beside the small models' tokenizer; vLLM makes the weights up."""
    base = {**QWEN3, **(TINY if tiny else {})}
    shapes: dict[str, dict[str, Any]] = {"verifier": base}
    for name, changes in SPECULATORS.items():
        shapes[name] = {**base, **changes}
        if tiny:
            kept: dict[str, Any] = {key: changes[key] for key in ("architectures", "model_type") if key in changes}
            shapes[name] = {**base, **kept, "num_hidden_layers": 1, **(TINY_EAGLE if name == "eagle3" else {})}
    for name, shape in shapes.items():
        kept_out = shutil.ignore_patterns("*.safetensors")
        shutil.copytree(paths.models() / "target", folder / name, ignore=kept_out, dirs_exist_ok=True)
        (folder / name / "config.json").write_text(json.dumps(shape))


def flags(engine: Engine, setting: Setting) -> list[str]:
    """vLLM's arguments for it, after those of `realengine.serving`."""
    found = ["--load-format", "dummy", "--no-enable-prefix-caching", "--max-num-seqs", str(setting.seats)]
    if setting.backend:
        found += ["--dtype", "bfloat16", "--attention-backend", setting.backend, "--gpu-memory-utilization", "0.2"]
        cache = CACHE_TOKENS * TOKEN_BYTES[engine.speculator]
        found += ["--kv-cache-memory-bytes", str(cache), "--max-cudagraph-capture-size", "512"]
    if engine.graphs:
        found += ["--compilation-config", json.dumps({"cudagraph_mode": engine.graphs})]
    if not engine.speculator:
        return found
    most, seats = max(KS), setting.seats
    drafts = {
        "method": engine.speculator, "model": str(setting.home / "models" / engine.speculator),
        "num_speculative_tokens": most, "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": RATES,
        "num_speculative_tokens_per_batch_size": [[1, seats - 2, 3], [seats - 1, seats - 1, 1], [seats, seats, 0]],
        **({"enable_adaptive_verification": True} if engine.adaptive else {}),
    }  # fmt: skip
    found += ["--speculative-config", json.dumps(drafts), "--scheduler-cls", "speculative_scheduler.scheduler"]
    return [*found, *(["--worker-extension-cls", "speculative_worker.Extension"] if engine.runner == 2 else [])]


def variables(engine: Engine, table: Path, port: int) -> dict[str, str]:
    """Its environment, as the operator gives it."""
    # a CPU has the V2 runner by Triton's interpreter, and the V1 runner without
    found = {
        "VLLM_USE_V2_MODEL_RUNNER": str(engine.runner - 1),
        **({"REALENGINE_TRITON": ""} if engine.runner < 2 else {}),
    }
    if not engine.speculator:
        return found
    latch = {"SPECULATIVE_OFF_STEPS": str(OFF_STEPS)} if engine.skip else {}
    return {
        **found, **latch, "PYTHONPATH": str(PAYLOAD), "SPECULATIVE_TABLE_FILE": str(table),
        "SPECULATIVE_TELEMETRY_PORT": str(port), "SPECULATIVE_TELEMETRY_HOST": "127.0.0.1",
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sent:
    """What requests were sent for so long, and what came of them."""

    seconds: float
    failed: int


@dataclass
class Running:
    """An engine that serves."""

    server: Server
    table: Path
    telemetry: int
    speculates: bool
    seats: int
    ready_seconds: float = 0.0
    version: int = 1
    _seed: int = field(default=0, repr=False)

    def force(self, k: int) -> None:
        """Have it draft K tokens from now on, whatever the load."""
        self.version += 1
        write_table(self.table, self.version, [(1, self.seats, k)])
        time.sleep(0.3)  # the file is looked at five times a second

    def waves(self, width: int, tokens: int, seconds: float) -> Sent:
        """`width` requests that begin together and end together, again and again: nearly all steps only decode."""
        began, failed = time.monotonic(), 0
        while True:
            self._seed += 1
            asked = prompts(width, self._seed)
            failed += asyncio.run(loop(self.server.url, asked, width, tokens, seeded=False)).failed
            if (lasted := time.monotonic() - began) >= seconds:
                return Sent(lasted, failed)

    def looked(self) -> tuple[counters.Counters, float | None]:
        """Its counters, and the steps that left the speculator out; None where nobody tells."""
        rested: float | None = 0.0
        if self.speculates:
            try:
                rested = sum(map(float, RESTED.findall(read(self.telemetry))))
            except OSError:
                rested = None
        return counters.read(read(self.server.port)), rested

    async def steady(self, width: int, tokens: int, settle: float, seconds: float) -> tuple[Any, Any, Sent]:
        """`width` requests of unlike lengths all the time: what was counted before and after, and what was sent."""
        client = Client(self.server.url, "tiny", sampling={"temperature": 0, "seed": None})
        load = Load(client, prompts(LENGTHS, 1), tokens)
        await load.set_width(width)
        try:
            await asyncio.sleep(settle)
            before, began = await asyncio.to_thread(self.looked), time.monotonic()
            await asyncio.sleep(seconds)
            lasted = time.monotonic() - began
            after = await asyncio.to_thread(self.looked)
        finally:
            await load.stop()
        return before, after, Sent(lasted, len(client.failed))


def read(port: int) -> str:
    """What a port of loopback exposes as metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


@contextmanager
def serving(
    engines: Sequence[Engine], setting: Setting, within: float
) -> Iterator[tuple[dict[str, Running], dict[str, str]]]:
    """Those that serve by name, started at once, and why the others do not."""
    with ExitStack() as stack, ThreadPoolExecutor(len(engines)) as pool:
        started = {one.name: pool.submit(start, one, setting, within, stack) for one in engines}
        serve: dict[str, Running] = {}
        not_serving: dict[str, str] = {}
        for name, future in started.items():
            try:
                serve[name] = future.result()
            except ServerError as error:
                not_serving[name] = str(error)
        yield serve, not_serving


def start(engine: Engine, setting: Setting, within: float, stack: ExitStack) -> Running:
    """One engine, which `stack` ends. Raises ServerError."""
    home = setting.home / engine.name.replace(" ", "-").replace(",", "")
    home.mkdir(parents=True, exist_ok=True)  # what it compiled in a group before is there
    table, port, began = home / "table.json", free_port(), time.monotonic()
    write_table(table, 1, [(1, setting.seats, 0)])
    server = Server(
        setting.python, home, flags(engine, setting), variables(engine, table, port),
        setting.home / "models" / "verifier", within,
    )  # fmt: skip
    stack.enter_context(server)
    return Running(server, table, port, bool(engine.speculator), setting.seats, round(time.monotonic() - began, 1))
