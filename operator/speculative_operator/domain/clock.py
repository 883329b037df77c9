"""The time of one reconcile, which notes from when on a comparison with it would come out otherwise.

So a reconcile knows until when it need not be repeated while nothing but time passes, and no list of deadlines is kept
beside the code that has them. What is reckoned from the time in another way, such as the day of the week or a figure
that fades, is not noted: whoever waits must not wait for long.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any


@dataclass(slots=True)
class Clock:
    """The comparisons of one reconcile."""

    changes_in: float = inf
    """Seconds until the first of them comes out otherwise."""
    runs: bool = True
    """False once the reconcile has ended: the times that it has kept stand still."""


class Moment(float):
    """A time in seconds, or an age, that moves on by `pace` seconds each second while its clock runs. As a number it is
    that of now; sums, differences and shares of it move too."""

    __slots__ = ("clock", "pace")
    clock: Clock
    pace: float

    def __new__(cls, value: float, clock: Clock, pace: float = 1.0) -> Moment:
        made = super().__new__(cls, value)
        made.clock, made.pace = clock, pace
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return float, (float(self),)  # a copy that is kept is a number

    def _moved(self, value: float, own: float, other: Any = 0.0, share: float = 0.0) -> float:
        """`value`, which moves by `own` times this pace and `share` times that of `other`."""
        pace = own * _pace(self) + share * _pace(other)
        return Moment(value, self.clock if self.clock.runs else other.clock, pace) if pace else value

    def __neg__(self) -> float:
        return self._moved(-float(self), -1.0)

    def __add__(self, other: float) -> float:
        return self._moved(float(self) + float(other), 1.0, other, 1.0)

    def __radd__(self, other: float) -> float:
        return self + other

    def __sub__(self, other: float) -> float:
        return self._moved(float(self) - float(other), 1.0, other, -1.0)

    def __rsub__(self, other: float) -> float:
        return self._moved(float(other) - float(self), -1.0, other, 1.0)

    def __mul__(self, other: float) -> float:
        return self._moved(float(self) * float(other), float(other))

    def __rmul__(self, other: float) -> float:
        return self * other

    def __truediv__(self, other: float) -> float:
        return self._moved(float(self) / float(other), 1.0 / float(other))

    def __abs__(self) -> float:
        return self if self >= 0 else -self

    def _compared(self, other: Any) -> float:
        """This as a plain number, once it is noted when the two meet."""
        pace = _pace(self) - _pace(other)
        if pace and isinstance(other, int | float):
            left = (float(other) - float(self)) / pace
            clock = other.clock if isinstance(other, Moment) and not self.clock.runs else self.clock
            clock.changes_in = min(clock.changes_in, left) if left >= 0.0 else clock.changes_in
        return float(self)

    def __lt__(self, other: float) -> bool:
        return self._compared(other) < float(other)

    def __le__(self, other: float) -> bool:
        return self._compared(other) <= float(other)

    def __gt__(self, other: float) -> bool:
        return self._compared(other) > float(other)

    def __ge__(self, other: float) -> bool:
        return self._compared(other) >= float(other)

    def __eq__(self, other: object) -> bool:
        return float.__eq__(self._compared(other), other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = float.__hash__


def _pace(value: Any) -> float:
    return value.pace if isinstance(value, Moment) and value.clock.runs else 0.0
