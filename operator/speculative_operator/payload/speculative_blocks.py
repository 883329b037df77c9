"""K of each step, and what is learned by trying: blocks of steps at another K, each beside blocks at the table's K.

Mounted beside `speculative_scheduler`, which asks `k_for` when a step is scheduled; `speculative_telemetry` hands every
finished step to `count` and exports `comparisons`. Standard library alone, no clock. Blocks that are neighbours meet
the same machine, requests, contexts and prompts per second, so that their difference is that of K alone, without a
model of the rest. docs/metrics.md, "Tried blocks", says exactly what is counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from math import inf, log, sqrt
from operator import add
from typing import Any

DWELL = 8
"""Steps in a row that must lie just outside a row of the table before the next row's K comes: what joins or ends for
some steps changes nothing. Eight steps at a neighbour's K cost less than a thousandth of what a request takes."""
MARGIN = 0.125
"""Further outside than this (and than one request) the row changes at once: it is about one band of the tuner's grid,
and a K is nearly as good one band away."""
RETURN = 64
"""Steps in a row that must lie outside the row while the speculator is left out: before it drafts again it must catch
up with every request, which at a threshold would cost more than drafts bring."""
FALL = 64.0
"""Blocks tried after which half of the share is left: by then K is known to about a hundredth."""
TOO_SLOW = 3.0
"""A tried block that takes this many times the block before it ends at once, and is compared as it is."""
BAD_BLOCK = -log(2.0)
"""One of the first blocks whose log speed differs by this strikes a K, where prompts cannot be why."""
BAD_MEAN, BAD_ERRORS, LEAST_BLOCKS = -0.10, 3.0, 5
"""From LEAST_BLOCKS blocks on, a mean that is below BAD_MEAN by BAD_ERRORS standard errors strikes a K instead."""
FORGIVEN, LONGEST_REST = 512, 4096
"""Blocks at the K in force after which a struck K may be tried again: texts change, and nothing else would tell. Each
strike doubles the rest, so that a K that stays bad costs less than a thousandth of its shortfall."""
LEAST_REQUESTS = 16
"""Request-steps of a block that strikes a K, unless it ended early: of fewer, half the tokens may be chance."""
MOST_COMPARISONS = 32
"""Label sets that are exported, 17 series each; the oldest makes room."""
MOST_LAG = 24
"""Steps in a row that do not belong to a block and do not end it: drafts made for the K before, a request's first step,
a load outside of the row for a moment. More of them, and blocks are no neighbours."""
MOST_BEHIND = 192
"""A speculator may catch up before a block for so many steps, or as long as so many of the block before took: enough
for 200 requests of 1,000 tokens. After that the trial counts as not made."""
ENDLESS = 1 << 31
"""Of the last row, which holds beyond its end."""
SPARE_SCHEDULES = 8
"""A tried block whose steps are not told of ends after two blocks' worth of schedules and these."""

Row = tuple[int, int, int]
"""First and last number of decoding requests, K."""
TryRow = tuple[int, int, Sequence[int], float]
"""First and last number of decoding requests, K to try, share of the steps."""
Totals = tuple[int, float, int, float, int, int, float]
"""Steps, seconds, scheduled requests, seconds x scheduled requests, tokens; steps without prompt tokens, and seconds of
these: prompts come in lumps, and would hide what a K costs."""
Key = tuple[int, int, int, int]
"""K tried, K in force, first and last number of decoding requests."""
Figures = tuple[int, Totals, Totals, float, float]
"""Blocks, tried, beside, sums of squared differences of log seconds of a step (see `_compare`) and of log(tokens /
requests)."""

_NOTHING: Totals = (0, 0.0, 0, 0.0, 0, 0, 0.0)


class _Record:
    """What became of one K in one cell under the table in force."""

    def __init__(self) -> None:
        self.steps = self.total = self.square = 0.0
        self.blocks = self.struck = 0
        """`struck`: blocks at the K in force until it may be tried again."""
        self._rest = FORGIVEN

    def rest(self) -> None:
        """A block at the K in force has passed."""
        self.struck = max(0, self.struck - 1)

    def judge(self, speed: float, fair: bool) -> None:
        """`speed` is the log of a block's over that of the blocks beside it; `fair` where one block may tell."""
        self.blocks += 1
        self.total += speed
        self.square += speed * speed
        mean = self.total / self.blocks
        if self.blocks < LEAST_BLOCKS:
            bad = fair and speed < BAD_BLOCK
        else:
            variance = max(0.0, self.square / self.blocks - mean * mean) / (self.blocks - 1)
            bad = mean + BAD_ERRORS * sqrt(variance) < BAD_MEAN
        if bad:  # afterwards it is judged anew
            self.struck, self._rest = self._rest, min(2 * self._rest, LONGEST_REST)
            self.blocks, self.total, self.square = 0, 0.0, 0.0


