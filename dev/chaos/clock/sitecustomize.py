"""Sets the wall clock of one Python process forth or back, for tests: by the seconds in the file CHAOS_CLOCK names.

Python imports it at its start where this folder is in PYTHONPATH, which only the fault run's launcher sees to. The
monotonic clock stays true, as it does when a machine's wall clock is set.
"""

import datetime
import os
import time

_PATH = os.environ.get("CHAOS_CLOCK", "")
_true_time, _true_ns = time.time, time.time_ns


def _offset() -> float:
    """Seconds to add now."""
    try:
        with open(_PATH, "rb") as file:  # noqa: PTH123  pathlib costs each process an import
            return float(file.read() or b"0")
    except (OSError, ValueError):
        return 0.0


class _ShiftedDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "_ShiftedDatetime":
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> "_ShiftedDatetime":
        return cls.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)


if _PATH:
    time.time = lambda: _true_time() + _offset()
    time.time_ns = lambda: _true_ns() + int(_offset() * 1e9)
    datetime.datetime = _ShiftedDatetime  # type: ignore[misc]  # a stand-in for the class is the purpose
