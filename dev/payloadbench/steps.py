"""What the payload's own code costs a step, without an engine: its scheduler over one that does nothing.

`python -m payloadbench.steps` prints microseconds a step by number of requests, with a table alone and with K tried at
the largest share there is. Each figure is the least of some rounds: what else the machine does only ever adds. A
model's step between two of them takes the caches for itself, which adds more (docs/live-retuning.md).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from payloadbench.server import PAYLOAD

STEPS, ROUNDS = 3000, 15
MAX_K = 4
BATCHES = (1, 8, 64, 256)
ROWS = [[1, 256, 3]]
TRY = {"steps": 16, "rows": [[1, 256, [2, 4], 0.4]]}


class Idle:
    """vLLM's scheduler with decoding requests and nothing to do. Its plans and outputs are made beforehand."""

    def __init__(self, vllm_config: Any) -> None:
        self.vllm_config, self.num_spec_tokens = vllm_config, MAX_K
        self.dynamic_sd_lookup = [0, 1, 2, 3, 4] + [0] * 252
        self.drafted = 0

    def load(self, batch: int) -> None:
        """So many requests from the next step on."""
        names = [f"cmpl-{number:032d}" for number in range(batch)]
        one = SimpleNamespace(num_computed_tokens=99, num_tokens=100, num_output_placeholders=0)
        self.requests = dict.fromkeys(names, one)
        self._plans = {
            k: [self._plan(names, k) for _ in range(2)] for k in range(MAX_K + 1)
        }  # fmt: skip
        self._outputs = {k: self._given(names, k) for k in range(MAX_K + 1)}
        self._turn = 0

    @staticmethod
    def _plan(names: list[str], k: int) -> Any:
        return SimpleNamespace(
            num_scheduled_tokens=dict.fromkeys(names, 1 + k),
            total_num_scheduled_tokens=len(names) * (1 + k),
            scheduled_spec_decode_tokens={name: [-1] * k for name in names} if k else {},
            scheduled_cached_reqs=SimpleNamespace(num_output_tokens=[9] * len(names)),
            num_spec_tokens_to_schedule=0,
        )

    @staticmethod
    def _given(names: list[str], k: int) -> dict[int, Any]:
        made = [SimpleNamespace(new_token_ids=[7, 7]) for _ in names]
        pos = [len(names)] * k + [0] * (MAX_K - k)
        drafts = SimpleNamespace(num_draft_tokens_per_pos=pos, num_accepted_tokens_per_pos=pos) if k else None
        return {0: SimpleNamespace(outputs=made, scheduler_stats=SimpleNamespace(spec_decoding_stats=drafts))}

    def schedule(self) -> Any:
        self._turn ^= 1
        self._k = self.drafted
        plan = self._plans[self._k][self._turn]
        plan.num_spec_tokens_to_schedule = self.dynamic_sd_lookup[1]
        self._update_after_schedule(plan)
        return plan

    def _update_after_schedule(self, plan: Any) -> None:
        self.drafted = plan.num_spec_tokens_to_schedule

    def update_from_output(self, _plan: Any, _sampled: Any) -> Any:
        return self._outputs[self._k]


def main() -> int:
    sys.path.insert(0, str(PAYLOAD))
    sys.modules["vllm"] = ModuleType("vllm")
    sys.modules["vllm"].__dict__["__version__"] = "0.32.0"
    payload = __import__("speculative_scheduler")
    told: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, more in (("table", {}), ("trying", {"try": TRY})):
            path = Path(folder) / f"{name}.json"
            path.write_text(json.dumps({"version": 1, "rows": ROWS, **more}))
            os.environ |= {"SPECULATIVE_TABLE_FILE": str(path), "SPECULATIVE_TELEMETRY_PORT": "off"}
            told[name] = {str(batch): round(_microseconds(payload, batch), 2) for batch in BATCHES}
    print(json.dumps(told))
    return 0


def _microseconds(payload: Any, batch: int) -> float:
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(async_scheduling=False),
        speculative_config=SimpleNamespace(method="draft_model"),
    )
    subjects = [Idle(config), payload._hot(Idle)(config)]
    for subject in subjects:
        subject.load(batch)
    least = [1e9, 1e9]
    for _ in range(ROUNDS):
        for place, subject in enumerate(subjects):
            least[place] = min(least[place], _round(subject))
    return (least[1] - least[0]) / STEPS * 1e6


def _round(subject: Any) -> float:
    began = time.process_time()
    for _ in range(STEPS):
        subject.update_from_output(subject.schedule(), None)
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(main())
