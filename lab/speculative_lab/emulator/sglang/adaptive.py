"""`--speculative-adaptive`: SGLang's own choice of steps by batch and acceptance, and the file that configures it.

Pure. Law and defaults are those of SGLang 0.5.23, sglang/srt/speculative/adaptive_spec_params.py and
adaptive_step_router.py. `config` reads the file; `core` asks `AdaptiveSteps` after every step.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speculative_lab.emulator.batch import Ints
from speculative_lab.emulator.errors import ConfigError

DEFAULT: Mapping[str, Any] = {
    "1": {"candidate_steps": [1, 3, 5, 7], "up_hysteresis": 0.0, "down_hysteresis": -0.25, "ceiling_coeff": 0},
    "8": {"candidate_steps": [0, 1, 3], "up_hysteresis": 0.0, "down_hysteresis": 0.0, "ceiling_coeff": 0},
    "32": {"candidate_steps": [0, 1], "up_hysteresis": 0.0, "down_hysteresis": 0.0, "ceiling_coeff": 0},
    "64": {"candidate_steps": [0], "up_hysteresis": 0.0, "down_hysteresis": 0.0, "ceiling_coeff": 0},
}
"""What holds without a file. Keys are batch sizes from which a slot is in force; everything else is for all slots."""
_EMA = "ema"


@dataclass(frozen=True, slots=True)
class SlotConfig:
    """One slot: the steps that it may take and how readily."""

    candidates: tuple[int, ...]
    ema_alpha: float = 0.2
    update_interval: int = 5
    warmup_batches: int = 10
    down_hysteresis: float = -0.25
    up_hysteresis: float = 0.0
    ceiling_coeff: float = 0.0


def slots(config: object) -> dict[int, SlotConfig]:
    """Slots by the batch size from which they hold. Raises ConfigError with SGLang's text for what it refuses."""
    if not isinstance(config, Mapping):
        raise ConfigError(f"speculative adaptive config must be a JSON object, got {type(config).__name__}")
    strategy = config.get("strategy", _EMA)
    if strategy != _EMA:
        raise ConfigError(f"speculative adaptive config 'strategy' {strategy!r} is not emulated; leave it at 'ema'")
    found = {int(key): _slot(key, config) for key in config if key.isdecimal()}
    if not found:
        raise ConfigError(
            "speculative_adaptive_config must contain at least one integer-string BS key, e.g."
            f' {{"1": {{"candidate_steps": [1,3,7]}}}}. Got keys: {list(config)}'
        )
    return dict(sorted(found.items()))


def _slot(key: str, config: Mapping[str, Any]) -> SlotConfig:
    entry = {**config, **config[key]}
    steps = config[key].get("candidate_steps")
    if not isinstance(steps, list) or not steps or not all(type(step) is int and step >= 0 for step in steps):
        raise ConfigError(f"BS {key}: candidate_steps must be a list of non-negative ints, got {steps!r}")
    default = SlotConfig(())
    return SlotConfig(
        candidates=tuple(sorted(set(steps))),
        ema_alpha=entry.get("ema_alpha", default.ema_alpha),
        update_interval=entry.get("update_interval", default.update_interval),
        warmup_batches=entry.get("warmup_batches", default.warmup_batches),
        down_hysteresis=entry.get("down_hysteresis", default.down_hysteresis),
        up_hysteresis=entry.get("up_hysteresis", default.up_hysteresis),
        ceiling_coeff=entry.get("ceiling_coeff", default.ceiling_coeff),
    )


def union(config: Mapping[int, SlotConfig]) -> tuple[int, ...]:
    """Every number of steps that may occur, ascending."""
    return tuple(sorted({step for slot in config.values() for step in slot.candidates}))


def initial(config: Mapping[int, SlotConfig], asked: int | None) -> int:
    """Steps at the start: `asked`, which must be a candidate, else the middle one. Raises ConfigError."""
    every = union(config)
    if asked is None:
        return every[len(every) // 2]
    if asked not in every:
        raise ConfigError(
            f"speculative_num_steps={asked} must be one of the candidate steps {list(every)} of the adaptive config"
        )
    return asked


class Slot:
    """Steps of one range of batch sizes, moved by a mean of accepted drafts."""

    def __init__(self, config: SlotConfig, start: int) -> None:
        candidates = config.candidates
        self.config = config
        self.steps = start if start in candidates else candidates[len(candidates) // 2]
        self.ema = float(self.steps - 1)
        self._batches = 0

    def update(self, mean_accepted: float) -> None:
        """One verification of a batch in which requests had that many drafts accepted on average."""
        config = self.config
        if self.steps > 0:
            self.ema = (1 - config.ema_alpha) * self.ema + config.ema_alpha * mean_accepted
        self._batches += 1
        counted = self._batches - config.warmup_batches
        if counted > 0 and counted % config.update_interval == 0:
            self.steps = self._probe() if self.steps == 0 else self._moved()

    def _probe(self) -> int:
        """From nothing the next candidate is tried without further reason."""
        candidates = self.config.candidates
        target = candidates[min(1, len(candidates) - 1)]
        if target > 0 and self.ema < 0:
            self.ema = float(target - 1)
        return target

    def _moved(self) -> int:
        candidates, config, old = self.config.candidates, self.config, self.steps
        index = start = candidates.index(old)
        while index > 0 and self.ema <= _drop_at(candidates[index - 1]) + config.down_hysteresis:
            index -= 1
        if index == start:
            while index < len(candidates) - 1 and self.ema > candidates[index] - 0.5 + config.up_hysteresis:
                index += 1
        if config.ceiling_coeff > 0:
            ceiling = max(1, math.ceil(self.ema * config.ceiling_coeff))
            while ceiling < candidates[index] <= old and index > 0:
                index -= 1
        return candidates[index]


def _drop_at(lower: int) -> float:
    """Mean of accepted drafts up to which the lower candidate suffices, before hysteresis."""
    return 0.5 if lower == 0 else lower - 0.5


class AdaptiveSteps:
    """Slots by batch size. A batch counts as the next CUDA-graph size, where there are graphs."""

    def __init__(self, config: Mapping[int, SlotConfig], start: int, graph_batches: Sequence[int] = ()) -> None:
        self.slots = {batch: Slot(slot, start) for batch, slot in sorted(config.items())}
        self._keys = list(self.slots)
        self._graphs = sorted(graph_batches)

    def verified(self, accepted: Ints) -> None:
        """See `DraftLengths`: the batch that was verified moves its own slot."""
        self.slot(len(accepted)).update(float(accepted.mean()))

    def next(self, scheduled: int, decoding: int) -> int:
        """See `DraftLengths`: steps of the slot of the requests that will decode."""
        return self.slot(decoding).steps

    def slot(self, batch: int) -> Slot:
        """The slot of a batch of that size."""
        place = bisect_left(self._graphs, batch)
        padded = self._graphs[place] if place < len(self._graphs) else batch
        return self.slots[self._keys[max(0, bisect_right(self._keys, padded) - 1)]]
