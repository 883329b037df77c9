"""How many statuses are written for figures alone, over the whole fleet. Asked by `reconciler`.

Figures of a busy object move with every look. Each by itself may be written twice a minute; of thousands of objects
that would be hundreds of writes a second to the API server, for numbers that nobody reads. What cannot wait is written
whatever is left, and counts.
"""

from __future__ import annotations

from collections.abc import Callable

from speculative_operator.reconcile.status import FIGURES_SECONDS

PER_SECOND = 16.0
SAVED = 160.0
"""Writes that are granted, and that may be saved up, for objects of one namespace are looked at at the same moment: in
no minute more than 20 a second on average."""
USED = 0.8
"""Share of the grants that the interval of each object asks for. As it is below 1 no object starves: while one is due,
no other can write twice before its turn has come."""


class Budget:
    """`fleet` counts the objects; `clock` gives monotonic seconds."""

    def __init__(self, fleet: Callable[[], int], clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._left = SAVED
        self._at = clock()

    @property
    def interval(self) -> float:
        """Least seconds between two writes of one object's figures."""
        return max(FIGURES_SECONDS, self._fleet() / (USED * PER_SECOND))

    def take(self) -> bool:
        """Takes the grant for one write; False where none is left."""
        now = self._clock()
        self._left, self._at = min(self._left + (now - self._at) * PER_SECOND, SAVED), now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
