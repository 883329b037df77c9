"""What the emulator itself is told through its environment: hardware, workload, seed, pace. Read once by `__main__`.

Everything that a real vLLM would be told on its command line is not here but in `flags`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from speculative_lab.emulator.errors import ConfigError
from speculative_operator.domain.spec import Workload

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Settings:
    """Values of the EMULATOR_* variables."""

    accelerator: str = "H100-SXM"
    """EMULATOR_ACCELERATOR: name in the accelerator catalogue."""
    workload: Workload = Workload.CHAT
    """EMULATOR_WORKLOAD: acceptance class of requests that name none."""
    seed: int = 0
    """EMULATOR_SEED: of texts, acceptance and step noise."""
    load_seconds: float = 1.0
    """EMULATOR_LOAD_SECONDS: the port stays closed that long."""
    step_noise: float = 0.05
    """EMULATOR_STEP_NOISE: coefficient of variation of a step's time."""
    slower_percent: float = 0.0
    """EMULATOR_SLOWER_PERCENT: by so much each step takes longer, as with a worse build of the engine."""
    corrupt_one_in: int = 0
    """EMULATOR_CORRUPT_ONE_IN: of so many tokens one is wrong in answers that had drafts, by the seed; 0: none is."""
    acceptance_spread: float = 0.4
    """Standard deviation, in log-odds, of acceptance between requests; no variable sets it."""


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Settings of the EMULATOR_* variables; raises ConfigError naming variable, value and remedy."""

    def read(name: str, convert: Callable[[str], _Value], default: _Value, remedy: str) -> _Value:
        text = environment.get(f"EMULATOR_{name}", "")
        if not text:
            return default
        try:
            return convert(text)
        except ValueError:
            raise ConfigError(f"EMULATOR_{name}={text!r} is not understood: {remedy}") from None

    default = Settings()
    return Settings(
        accelerator=environment.get("EMULATOR_ACCELERATOR") or default.accelerator,
        workload=read(
            "WORKLOAD",
            lambda text: Workload(text.strip().capitalize()),
            default.workload,
            "give one of " + ", ".join(Workload),
        ),
        seed=read("SEED", int, default.seed, "give a whole number"),
        load_seconds=read("LOAD_SECONDS", _not_negative, default.load_seconds, "give seconds, 0 or more"),
        corrupt_one_in=read(
            "CORRUPT_ONE_IN", lambda text: int(_not_negative(text)), 0, "give a whole number, 0 or more"
        ),
        slower_percent=read("SLOWER_PERCENT", _not_negative, default.slower_percent, "give a percentage, 0 or more"),
        step_noise=read("STEP_NOISE", _not_negative, default.step_noise, "give a ratio such as 0.05"),
    )


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value
