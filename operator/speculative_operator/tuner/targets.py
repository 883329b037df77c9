"""Judges latency targets by measured P99, and limits K where a target is missed.

Called by decide(). The fastest K is active while targets are met or cannot be judged. Where one is missed, the largest
K allowed at the loads served is lowered step by step, and every step is judged by measurements after it. A step that
brought nothing, or costs more than it may, is taken back: the target is out of reach, and the fastest K serves again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.observation import Histogram, PodWindow
from speculative_operator.domain.spec import Goal, Mode, Objective
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.tuner.grid import choices, nearest
from speculative_operator.tuner.outlook import INFEASIBLE, Outlook
from speculative_operator.tuner.prior import Array
from speculative_operator.tuner.tail import Bounds, add, fall, p99, requests, slow

NAMES = ("tpotP99", "ttftP99")
FADE_SECONDS = 180.0
"""Time constant by which the histograms fade."""
SETTLE_REQUESTS = 2.0
LONGEST_SETTLE = 600.0
"""After a change of K histograms begin when so many times the mean answer is over, and after so long at most: requests
that end before have run under both K."""
JUDGE_SECONDS = 180.0
JUDGE_REQUESTS = 400.0
"""A step is judged after so long at the latest, or after so many requests where these say enough."""
FALLEN = 1.645
"""Standard deviations by which the share of slow requests must fall after a step."""
COST_SECONDS = 18.0
COST_FADE_SECONDS = 3600.0
"""Seconds of serving that steps may have cost before the target counts as out of reach, and the time in which that is
forgotten: half a per cent of an hour."""
MORE_LOST = 0.02
"""Log speed by which a step may cost more than predicted."""
RETRY_SECONDS = 3600.0
"""Least time to the next attempt at a target out of reach, or to a larger K where a target is met."""
OTHER_LOAD = 1.5
"""Loads further apart than this factor are different: what was out of reach at one may be met at the other."""
REACH = 2.0
"""A limit holds from the load served divided by this."""
QUEUE_SHARE = 0.1
"""A queue waits from one request and this share of those running: there, throughput decides how long it waits."""


@dataclass(frozen=True, slots=True)
class Step:
    """A limit that was lowered and is being judged."""

    target: int
    """Index in NAMES."""
    late: float
    requests: float
    """Requests slower than the target before the step (`late`), of all `requests`."""
    loss: float
    """Predicted log speed that the step costs against the fastest K."""


@dataclass(frozen=True, slots=True)
class OutOfReach:
    """A failed attempt to meet a target: which one, when, and at which load."""

    target: int
    at: float
    load: float
    best: Bounds
    k: int
    """The K with which the best P99 (`best`) was measured."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Memory of the latency targets `asked` (seconds; None: not set)."""

    asked: tuple[float | None, float | None] = (None, None)
    histograms: tuple[Histogram, Histogram] = ((), ())
    """Faded histograms of TPOT and TTFT since the last change of K at the loads served."""
    ks: tuple[int, ...] = ()
    """K at each grid point while the histograms were counted."""
    since: float = 0.0
    """Time from which requests count in the histograms."""
    updated_at: float = 0.0
    load: float = 0.0
    """Scheduled requests per step and replica, faded mean."""
    queue: float = 0.0
    """Waiting requests over the number from which they count as a queue, faded mean: a queue from 1 on."""
    limit: KTable | None = None
    """Largest K allowed at each load; None: any."""
    limited_at: float = 0.0
    limited_load: float = 0.0
    step: Step | None = None
    best: tuple[Bounds, int] = (Bounds(), 0)
    """Best P99 of the attempt under way, and the K with which it was measured."""
    spent: float = 0.0
    """Seconds of serving that attempts have cost, faded."""
    failed: OutOfReach | None = None

    @property
    def tails(self) -> tuple[Bounds, ...]:
        """P99 of TPOT and of TTFT."""
        return tuple(p99(histogram) for histogram in self.histograms)

    def is_kept_by(self, table: KTable) -> bool:
        """True where `table` keeps to the limit at the load served."""
        return not self.forbids(table.k_at(self.load), self.load)

    def forbids(self, k: int, load: float) -> bool:
        """True where the limit is below `k` at `load`."""
        return self.limit is not None and k > self.limit.k_at(load)

    @property
    def missed_index(self) -> int | None:
        """Index in NAMES of the first target that is surely missed; None when none is."""
        pairs = zip(self.asked, self.tails, strict=True)
        return next((i for i, (asked, tail) in enumerate(pairs) if asked is not None and tail.low >= asked), None)


