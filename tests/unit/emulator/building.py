"""Engines of the emulator for tests: from flags as a user writes them, run in virtual time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from speculative_lab.emulator.acceptance import TENDENCIES, WORKLOADS
from speculative_lab.emulator.arguments import parse
from speculative_lab.emulator.assembly import build_core
from speculative_lab.emulator.config import EngineConfig, engine_config
from speculative_lab.emulator.core import EngineCore, StepResult
from speculative_lab.emulator.metrics import EngineMetrics
from speculative_lab.emulator.requests import FinishReason, Request
from speculative_lab.emulator.settings import Settings
from speculative_operator.domain.spec import Workload

VERIFIER, DRAFT = "Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B"
V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}


def speculation(k: int = 3, schedule: list[list[int]] | None = None, **more: Any) -> tuple[str, str]:
    """`--speculative-config` of the demo pair."""
    config: dict[str, Any] = {"method": "draft_model", "model": DRAFT, "num_speculative_tokens": k, **more}
    if schedule is not None:
        config["num_speculative_tokens_per_batch_size"] = schedule
    return ("--speculative-config", json.dumps(config))


def configured(*flags: str, environment: Mapping[str, str] = V1, settings: Settings | None = None) -> EngineConfig:
    """The engine configuration of `serve VERIFIER flags`."""
    words = ["serve", VERIFIER, "--max-num-seqs", "256", "--max-model-len", "4096", *flags]
    return engine_config(parse(words), environment, settings or Settings())


class Run:
    """An engine in virtual time, with its metrics, and helpers to feed it."""

    def __init__(self, config: EngineConfig, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.core: EngineCore = build_core(config, self.settings)
        self.metrics: Any = EngineMetrics(config, "m", 0.0)
        self._start()

    def _start(self) -> None:
        self.now = 0.0
        self.results: list[StepResult] = []
        self.ended: list[Request] = []
        self._rng = np.random.default_rng(7)

    def add(
        self, prompt: int = 220, output: int = 200, workload: Workload | None = None, streams: bool = False
    ) -> Request:
        """Queue one request, which arrives now."""
        request = Request(
            identity=f"r{len(self.ended)}",
            prompt_tokens=prompt,
            target=output,
            reason=FinishReason.LENGTH,
            max_tokens=output,
            arrival=self.now,
            workload=WORKLOADS.index(workload or self.settings.workload),
            tendency=int(self._rng.integers(TENDENCIES)),
            streams=streams,
        )
        self.core.add(request)
        return request

    def step(self) -> StepResult:
        """One step, booked."""
        result = self.core.step(self.now)
        self.now = result.end
        self.metrics.record(result, self.core.running, len(self.core.waiting), self.core.kv_usage)
        for ended in result.finished:
            self.metrics.finish(ended.request, ended.reason, self.now)
            self.ended.append(ended.request)
        self.results.append(result)
        return result

    def until_idle(self, most: int = 100_000) -> None:
        """Step until nothing is left to do."""
        for _ in range(most):
            if not self.core.busy:
                return
            self.step()
        raise AssertionError("the engine does not come to an end")

    def closed_loop(
        self, batch: int, seconds: float, prompt: int = 220, output: int = 200, workload: Workload | None = None
    ) -> float:
        """Keep `batch` requests in flight for `seconds`; output tokens per second, the first quarter left out."""
        for _ in range(batch):
            self.add(prompt, int(self._rng.integers(1, output + 1)), workload)
        start, end, tokens = self.now + seconds / 4, self.now + seconds, 0
        while self.now < end:
            result = self.step()
            tokens += result.generated_tokens if self.now > start else 0
            for _ in result.finished:
                self.add(prompt, output, workload)
        return tokens / (self.now - start)

    def count(self, name: str, label: str = "") -> float:
        """Value of a vLLM counter, by its name without prefix and `_total`."""
        found: float = self.metrics.value(f"vllm:{name}_total", label)
        return found


def quiet(**changes: Any) -> Settings:
    """Settings without step noise and without differences between requests."""
    return Settings(step_noise=0.0, acceptance_spread=0.0, **changes)


def speed_up(batch: int, seconds: float, workload: Workload, prompt: int, output: int, k: int = 3) -> float:
    """Output tokens per second at constant K over the same engine without speculation."""
    on, off = Run(configured(*speculation(k))), Run(configured())
    rates = [run.closed_loop(batch, seconds, prompt, output, workload) for run in (on, off)]
    return rates[0] / rates[1]