class _Cell:
    """Numbers of decoding requests that lie in one row of the table and in one row of what is tried."""

    def __init__(self, first: int, last: int, k: int, ks: Sequence[int], share: float) -> None:
        self.first, self.last, self.k = first, last, k
        self.records = {tried: _Record() for tried in ks if tried != k}
        self._share, self._turn, self._due = share, 0, 0.0
        """`_due`: steps that may be tried."""

    def holds(self, decoding: int) -> bool:
        """Whether so many decoding requests lie in it."""
        return self.first <= decoding <= self.last

    def spend(self, k: int, steps: float = 1.0) -> None:
        """A step at a tried K, or one that took as long as several."""
        self.records[k].steps += steps
        self._due -= steps

    def next_try(self, steps: int) -> int | None:
        """Called after each block of `steps` at the table's K: the K of the next block, where one is due."""
        for record in self.records.values():
            record.rest()
        ks = [k for k, record in self.records.items() if not record.struck]
        if not ks:
            return None
        k = ks[self._turn % len(ks)]
        share = self._share / (1.0 + self.records[k].steps / steps / FALL)
        self._due += steps * share / (1.0 - share)
        if self._due < steps:
            return None
        self._turn += 1
        return k


class _Run:
    """What is counted in one cell while nothing interrupts it."""

    def __init__(self, cell: _Cell, steps: int, compare: Callable[[_Cell, int, Totals, Totals], None]) -> None:
        self.cell, self._steps, self._compare = cell, steps, compare
        self.tried: int | None = None
        """K that is tried now."""
        self.left = 0
        """Schedules after which the tried block ends, whatever has been counted."""
        self.lag, self.behind = 0, 0.0
        """Steps in a row that did not belong; steps since the block before in which the speculator caught up, of which
        a long one counts as so many of that block."""
        self._tried_seconds = 0.0
        """Of the tried block, its first step too."""
        self._at_k = False
        """Whether the step before was at this block's K too."""
        self._block = _NOTHING
        self._before = _NOTHING
        """The block at the table's K that ended last."""
        self._waiting: tuple[int, Totals, Totals] | None = None
        """K of a tried block, the block before it and itself: the one after it is being counted."""

    def belongs(self, k: int) -> bool:
        """Whether a step that verified `k` may be counted. If not, its drafts were made before K changed."""
        if k == (self.cell.k if self.tried is None else self.tried):
            self.lag = 0
            return True
        if k == self.tried or (self._waiting is not None and k == self._waiting[0]):
            self.cell.spend(k)
        self.pause()
        return False

    def pause(self) -> None:
        """A step elsewhere."""
        self._at_k = False
        self.lag += 1

    def wait(self, seconds: float) -> None:
        """A step at this block's K in which the speculator caught up: not what K costs, nor what it brings."""
        steps = max(1.0, seconds * self._before[0] / (self._before[1] or inf))
        if self.tried is not None:
            self.cell.spend(self.tried, steps)
            self.left += 1
        self._at_k = True
        self.behind += steps

    def add(self, requests: int, seconds: float, tokens: int, prefill_tokens: int) -> None:
        """A step at this block's K."""
        too_slow = False
        if self.tried is not None:
            self.cell.spend(self.tried)
            self._tried_seconds += seconds
            too_slow = self._tried_seconds > TOO_SLOW * self._before[1]
        first, self._at_k = not self._at_k, True
        if first and not too_slow:
            return
        decodes = (0, 0.0) if prefill_tokens else (1, seconds)
        self._block = _sum(self._block, (1, seconds, requests, seconds * requests, tokens, *decodes))
        if too_slow or self._block[0] >= self._steps:
            self._end_block()

    def _end_block(self) -> None:
        block, self._block = self._block, _NOTHING
        self.behind = 0.0
        if self.tried is not None:
            self._waiting = (self.tried, self._before, block)
            self.tried, self._at_k = None, False
            return
        if self._waiting is not None:
            tried, before, middle = self._waiting
            self._waiting = None
            self._compare(self.cell, tried, middle, _sum(before, block))
        self._before = block
        self.tried = self.cell.next_try(self._steps)
        if self.tried is not None:
            self._at_k, self._tried_seconds, self.left = False, 0.0, 2 * self._steps + SPARE_SCHEDULES