def watch(
    old: Targets, windows: Sequence[tuple[PodWindow, float]], table: KTable, policy: Policy, now: float
) -> Targets:
    """`old` after (window, new share of it) of each pod; `table` was active meanwhile."""
    asked = active_targets(policy.objective)
    if asked == (None, None):
        return Targets()
    new = old if old.asked == asked else Targets(asked=asked, spent=old.spent)
    busy = [window for window, _ in windows if window.decode_request_steps > 0 and window.steps > 0]
    if not busy:
        return new
    elapsed = max(now - new.updated_at, 0.0)
    keep = math.exp(-elapsed / FADE_SECONDS)
    load = sum(window.load for window in busy) / len(busy)
    queue = sum(window.waiting / (1.0 + QUEUE_SHARE * window.running) for window in busy) / len(busy)
    new = replace(new, updated_at=now, spent=new.spent * math.exp(-elapsed / COST_FADE_SECONDS))
    new = replace(new, load=load + keep * (new.load - load), queue=queue + keep * (new.queue - queue))
    if new.step is not None and new.is_kept_by(table):
        new = replace(new, spent=new.spent + elapsed * max(new.step.loss, 0.0))
    ks = choices(table, policy.knobs.max_batch)
    if _differs(ks, new.ks, new.load, policy) or new.since > now + LONGEST_SETTLE:
        return replace(new, histograms=((), ()), ks=ks, since=now + _settle_seconds(busy))
    counted = [(window, share) for window, share in windows if window.start >= new.since]
    tpot = add(new.histograms[0], [(window.tpot_histogram, share) for window, share in counted], keep)
    ttft = add(new.histograms[1], [(window.ttft_histogram, share) for window, share in counted], keep)
    return replace(new, histograms=(tpot, ttft), ks=ks)


def active_targets(objective: Objective) -> tuple[float | None, float | None]:
    """The (TPOT, TTFT) targets that count, in seconds; none where the goal is Throughput."""
    if objective.goal is Goal.THROUGHPUT:
        return None, None
    return objective.tpot_p99_seconds, objective.ttft_p99_seconds


def judge(targets: Targets, view: Outlook, speed: Array, table: KTable, now: float) -> Targets:
    """`targets` with the limit that follows from measurements under `table`; `speed`: log speed of every K over the
    active K, [point, K]."""
    live = view.policy.mode is Mode.AUTO and view.policy.knobs.actuator is Actuator.LIVE
    if targets.asked == (None, None) or not live:
        return replace(targets, limit=None, step=None)
    if targets.queue >= 1.0 and targets.limit is not None:
        return _give_up(targets, targets.step.target if targets.step is not None else 0, now)
    if targets.step is not None:
        return _judge_step(targets, targets.step, view, speed, table, now)
    if targets.missed_index is not None:
        may = targets.queue < 1.0 and not _is_barred(targets, now) and _is_enough(targets, targets.missed_index, now)
        return _lower(targets, targets.missed_index, view, speed, table, now) if may else _refine(targets, table, now)
    return _raise(targets, view, table, now) if _may_rise(targets, now) else targets


def limits(view: Outlook, targets: Targets) -> Array:
    """True where a K may be chosen at a grid point, [point, K]; the smallest K always may."""
    if targets.limit is None:
        return np.ones((len(view.points), len(view.ks)), dtype=bool)
    most = np.array(choices(targets.limit, view.policy.knobs.max_batch))
    return np.asarray((view.columns[None, :] <= most[:, None]) | (view.columns[None, :] == view.ks[0]))


def targets_text(targets: Targets) -> str:
    """The target that no K meets, is missed or cannot be judged, as the end of a sentence; empty where none is so."""
    failed = targets.failed
    if failed is not None:
        asked = targets.asked[failed.target] or 0.0
        best = f"best P99 measured is {failed.best}, with K {failed.k}"
        return f"; no K meets {NAMES[failed.target]} {1e3 * asked:g} ms: {best}"
    if targets.missed_index is not None:
        i = targets.missed_index
        return f"; {NAMES[i]} {1e3 * (targets.asked[i] or 0.0):g} ms is missed: P99 is {targets.tails[i]}"
    blind = [NAMES[i] for i in range(2) if targets.asked[i] is not None and not targets.histograms[i]]
    waited = targets.updated_at - targets.since >= JUDGE_SECONDS
    return f"; {' and '.join(blind)} not judged: the engine shows no histogram" if blind and waited else ""


def _judge_step(targets: Targets, step: Step, view: Outlook, speed: Array, table: KTable, now: float) -> Targets:
    """`targets` with the limit lowered further, given up, settled, or unchanged, by what `step` brought."""
    if not targets.is_kept_by(table):
        return targets
    at = nearest(targets.load, view.policy.knobs.max_batch)
    histogram, asked = targets.histograms[step.target], targets.asked[step.target] or 0.0
    fallen = fall((step.late, step.requests), (slow(histogram, asked), requests(histogram)))
    enough, over = _is_enough(targets, step.target, now), now - targets.since >= JUDGE_SECONDS
    if targets.spent > COST_SECONDS or float(speed[at].max()) > step.loss + MORE_LOST:
        return _give_up(targets, step.target, now)
    if fallen > FALLEN and targets.tails[step.target].low >= asked:
        best = targets.tails[step.target], table.k_at(targets.load)
        return _lower(replace(targets, best=best), step.target, view, speed, table, now)
    if fallen > FALLEN and targets.missed_index is None and enough:
        return replace(targets, step=None, failed=None)
    return _give_up(targets, step.target, now) if over or (enough and fallen <= 0) else targets


