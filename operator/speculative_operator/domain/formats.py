"""Figures as people read them (rounded, with unit, empty where nothing is known), and Kubernetes quantities by value:
the API server writes `1000m` as `1` and `1024Mi` as `1Gi`."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from speculative_operator.domain.decision import Interval

_LARGEST = 1e9
LONGEST_MESSAGE = 2000
"""Most characters of a condition's message that are written."""


def showable(value: float | None) -> float | None:
    """The value; None where it is unknown, infinite or too large to be shown."""
    return value if value is not None and math.isfinite(value) and abs(value) <= _LARGEST else None


def share(value: float | None) -> str:
    """A share between 0 and 1 as `61.3%`; empty where it is unknown."""
    value = showable(value)
    return f"{100 * value:.1f}%" if value is not None else ""


def signed_percent(value: float | None) -> str:
    """Percent as `+38.2%`; empty where they are unknown."""
    value = showable(value)
    return f"{round(value, 1) + 0.0:+.1f}%" if value is not None else ""  # no -0.0


def between(percent: Interval | None) -> str:
    """An interval of percent as `+22% to +40%`; empty where it is unknown."""
    ends = whole_percent(percent)
    return f"{ends['low']:+d}% to {ends['high']:+d}%" if ends is not None else ""


def milliseconds(seconds: float | None) -> str:
    """Seconds as `9.8ms`, from ten seconds on as `12s`; empty where they are unknown or not positive."""
    seconds = showable(seconds)
    if seconds is None or seconds <= 0:
        return ""
    return f"{_significant(1000 * seconds)}ms" if seconds < 10 else f"{seconds:.0f}s"


def number(value: float | None, digits: int = 1) -> str:
    """A number with `digits` decimals; empty where it is unknown."""
    value = showable(value)
    return f"{value:.{digits}f}" if value is not None else ""


def money(value: float | None) -> str:
    """An amount of money with three significant digits; empty where it is unknown or negative."""
    value = showable(value)
    return _significant(value) if value is not None and value >= 0 else ""


def whole_percent(interval: Interval | None) -> dict[str, int] | None:
    """An interval in whole percent; None when any end cannot be shown."""
    if interval is None:
        return None
    ends = [showable(value) for value in (interval.low, interval.mid, interval.high)]
    low, mid, high = (round(value) if value is not None else None for value in ends)
    if low is None or mid is None or high is None:
        return None
    return {"low": low, "mid": mid, "high": high}


def _significant(value: float) -> str:
    """The value with three significant digits, never with an exponent."""
    return format(Decimal(f"{value:.3g}"), "f")


def size(count: float) -> str:
    """Bytes as `16.4GB`: decimal units, three significant digits."""
    for unit, one in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= 0.9995 * one:
            return f"{_significant(count / one)}{unit}"
    return f"{max(count, 0.0):.0f}B"


def duration(seconds: float) -> str:
    """A time left, rounded up as coarsely as people read it: `40s`, `3m`, `2h10m`."""
    if seconds < 60:
        return f"{max(10 * math.ceil(seconds / 10), 10)}s"
    minutes = math.ceil(seconds / 60)
    if minutes < 60:
        return f"{minutes}m"
    tens = 10 * math.ceil(minutes / 10)
    return f"{tens // 60}h{tens % 60}m" if tens % 60 else f"{tens // 60}h"


def timestamp(now: float) -> str:
    """Unix seconds as RFC 3339, whole seconds, UTC; empty for a value that is no time."""
    return _utc(now, "%Y-%m-%dT%H:%M:%SZ")


def moment(now: float) -> str:
    """Likewise with microseconds, to compare with an engine's log."""
    return _utc(now, "%Y-%m-%dT%H:%M:%S.%fZ")


def _utc(now: float, form: str) -> str:
    try:
        return datetime.fromtimestamp(now, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return ""


_FORM = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|n|u|[eE][+-]?[0-9]{1,3})?")
_SUFFIX = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}


def quantity(value: Any) -> Decimal | None:
    """The number that a quantity stands for; None for a value that is no quantity."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    form = _FORM.fullmatch(str(value))
    if form is None or len(form.group()) > 64:
        return None
    number, suffix = form.group(1), form.group(2) or ""
    try:
        return Decimal(number) * _SUFFIX[suffix] if suffix in _SUFFIX else Decimal(number + suffix)
    except InvalidOperation:
        return None
