"""Figures as people read them: rounded, with unit, empty where nothing is known. Used by `figures` and `history`."""

from __future__ import annotations

import math

from speculative_operator.domain.decision import Interval

_LARGEST = 1e9


def known(value: float | None) -> float | None:
    """The value, if it is one that can be shown."""
    return value if value is not None and math.isfinite(value) and abs(value) <= _LARGEST else None


def share(value: float | None) -> str:
    """`61.3%` of a share between 0 and 1."""
    value = known(value)
    return f"{100 * value:.1f}%" if value is not None else ""


def signed(value: float | None) -> str:
    """`+38.2%` of percent."""
    value = known(value)
    return f"{value:+.1f}%" if value is not None else ""


def milliseconds(seconds: float | None) -> str:
    """`9.8ms`."""
    seconds = known(seconds)
    return f"{1000 * seconds:.3g}ms" if seconds is not None and seconds < 10 else f"{seconds:.0f}s" if seconds else ""


def number(value: float | None, digits: int = 1) -> str:
    """A plain number."""
    value = known(value)
    return f"{value:.{digits}f}" if value is not None else ""


def money(value: float | None) -> str:
    """An amount with three digits that count."""
    value = known(value)
    return f"{value:.3g}" if value is not None and value >= 0 else ""


def whole_percent(interval: Interval | None) -> dict[str, int] | None:
    """An interval in whole percent; None when any end cannot be shown."""
    if interval is None:
        return None
    ends = [known(value) for value in (interval.low, interval.mid, interval.high)]
    low, mid, high = (round(value) if value is not None else None for value in ends)
    if low is None or mid is None or high is None:
        return None
    return {"low": low, "mid": mid, "high": high}
