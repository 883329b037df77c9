"""How much faster a table serves than pods without a speculator would, at the batch sizes that occur.

Called by report, and so behind every figure of a gain, and by decide() and rollout for pods that lose or regain their
speculator. Where pods skip the speculator, K = 0 in a block of steps is a pod without a speculator to about one per
cent: blocks at the active K beside such blocks measure the gain. Elsewhere nobody measures those pods, and the gain is
what the model believes of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speculative_operator.domain.decision import Basis, Interval
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.grid import nearest
from speculative_operator.tuner.outlook import MEASURED_BLOCKS, QUANTILE, Outlook, incumbent_of
from speculative_operator.tuner.prior import Array

UNSEEN, UNSEEN_PROMPTS = 0.03, 0.1
"""Log standard deviations of what blocks cannot show of pods without a speculator: other graphs and more memory, and
for the part of the time that prompts take, what the speculator's own pass over them costs. Record 15 says in how many
random worlds the 80 % interval then holds the truth."""
UNMODELLED = 0.2
"""Log standard deviation of what the model leaves out, chosen by random worlds (record 15)."""
MOSTLY = 0.5
"""Share of the time at batch sizes that comparisons have shown, from which a gain is measured."""
LEAST_SHARE = 0.01
"""Loads with a smaller share of the last hour do not count in `removal_gain`."""
MOST = 20.0


@dataclass(frozen=True, slots=True)
class Gain:
    """Log speed over pods without a speculator, with its 80 % interval."""

    low: float
    mid: float
    high: float
    basis: Basis

    def at(self, deviations: float) -> float:
        """The gain at so many standard deviations from its middle, below it where negative."""
        side = self.high - self.mid if deviations > 0 else self.mid - self.low
        return self.mid + deviations / QUANTILE * side

    @property
    def percent(self) -> Interval:
        """The gain in per cent."""
        return Interval(*(100.0 * math.expm1(min(max(one, -MOST), MOST)) for one in (self.low, self.mid, self.high)))


def gain_of(view: Outlook, table: KTable, mix: Sequence[tuple[float, float]]) -> Gain | None:
    """The gain of `table` where requests spend shares of their time at batch sizes, (scheduled requests, share); None
    where nothing was served, or the table has a K that the tuner does not choose from."""
    time: dict[tuple[int, int], float] = {}
    for load, share in mix:
        key = nearest(load, view.policy.knobs.max_batch), table.k_at(load)
        time[key] = time.get(key, 0.0) + share
    if not time or not {k for _, k in time} <= set(view.ks):
        return None
    rows, columns = (np.array(some) for some in zip(*((row, view.ks.index(k)) for row, k in time), strict=True))
    shares = np.array(list(time.values()))
    measured = shares @ [_is_measured(view, float(view.points[row]), k) for row, k in time]
    if measured < MOSTLY:
        return _estimated(view, rows, columns, shares)
    mid, deviation = (part[rows] for part in _measured(view, incumbent_of(view, table)))
    wide = QUANTILE * math.hypot(float(shares @ deviation), UNSEEN, UNSEEN_PROMPTS * view.traffic.shares.filled)
    return _gain(float(shares @ mid), wide, wide, Basis.MEASURED)


def removal_gain(view: Outlook) -> Gain | None:
    """The gain of pods without a speculator over the best K at each load of the last hour, the memory included that the
    speculator would free; None where no load is remembered, or K = 0 is forbidden.

    Only the speculator's pass parts such pods from K = 0, whatever else the model gets wrong. Where K are compared, the
    comparisons tell how far the best K is ahead of K = 0.
    """
    time = np.array(view.traffic.history)
    if len(time) != len(view.points) or time.sum() <= 0 or view.ks[0] != 0:
        return None
    share = time / time.sum()
    rows = np.flatnonzero(share > LEAST_SHARE)
    weight, none = share[rows] / share[rows].sum(), np.zeros(len(share), dtype=np.int64)
    mid = view.traffic.pressed * _room(view, view.points[rows], weight)
    if not view.compares:
        best = np.argmax(view.speed, axis=1)[rows]
        drafting = _estimated(view, rows, best, weight, UNMODELLED * float(weight @ (best > 0)))
        return Gain(mid - drafting.high, mid - drafting.mid, mid - drafting.low, Basis.ESTIMATED)
    off, found = _estimated(view, rows, none[rows], weight, 0.0), view.against(none)
    best = np.argmax(found.mean, axis=1)[rows]
    wide = QUANTILE * float(weight @ found.deviation[rows, best])
    mid -= off.mid + float(weight @ found.mean[rows, best])
    return _gain(mid, math.hypot(off.high - off.mid, wide), math.hypot(off.mid - off.low, wide), Basis.ESTIMATED)


def _room(view: Outlook, points: Array, weight: Array) -> float:
    """Log tokens per second that the speculator's memory would bring as KV memory, where requests wait for it.

    With a pool larger by a factor r the batch grows by r; throughput b / T(b) grows with it.
    """
    facts = view.policy.facts
    held, whole = facts.kv_capacity_tokens, facts.kv_capacity_tokens_without_speculator
    if not held or not whole or whole <= held:
        return 0.0
    larger = np.minimum(points * (whole / held), float(view.policy.knobs.max_batch))
    served = view.off_speed + np.log(view.points)
    gained = np.interp(np.log(larger), np.log(view.points), served)
    gained -= np.interp(np.log(points), np.log(view.points), served)
    return float(weight @ np.maximum(gained, 0.0))


def _estimated(
    view: Outlook, rows: NDArray[np.int64], columns: NDArray[np.int64], shares: Array, doubt: float = UNMODELLED
) -> Gain:
    """The mean gain at grid points `rows` with K `columns`, by the model, whose own error is `doubt`."""
    # beyond captured graphs too, where `Outlook.speed` only says that nobody should go
    mid = np.log(view.lengths())[columns] - view.log_seconds[rows, columns] - view.off_speed[rows]
    spans = np.array([view.span_from_off(row, column) for row, column in zip(rows, columns, strict=True)])
    below, above = np.hypot(shares @ spans, QUANTILE * doubt).tolist()
    return _gain(float(shares @ mid), below, above, Basis.ESTIMATED)


def _gain(mid: float, below: float, above: float, basis: Basis) -> Gain:
    return Gain(mid - below, mid, mid + above, basis)


def _is_measured(view: Outlook, load: float, k: int) -> bool:
    """True where pods themselves leave the speculator out, or enough blocks near `load` have compared K = 0."""
    if k == 0:
        return view.policy.skips
    return view.baseline and view.blocks_without(load) >= MEASURED_BLOCKS


def _measured(view: Outlook, incumbent: NDArray[np.int64]) -> tuple[Array, Array]:
    """Log speed of the active K over K = 0 by comparisons at each grid point, and its standard deviation.

    Pods without a speculator compute as many prompts for each token of an answer. So their time for a token is, of the
    present time: the time of steps without prompts in the ratio of the blocks, and the prompts' own, less what the
    speculator adds to them.
    """
    found, shares = view.against(incumbent), view.traffic.shares
    prompting = shares.prompting / max(1.0 - shares.queued, shares.prompting, 1e-9)
    lighter = view.prompts_without[np.arange(len(view.points)), incumbent]
    decoding = (1.0 - prompting) * (1.0 - shares.filled) * np.exp(found.longer[:, 0] - found.richer[:, 0])
    filling = (1.0 - prompting) * shares.filled * lighter
    first = prompting * shares.lighter * np.exp(found.longer[:, 0])
    whole = decoding + filling + first + prompting * (1.0 - shares.lighter) * lighter
    spread = ((decoding + first) ** 2 * found.seconds[:, 0] + decoding**2 * found.tokens[:, 0]) ** 0.5
    return np.log(whole), spread / whole
