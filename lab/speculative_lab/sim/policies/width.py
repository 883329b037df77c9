"""A one-off search of the draft width per batch size, as EAGLE-4's harness does it. Written from its description.

For each batch key the width climbs through the candidates by tokens per wall time of whole served rounds, prefill
included: two widths alternate in blocks of 8 rounds until each has 32. Dropped are the first round after a switch,
bursts (more than an eighth of the batch new) and stalls (over 10 times the median). A width never exceeds the one that
a smaller key chose. No speculation is measured last and speculation must beat it by two standard errors; ties are
measured again, twice; it is skipped where speculation is 1.5 times its estimate. Then the key is frozen for good.

Unverified and chosen here: batch keys are the powers of two, and the estimate of no speculation is one token per mean
round at the narrowest width. Named in `registry`, run by `base.InEngine`.
"""

from __future__ import annotations

from bisect import bisect_left
from statistics import fmean, median, stdev

from speculative_lab.sim.policies.base import Step

KEYS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
BLOCK = 8
PERIODS = 32
BURST_SHARE = 0.125
STALL = 10.0
SKIP = 1.5
REPEATS = 2


class Rounds:
    """Rounds of one width: seconds and tokens of each."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.tokens: list[float] = []

    def speed(self) -> float:
        """Tokens per second without stalls."""
        kept = self._kept()
        return sum(tokens for _, tokens in kept) / sum(seconds for seconds, _ in kept)

    def error(self) -> float:
        """Standard error of the rate of single rounds."""
        rates = [tokens / seconds for seconds, tokens in self._kept()]
        return stdev(rates) / len(rates) ** 0.5 if len(rates) > 1 else 0.0

    def _kept(self) -> list[tuple[float, float]]:
        limit = STALL * median(self.seconds)
        return [row for row in zip(self.seconds, self.tokens, strict=True) if row[0] <= limit]


class Search:
    """The search of one key. `width` is what runs now; `done` freezes it."""

    def __init__(self, ks: tuple[int, ...]) -> None:
        self.widths = tuple(k for k in ks if k > 0)
        self.native = 0 in ks
        self.best = 0
        self.done = not self.widths
        self._repeats = 0
        self._trial, self._rounds = (0, 0), (Rounds(), Rounds())
        self._side, self._skip = 0, True
        if self.widths:
            self._begin(self.widths[0], self.widths[1] if len(self.widths) > 1 else 0)

    @property
    def width(self) -> int:
        return self.best if self.done else self._trial[self._side]

    def limit(self, widest: int) -> None:
        """Drops widths above `widest`, which a smaller key settled on."""
        if not self.done and widest < self.widths[-1]:
            self.widths = tuple(k for k in self.widths if k <= widest)
            if not self.widths:
                self.done, self.best = True, 0
            elif max(self._trial) > widest:
                self._begin(self.widths[0], self.widths[1] if len(self.widths) > 1 else 0)

    def observe(self, step: Step) -> bool:
        """Takes in one round of this key; True when the width changed."""
        if self.done or step.k != self.width:
            return False
        before = self.width
        if self._skip:
            self._skip = False
        elif (step.scheduled - step.batch) <= BURST_SHARE * step.batch:
            rounds = self._rounds[self._side]
            rounds.seconds.append(step.seconds)
            rounds.tokens.append(step.emitted / step.batch)
            self._advance()
        return self.width != before

    def _begin(self, first: int, second: int) -> None:
        self._trial = (first, second)
        self._rounds = (Rounds(), Rounds())
        self._side = 0
        self._skip = True

    def _advance(self) -> None:
        counts = [len(rounds.seconds) for rounds in self._rounds]
        if min(counts) >= PERIODS:
            self._judge()
        elif counts[self._side] % BLOCK == 0 or counts[self._side] >= PERIODS:
            other = 1 - self._side
            if counts[other] < PERIODS:
                self._side, self._skip = other, True

    def _judge(self) -> None:
        first, second = self._trial
        if second == 0:
            self._judge_native(first)
            return
        if self._rounds[1].speed() <= self._rounds[0].speed():
            self._settle(first, self._rounds[0])
            return
        place = self.widths.index(second) + 1
        if place == len(self.widths):
            self._settle(second, self._rounds[1])
        else:
            self._begin(second, self.widths[place])

    def _settle(self, width: int, rounds: Rounds) -> None:
        """`width` won the climb; what is left is no speculation."""
        self.best = width
        period = fmean(self._rounds[0].seconds)
        if not self.native or rounds.speed() > SKIP / period:
            self.done = True
        else:
            self._begin(width, 0)

    def _judge_native(self, width: int) -> None:
        speculative, native = self._rounds
        lead = speculative.speed() - native.speed()
        error = 2.0 * (speculative.error() ** 2 + native.error() ** 2) ** 0.5
        if abs(lead) <= error and self._repeats < REPEATS:
            self._repeats += 1
            self._begin(width, 0)
        else:
            self.best, self.done = (width if lead > error else 0), True


class WidthSearch:
    """One search for each batch key; keys not yet reached take the widest width that a smaller one allows."""

    def __init__(self, ks: tuple[int, ...]) -> None:
        self.changed = True
        self.searches = [Search(ks) for _ in KEYS]

    def observe(self, step: Step) -> None:
        if step.batch <= 0:
            return
        at = self._key(step.batch)
        settled = [search.best for search in self.searches[:at] if search.done]
        self.searches[at].limit(min(settled, default=10**6))
        if self.searches[at].observe(step):
            self.changed = True

    def choose(self, batch: int) -> int:
        return self.searches[self._key(batch)].width

    def _key(self, batch: int) -> int:
        return min(bisect_left(KEYS, batch), len(KEYS) - 1)
