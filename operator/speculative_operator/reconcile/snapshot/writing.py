"""When a new status is worth writing. Asked by the shell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from speculative_operator.domain.actions import Truth
from speculative_operator.domain.reading import at, items, mapping, text
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.reconcile.snapshot.status import FIGURES

FIGURES_SECONDS = 30.0
"""Least seconds between two writes of figures; more in a large fleet (`shell.report`)."""
FIGURES_SHARE = 0.05
"""Figures are written only when one of them moved by more than this share."""
_APART = frozenset({"memory", "speculation", "conditions", "engine", "weights", "canary", "measured"})
_DOWNLOADS = frozenset({Reason.DOWNLOADING.value, Reason.DOWNLOAD_STALLED.value})
_ACKNOWLEDGED = "tableVersionInPods"
"""Field of `status.engine` that follows each change of the table by seconds: it goes along, or waits like a figure."""
_COMPARED = "comparison"
"""Field of `status.canary` and `status.measured` with figures that move at each look."""
_TWO = ("canary", "measured")
_VERDICT = ConditionType.TUNING_CONVERGED.value
_SILENT = frozenset({"message", "observedAt"})
"""Figures that never cause a write: they go along with the next one."""


def should_write(
    old: Mapping[str, Any], new: Mapping[str, Any], last_write: float, now: float, interval: float = FIGURES_SECONDS
) -> bool:
    """True when the new status says something that cannot wait, or figures moved and the last write is `interval` ago.

    `last_write` and `now` in unix seconds. The tuner's memory never causes a write: what it has learned since is
    learned again within minutes.
    """
    if cannot_wait(old, new):
        return True
    if 0 <= now - last_write < interval:
        return False
    return _slow(old) != _slow(new) or _figures_moved(mapping(old, "speculation"), mapping(new, "speculation"))


def cannot_wait(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """True when the new status says something that is written at once."""
    return _steady(old) != _steady(new)


def _steady(status: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a status that is written at once when it changes."""
    steady = {key: value for key, value in status.items() if key not in _APART}
    block = mapping(status, "speculation")
    return steady | {
        "engine": {key: value for key, value in mapping(status, "engine").items() if key != _ACKNOWLEDGED},
        **{name: {key: value for key, value in mapping(status, name).items() if key != _COMPARED} for name in _TWO},
        "speculation": {key: value for key, value in block.items() if key not in FIGURES},
        "conditions": [_still(one) for one in items(status, "conditions") if text(one, "type") != _VERDICT],
    }


def _still(condition: Any) -> Any:
    return {name: value for name, value in condition.items() if name != "message"} if _moves(condition) else condition


def _moves(condition: Any) -> bool:
    """True for a condition whose message moves all the time: the figures of a download, the pods that are left out of
    the metrics; and for the tuner's verdict on the table, which moves as a whole at the edge of a margin."""
    kind = text(condition, "type")
    if kind == ConditionType.WEIGHTS_READY.value:
        return text(condition, "reason") in _DOWNLOADS
    metrics = (kind, text(condition, "status")) == (ConditionType.METRICS_AVAILABLE.value, Truth.TRUE.value)
    return kind == _VERDICT or metrics


def _slow(status: Mapping[str, Any]) -> list[Any]:
    """What is written as seldom as figures."""
    moving = [one for one in items(status, "conditions") if _moves(one)]
    compared = [at(status, name, _COMPARED) for name in _TWO]
    return [at(status, "engine", _ACKNOWLEDGED), *compared, mapping(status, "weights"), moving]


def _figures_moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return any(_differs(old.get(key), new.get(key)) for key in FIGURES if key not in _SILENT)


def _differs(old: Any, new: Any) -> bool:
    if old == new:
        return False
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        # Percent of gain: points are what matters, their share of a small gain is noise.
        return any(abs(_number(old.get(key)) - _number(new.get(key))) > 100 * FIGURES_SHARE for key in {*old, *new})
    if isinstance(old, str) and isinstance(new, str):
        old, new = old.lstrip("~"), new.lstrip("~")
        before, after = _leading(old), _leading(new)
        if before is None or after is None:
            return True
        if old[:1] in "+-" and new[:1] in "+-":
            return abs(before - after) > 100 * FIGURES_SHARE
        return abs(before - after) > FIGURES_SHARE * max(abs(before), abs(after))
    return True


def _leading(figure: str) -> float | None:
    found = re.match(r"[+-]?[0-9]+(?:\.[0-9]+)?", figure)
    return float(found.group()) if found else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