class Blocks:
    """K by decoding requests, and comparisons of blocks. Every method is called by the engine's thread.

    `comparisons` alone is read by others: each of its values is replaced in one store.
    """

    def __init__(self) -> None:
        self.comparisons: dict[Key, Figures] = {}
        self.put_in_force([(1, 1, 0)], None, 0)

    def put_in_force(self, rows: Sequence[Row], tries: Sequence[TryRow] | None, steps: int) -> None:
        """A new table, checked, and how many steps a block has. What was tried under the table before, and struck, is
        forgotten; `comparisons` go on."""
        self.rows = rows
        self._rows = [*rows[:-1], (rows[-1][0], ENDLESS, rows[-1][2])]
        self._cells = [
            _Cell(max(low, first), min(high, last), k, ks, share)
            for low, high, ks, share in tries or ()
            for first, last, k in self._rows
            if max(low, first) <= min(high, last)
        ]
        self._steps = steps
        self._run: _Run | None = None
        self.idle()

    def idle(self) -> None:
        """The engine has nothing left to do: what comes next is no neighbour of what was, and takes its row at once."""
        self._low, self._high, self._outside = 1, 0, DWELL
        self.k_in_force = self._rows[0][2]
        """K of the table where no other is tried, at the load of the step for which `k_for` was asked last."""
        self.resting = False
        """Whether the speculator is left out, as the scheduler tells after each step."""

    def k_for(self, decoding: int) -> int:
        """K of the drafts that are made at the end of a step in which so many requests decode."""
        if decoding < 1:  # nobody gets drafts
            return self.k_in_force
        self._take_row(decoding)
        run = self._run
        if run is not None and run.tried is not None and run.cell.k == self.k_in_force and run.cell.holds(decoding):
            run.left -= 1
            if run.left > 0:
                return run.tried
            self._run = None
        return self.k_in_force

    def _take_row(self, decoding: int) -> None:
        """Into the row of so many requests: at once where they are far from the row so far, else after a while."""
        if self._low <= decoding <= self._high:
            self._outside = 0
            return
        self._outside += 1
        slack = max(1.0, MARGIN * decoding)
        if self.resting and self.k_in_force == 0:
            new = self._outside >= RETURN or 2 * decoding < self._low  # few are left to catch up with
        else:
            new = self._outside >= DWELL or not self._low - slack <= decoding <= self._high + slack
        if new:
            self._low, self._high, self.k_in_force = self._rows[bisect_right(self._rows, (decoding, 2 * ENDLESS)) - 1]
            self._outside = 0

    def count(
        self, k: int, decoding: int, requests: int, seconds: float, tokens: int, prefill: int, behind: bool = False
    ) -> None:
        """A finished step that emitted `tokens` and computed `prefill` tokens of prompts: K that was verified, and
        `decoding` as `k_for` was given it. `behind`: whether the speculator had missed tokens of its requests. At K = 0
        it need not know them."""
        run = self._run
        if run is None:
            cell = next((cell for cell in self._cells if cell.holds(decoding)), None)
            if cell is None:
                return
            run = self._run = _Run(cell, self._steps, self._compare)
        if not run.cell.holds(decoding):
            run.pause()
        elif run.belongs(k):
            if behind and k:
                run.wait(seconds)
            else:
                run.add(requests, seconds, tokens, prefill)
        if run.lag > MOST_LAG or run.behind > MOST_BEHIND:
            self._run = None

    def _compare(self, cell: _Cell, k: int, tried: Totals, beside: Totals) -> None:
        if min(tried[:5]) <= 0 or min(beside[:5]) <= 0:
            return  # a clock that stood still: nothing to take the logarithm of
        alone = tried[6] > 0 and beside[6] > 0
        steps, seconds = (5, 6) if alone else (0, 1)  # of those without prompts where both have some
        slower = log(tried[seconds] / tried[steps]) - log(beside[seconds] / beside[steps])
        richer = log(tried[4] / tried[2]) - log(beside[4] / beside[2])
        cell.records[k].judge(richer - slower, alone and (tried[2] >= LEAST_REQUESTS or tried[0] < self._steps))
        key = (k, cell.k, cell.first, cell.last)
        if key not in self.comparisons and len(self.comparisons) >= MOST_COMPARISONS:
            del self.comparisons[next(iter(self.comparisons))]
        blocks, all_tried, all_beside, *squares = self.comparisons.get(key, (0, _NOTHING, _NOTHING, 0.0, 0.0))
        sums = _sum(all_tried, tried), _sum(all_beside, beside)
        self.comparisons[key] = (blocks + 1, *sums, squares[0] + slower * slower, squares[1] + richer * richer)


def decoding(plan: Any, requests: Mapping[str, Any]) -> int:
    """Requests of vLLM's scheduler output that leave the step with a token of their own: K is looked up by them.

    Those whose scheduled tokens complete the known ones: the last piece of a prompt counts, one in its middle does not.
    """
    scheduled, drafts = plan.num_scheduled_tokens, plan.scheduled_spec_decode_tokens
    # no Python code for each request where all have drafts, or one token and its drafts
    most, total = len(scheduled), plan.total_num_scheduled_tokens
    if len(drafts) == most or total == most + sum(map(len, drafts.values())):
        return most
    known = ((requests[name], tokens) for name, tokens in scheduled.items())
    return sum(one.num_computed_tokens + more >= one.num_tokens + one.num_output_placeholders for one, more in known)


def _sum(one: Totals, other: Totals) -> Totals:
    return tuple(map(add, one, other))
