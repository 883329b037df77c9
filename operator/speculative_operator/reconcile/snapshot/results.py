"""What a program that reads or fetches models has left at its end, in a Job or in a pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain.jobs import decode
from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.reading import mapping, text
from speculative_operator.domain.reasons import Reason, reason_of


@dataclass(frozen=True, slots=True)
class Failed:
    """The error that the program has left."""

    reason: Reason | None
    """None where the operator has no such reason."""
    message: str
    side: str = ""
    """`verifier` or `speculator`; empty: both, or neither."""
    file: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What it has found out."""

    verifier: ModelFacts | None = None
    speculator: ModelFacts | None = None
    """None where there is none, or its facts cannot be read; `verifier` likewise."""
    done: bool = False
    """True where it left a result and no error."""
    failed: Failed | None = None


def read_result(result: Mapping[str, Any] | None) -> Result:
    """The result of a program; empty where none can be read."""
    if result is None:
        return Result()
    verifier, speculator = (_facts(result.get(side)) for side in ("verifier", "speculator"))
    return Result(verifier, speculator, "error" not in result, _failed(mapping(result, "error")))


def failure_in(message: str) -> Failed | None:
    """The error in the termination message of a container; None without one."""
    return _failed(mapping(decode(message), "error"))


def _facts(data: Any) -> ModelFacts | None:
    try:
        return ModelFacts.from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _failed(error: Mapping[str, Any]) -> Failed | None:
    if not error:
        return None
    message, side, file, remedy = (text(error, name) for name in ("message", "side", "file", "remedy"))
    return Failed(reason_of(text(error, "reason")), message, side, file, remedy)
