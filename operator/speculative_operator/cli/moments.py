"""Points in time and durations as people write them on a command line, and ages as kubectl tells them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from speculative_operator.cli.errors import UsageError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_MOST_SECONDS = 366 * 86_400.0


def seconds(text: str, option: str) -> float:
    """Seconds of `90`, `90s`, `15m`, `2h`, `1d`. Raises UsageError naming `option`."""
    form = _DURATION.fullmatch(text.strip())
    value = float(form.group(1)) * _UNITS[form.group(2) or "s"] if form else 0.0
    if not 0 < value <= _MOST_SECONDS:
        raise UsageError(f"{option} is {text!r}", "write a duration such as 30s, 15m, 2h or 1d")
    return value


def moment(text: str, option: str, now: float) -> float:
    """Unix seconds of `now`, `2h` (that long ago; `-2h` says the same), `2026-01-31T12:00:00Z`, or unix seconds."""
    plain = text.strip()
    if plain == "now":
        return now
    form = _DURATION.fullmatch(plain.removeprefix("-"))
    if form and form.group(2):
        return now - float(form.group(1)) * _UNITS[form.group(2)]
    if form and not plain.startswith("-"):
        return float(plain)
    try:
        return seconds_of(plain)
    except ValueError:
        remedy = "write now, how long ago (2h), 2026-01-31T12:00:00Z, or unix seconds"
        raise UsageError(f"{option} is {text!r}", remedy) from None


def seconds_of(text: str) -> float:
    """Unix seconds of `2026-01-31T12:00:00Z`, UTC where it names no zone. Raises ValueError."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def format_time(time: float) -> str:
    """`2026-01-31 12:00:05`, in UTC."""
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S}"


def age(seconds: float) -> str:
    """An age as text: `45s`, `12m`, `7h`, `3d`."""
    for unit, one in (("d", 86_400.0), ("h", 3600.0), ("m", 60.0)):
        if seconds >= 2 * one:
            return f"{int(seconds // one)}{unit}"
    return f"{max(int(seconds), 0)}s"
