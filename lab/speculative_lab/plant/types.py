"""The arrays of one replica, as the compiled loops take them. `layout` says where each figure lies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Machine(NamedTuple):
    """What does not change while the replica runs."""

    par: Floats
    k_quirk: Floats
    """Factor on the step by the longest draft that it verifies."""
    sizes: Ints
    """Captured sizes in tokens, ascending."""
    size_quirk: Floats
    """Factor on the linear layers by the place of their tokens between powers of two, eight a doubling."""
    spells: Floats
    """Factor on each step by time: a neighbour on the same machine."""
    quantiles: Floats


class State(NamedTuple):
    """What changes."""

    req: Floats
    running: Ints
    queue: Ints
    """Ring of rows that wait."""
    due: Floats
    """When each user of the closed loop comes back; infinite while one waits for an answer."""
    current: Ints
    """Row that each user asks next."""
    now: Floats
    counters: Floats
    cells: Floats
    positions: Floats
    """Drafts verified and accepted, by position."""
    minutes: Floats
    ended: Ints
    """Rows in the order in which they ended."""
    first: Ints
    """Rows in the order in which their first token came."""
    step: Floats
    """The step that ended last."""
    work: Floats
    """What the planned step has to do."""
