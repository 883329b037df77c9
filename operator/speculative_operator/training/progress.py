"""How far a training is, from the last lines of a container's log as the library speculators 0.9.0 writes them
(`train/trainer.py`, `cli/regenerate_responses.py`), and the acceptance length that its validation lets expect.

Called by whoever reads the log of a pod, and by `trainer` for the file that the library keeps with a checkpoint. What
is told is for people: nothing is decided by a log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count, takewhile

from speculative_operator.domain.formats import showable

_EPOCH = re.compile(r"Training epoch (\d+)/(\d+) started")
_STEP = re.compile(r"\btrain/loss=(\S+?),.*\bepoch=(\d+),.*\bglobal_step=(\d+)")
_VALIDATION = re.compile(r"\bval/(\w+)_epoch=([^,\s]+)")
_ANSWERS = re.compile(r"Generating responses:(?:.*?\d+/(\d+))?.*?\bok=(\d+), err=(\d+)")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a container is; None where its log does not tell."""

    step: int = 0
    """Prompts answered or refused, or steps trained."""
    of: int = 0
    """Of how many; 0 where that is not known: steps are known once an epoch is over."""
    loss: float | None = None
    acceptance_length: float | None = None
    """Tokens per step of the verifier on the part of the data that was held out, by the last validation in the text."""
    epoch: int = 0
    """The one that runs, from 1 on; 0 before the first."""
    epochs: int = 0


def answers_progress(text: str) -> Progress | None:
    """Progress of the verifier's answers; None where the log tells none."""
    found = list(_ANSWERS.finditer(text))
    if not found:
        return None
    total, answered, refused = found[-1].groups()
    return Progress(int(answered) + int(refused), int(total or 0))


def training_progress(text: str, per_epoch: int = 0) -> Progress | None:
    """Progress of the training; None where the log tells none. `per_epoch`: steps of an epoch, where they are known
    from what the log said earlier."""
    begun, steps = list(_EPOCH.finditer(text)), list(_STEP.finditer(text))
    if not begun and not steps:
        return None
    epoch, epochs = map(int, begun[-1].groups()) if begun else (0, 0)
    if not steps:
        return Progress(epoch=epoch, epochs=epochs, acceptance_length=_validated(text))
    loss, index, step = steps[-1].groups()
    epoch = max(epoch, int(index) + 1)
    per_epoch = per_epoch or _per_epoch(steps)
    return Progress(int(step), per_epoch * epochs, _number(loss), _validated(text), epoch, epochs)


def expected_length(measured: Mapping[str, float]) -> float | None:
    """Tokens per step of the verifier that measurements of the validation let expect, by their names in the library
    without `_epoch`; None where none of them tells. `full_acc_N` is the share of places where drafts 0 to N are all
    right (models/eagle3/metrics.py), so the length is one more than their sum."""
    names = takewhile(measured.__contains__, map("full_acc_{}".format, count()))
    shares = [measured[name] for name in names]
    return 1.0 + sum(shares) if shares and all(0.0 <= one <= 1.0 for one in shares) else None


def _validated(text: str) -> float | None:
    line = next((line for line in reversed(text.splitlines()) if _VALIDATION.search(line)), "")
    values = {name: _number(value) for name, value in _VALIDATION.findall(line)}
    return expected_length({name: value for name, value in values.items() if value is not None})


def _per_epoch(steps: list[re.Match[str]]) -> int:
    """Steps of an epoch, by the first step that the log has of one behind the end of another; 0 where it has none. The
    log has one step in ten, so this may be up to ten too many."""
    first = {int(one[2]): int(one[3]) for one in reversed(steps)}
    later = [index for index in first if index > 0 and index - 1 in first]
    return first[max(later)] // max(later) if later else 0


def _number(text: str) -> float | None:
    try:
        return showable(float(text))
    except ValueError:
        return None
