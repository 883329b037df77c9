"""What the key of the table and its hysteresis change: the payload in the emulated engine, in virtual time.

`python -m payloadbench.keys` prints, for each key: changes of K per 1,000 steps; steps drafted at another K than the
table's for the requests that decode (%); tokens a second of a decoding request; how often 48 steps in a row lie in one
row of the table (%), which a tried block of 16 steps and its neighbours need. Decoding requests hover about a threshold
of the table while prompts of 3,000 to 6,000 tokens join in pieces. Figures: docs/decisions/0021-tried-in-the-engine.md.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from payloadbench.server import PAYLOAD
from speculative_lab.emulator.acceptance import TENDENCIES, WORKLOADS
from speculative_lab.emulator.arguments import parse
from speculative_lab.emulator.assembly import build_core
from speculative_lab.emulator.config import engine_config
from speculative_lab.emulator.hot import HotStepper, hot_stepper
from speculative_lab.emulator.requests import FinishReason, Request
from speculative_lab.emulator.settings import Settings
from speculative_operator.domain.spec import Workload

STEPS = 30_000
THRESHOLD = 8
ROWS = [[1, THRESHOLD, 4], [THRESHOLD + 1, 64, 1]]
BLOCKS = 48
PROMPT, ANSWER = 6000, 300
ARRIVAL_SECONDS = 0.31
"""Between two requests in the mean: 8 to 9 decode then."""
KEYS = ("scheduled", "decoding", "decoding, hysteresis")


def main() -> int:
    sys.path.insert(0, str(PAYLOAD))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.json"
        path.write_text(json.dumps({"version": 1, "rows": ROWS}))
        os.environ |= {"SPECULATIVE_TABLE_FILE": str(path), "SPECULATIVE_TELEMETRY_PORT": "off"}
        for key in KEYS:
            print(json.dumps({"key": key} | _run(key)), flush=True)
    return 0


def _run(key: str) -> dict[str, float]:
    drafts = {
        "method": "draft_model", "model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 4,
        "num_speculative_tokens_per_batch_size": [[1, 1, 4], [2, 64, 1]],
    }  # fmt: skip
    words = ["serve", "Qwen/Qwen3-8B", "--max-num-seqs", "64", "--max-model-len", "8192", "--max-num-batched-tokens"]
    words += ["512", "--scheduler-cls", "speculative_scheduler.scheduler", "--speculative-config", json.dumps(drafts)]
    settings, rng = Settings(), np.random.default_rng(5)
    configuration = engine_config(parse(words), {"VLLM_USE_V2_MODEL_RUNNER": "0"}, settings)
    core = build_core(configuration, settings)
    hot = hot_stepper(configuration, core)
    assert hot is not None
    _set_key(hot, key)
    now = arrival = 0.0
    asked: list[tuple[int, int, int, float]] = []
    while len(asked) < STEPS:
        while arrival <= now:
            core.add(_request(arrival, int(rng.geometric(1 / ANSWER)), rng))
            arrival += float(rng.exponential(ARRIVAL_SECONDS))
        if not core.busy:
            now = arrival
            continue
        result = hot.step(now)
        now = result.end
        hot.finished(result)
        asked.append((result.k, result.complete, result.generated_tokens, result.seconds))
    return _figures(asked)


def _set_key(hot: HotStepper, key: str) -> None:
    scheduler: Any = hot._scheduler
    if key == "scheduled":
        scheduler._speculative_state.blocks = None
    else:
        blocks = sys.modules["speculative_blocks"]
        blocks.DWELL = 1 if key == "decoding" else 8  # type: ignore[attr-defined]  # imported from where pods have it


def _request(arrival: float, answer: int, rng: np.random.Generator) -> Request:
    return Request(
        identity="r",
        prompt_tokens=int(rng.integers(PROMPT // 2, PROMPT)),
        target=answer,
        reason=FinishReason.LENGTH,
        max_tokens=answer,
        arrival=arrival,
        workload=WORKLOADS.index(Workload.CODE),
        tendency=int(rng.integers(TENDENCIES)),
    )


def _figures(asked: list[tuple[int, int, int, float]]) -> dict[str, float]:
    ks, decoding, tokens, seconds = (np.array(column) for column in zip(*asked, strict=True))
    low = decoding <= THRESHOLD
    wrong = (ks != np.where(low, 4, 1)) & (decoding > 0)
    whole = [bool(low[place : place + BLOCKS].all()) for place in range(0, len(low) - BLOCKS, BLOCKS)]
    return {
        "changes": round(1000 * float((ks[1:] != ks[:-1]).mean()), 1),
        "other K": round(100 * float(wrong.mean()), 1),
        "speed": round(float(tokens.sum() / (decoding * seconds).sum()), 2),
        "decoding": round(float(decoding.mean()), 1),
        "48 steps in the first row": round(100 * float(np.mean(whole)), 1),
    }


if __name__ == "__main__":
    sys.exit(main())