def _lower(targets: Targets, target: int, view: Outlook, speed: Array, table: KTable, now: float) -> Targets:
    """`targets` with the limit lowered to the fastest K below the active one; given up where no K is below it."""
    at, k = nearest(targets.load, view.policy.knobs.max_batch), table.k_at(targets.load)
    lower = [c for c, one in enumerate(view.ks) if one < k and speed[at, c] > INFEASIBLE / 2]
    histogram = targets.histograms[target]
    step = Step(target, slow(histogram, targets.asked[target] or 0.0), requests(histogram), 0.0)
    if targets.step is None:
        targets = replace(targets, best=(targets.tails[target], k))
    if not lower:
        return _give_up(targets, target, now)
    column = max(lower, key=lambda c: float(speed[at, c]))
    first, most = math.ceil(targets.load / REACH), view.policy.knobs.max_batch
    dense = (targets.limit or KTable.constant(view.ks[-1], most)).resize(most).dense()
    limit = KTable.from_dense([min(k, view.ks[column]) if b >= first else k for b, k in enumerate(dense, start=1)])
    step = replace(step, loss=float(speed[at].max() - speed[at, column]))
    return replace(targets, limit=limit, limited_at=now, limited_load=targets.load, step=step)


def _raise(targets: Targets, view: Outlook, table: KTable, now: float) -> Targets:
    """`targets` with the limit one K higher at the loads served, or without a limit where it would limit nothing."""
    most = view.policy.knobs.max_batch
    limit = (targets.limit or table).resize(most)
    allowed = limit.k_at(targets.load)
    above = min((k for k in view.ks if k > allowed), default=view.ks[-1])
    last = math.ceil(targets.load * REACH)
    dense = [max(k, above) if b <= last else k for b, k in enumerate(limit.dense(), start=1)]
    limited = any(k < view.ks[-1] for k in dense)
    return replace(
        targets, limit=KTable.from_dense(dense) if limited else None, limited_at=now, limited_load=targets.load
    )


def _give_up(targets: Targets, target: int, now: float) -> Targets:
    """`targets` without a limit, and with the failed attempt at `target`."""
    best, k = targets.best
    return replace(targets, limit=None, step=None, failed=OutOfReach(target, now, targets.load, best, k))


def _refine(targets: Targets, table: KTable, now: float) -> Targets:
    """`targets` with a newer interval of the best P99, where its K is active and enough requests were counted."""
    failed = targets.failed
    if failed is None or table.k_at(targets.load) != failed.k or not _is_enough(targets, failed.target, now):
        return targets
    return replace(targets, failed=replace(failed, best=targets.tails[failed.target]))


def _is_enough(targets: Targets, target: int, now: float) -> bool:
    """True where enough requests, or enough time, passed since the last change of K to judge."""
    return requests(targets.histograms[target]) >= JUDGE_REQUESTS or now - targets.since >= JUDGE_SECONDS


def _is_barred(targets: Targets, now: float) -> bool:
    """True where the last attempt failed recently at about this load, or recent attempts have cost too much."""
    failed = targets.failed
    if failed is None:
        return targets.spent > COST_SECONDS
    same = max(targets.load, failed.load) <= OTHER_LOAD * max(min(targets.load, failed.load), 1.0)
    return targets.spent > COST_SECONDS / 2.0 or (same and 0.0 <= now - failed.at < RETRY_SECONDS)


def _may_rise(targets: Targets, now: float) -> bool:
    """True where a larger K may be tried: the limit has stood for long, or the load has fallen."""
    if targets.limit is None or now - targets.since < JUDGE_SECONDS:
        return False
    return now - targets.limited_at > RETRY_SECONDS or targets.load * OTHER_LOAD < targets.limited_load


def _differs(one: tuple[int, ...], other: tuple[int, ...], load: float, policy: Policy) -> bool:
    """True where two choices of K per grid point differ near `load`."""
    if len(one) != len(other):
        return True
    most = policy.knobs.max_batch
    near = slice(nearest(load / OTHER_LOAD, most), nearest(load * OTHER_LOAD, most) + 1)
    return one[near] != other[near]


def _settle_seconds(windows: list[PodWindow]) -> float:
    """Seconds after a change of K in which requests from before it still end, by their mean time of decoding."""
    begun = sum(window.first_tokens for window in windows)
    decoding = sum(window.step_seconds for window in windows) / begun if begun > 0 else 0.0
    return min(SETTLE_REQUESTS * decoding, LONGEST_SETTLE)
