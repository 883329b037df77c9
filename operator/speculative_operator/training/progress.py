"""How far a training is, from the last lines of a container's log as the library speculators 0.9.0 writes them
(`train/trainer.py`, `cli/regenerate_responses.py`), and the acceptance length that its validation lets expect.

Called by whoever reads the log of a pod, and by `trainer` for the file that the library keeps with a checkpoint. What
is told is for people: nothing is decided by a log.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, count, takewhile
from operator import mul

from speculative_operator.domain.formats import showable

_EPOCH = re.compile(r"Training epoch \d{1,6}/(\d{1,6}) started")
_LOSS = re.compile(r"\btrain/loss=([^,\s]{1,32}),")
_IN_EPOCH = re.compile(r"\bepoch=(\d{1,6})\b")
_AT_STEP = re.compile(r"\bglobal_step=(\d{1,12})\b")
_VALIDATION = re.compile(r"\bval/(\w{1,64})_epoch=([^,\s]{1,32})")
_ANSWERED = re.compile(r"\bok=(\d{1,12}), err=(\d{1,12})")
_OF = re.compile(r"\b\d{1,12}/(\d{1,12})\b")
MOST_LINES, MOST_CHARACTERS = 400, 2000
"""Of a log that are read. The image is the user's, and so is what its log holds: no pattern may take more than the time
that a line is long."""


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


def answers_progress(text: str) -> Progress | None:
    """Progress of the verifier's answers; None where the log tells none."""
    for line in reversed(_lines(text)):
        if "Generating responses:" in line and (done := _ANSWERED.search(line)):
            total = _OF.search(line)
            return Progress(int(done[1]) + int(done[2]), int(total[1]) if total else 0)
    return None


def training_progress(text: str, per_epoch: int = 0) -> Progress | None:
    """Progress of the training; None where the log tells none. `per_epoch`: steps of an epoch, where they are known
    from what the log said earlier."""
    lines = _lines(text)
    begun = [found for line in lines if (found := _EPOCH.search(line))]
    told = [(_LOSS.search(line), _IN_EPOCH.search(line), _AT_STEP.search(line)) for line in lines]
    steps = [(loss[1], int(epoch[1]), int(step[1])) for loss, epoch, step in told if loss and epoch and step]
    if not begun and not steps:
        return None
    if not steps:
        return Progress(acceptance_length=_validated(lines))
    loss, _, step = steps[-1]
    epochs = int(begun[-1][1]) if begun else 0
    return Progress(step, (per_epoch or _per_epoch(steps)) * epochs, _number(loss), _validated(lines))


def _lines(text: str) -> list[str]:
    return [line[:MOST_CHARACTERS] for line in text.splitlines()[-MOST_LINES:]]


def expected_lengths(measured: Mapping[str, float]) -> list[float]:
    """Tokens per step of the verifier that measurements of the validation let expect with one draft token, with two and
    so on, by their names in the library without `_epoch`; empty where none of them tells.

    EAGLE-3: `full_acc_N` is the share of places where drafts 0 to N are all right (models/eagle3/metrics.py), so a
    length is one more than their sum. P-EAGLE and DFlash: `position_N_acc` is the share where draft N is right (of a
    block, 0 is no draft), whatever came before; drafts are right together, so products fall short of the truth. DFlash
    tells the length with all of them too, `eal`; it grows less with each draft: others lie on the line to it, or above.
    """
    if shares := _shares(measured, "full_acc_{}", 0):
        return list(accumulate(shares, initial=1.0))[1:]
    shares = _shares(measured, "position_{}_acc", 0) or _shares(measured, "position_{}_acc", 1)
    lengths = list(accumulate(accumulate(shares, mul), initial=1.0))[1:]
    whole = measured.get("eal", math.nan)
    if not lengths or not 1.0 <= whole <= 1.0 + len(shares):
        return lengths
    each = (whole - lengths[0]) / max(len(lengths) - 1, 1)
    return [min(whole, max(one, lengths[0] + number * each)) for number, one in enumerate(lengths)]


def _shares(measured: Mapping[str, float], name: str, first: int) -> list[float]:
    """Measurements by this name with a number, from `first` on without a gap; empty where one is no share."""
    shares = [measured[one] for one in takewhile(measured.__contains__, map(name.format, count(first)))]
    return shares if all(0.0 <= one <= 1.0 for one in shares) else []


def _validated(lines: list[str]) -> float | None:
    line = next((line for line in reversed(lines) if _VALIDATION.search(line)), "")
    values = {name: _number(value) for name, value in _VALIDATION.findall(line)}
    lengths = expected_lengths({name: value for name, value in values.items() if value is not None})
    return lengths[-1] if lengths else None


def _per_epoch(steps: list[tuple[str, int, int]]) -> int:
    """Steps of an epoch, by the first step that the log has of one behind the end of another; 0 where it has none. The
    log has one step in ten, so this may be up to ten too many."""
    first = {epoch: step for _, epoch, step in reversed(steps)}
    later = [index for index in first if index > 0 and index - 1 in first]
    return first[max(later)] // max(later) if later else 0


def _number(text: str) -> float | None:
    try:
        return showable(float(text))
    except ValueError:
        return None
