"""Blocks of steps at a tried K beside blocks at the table's K: what is counted, what is dropped, when trying ends."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speculative_operator.payload import speculative_blocks as module
from speculative_operator.payload.speculative_blocks import DWELL, RETURN, Blocks

ROWS = [(1, 4, 3), (5, 16, 2)]
ALWAYS = 0.4
"""The largest share: two of five blocks."""
STEPS = 4

Seconds = Callable[[int, int], float]


class Engine:
    """Steps of an engine whose drafts are verified one step after they were asked for.

    `lag` steps are scheduled before the outputs of one arrive, as asynchronous scheduling does.
    """

    def __init__(self, blocks: Blocks, lag: int = 0, seconds: Seconds = lambda k, _: 0.01 * (1 + k)) -> None:
        self.blocks, self.seconds = blocks, seconds
        self.lag = lag
        self.asked: list[int] = []
        self.verified: list[int] = []
        self._next = 0
        self._under_way: deque[tuple[int, int, int, float]] = deque()

    def run(self, loads: Iterable[int], prompts: int = 0, extra: float = 0.0) -> Engine:
        """`extra` seconds a step for its prompts."""
        for decoding in loads:
            verified, self._next = self._next, self.blocks.k_for(decoding)
            self.asked.append(self._next)
            self._under_way.append((verified, decoding, prompts, extra))
            if len(self._under_way) > self.lag:
                self._finish()
        return self

    def _finish(self) -> None:
        k, decoding, prompts, extra = self._under_way.popleft()
        self.verified.append(k)
        seconds = self.seconds(k, len(self.verified)) + extra
        self.blocks.count(k, decoding, decoding + 1, seconds, decoding * (1 + k), prompts)


def made(ks: list[int] | None = None, share: float = ALWAYS, first: int = 1, last: int = 4) -> Blocks:
    blocks = Blocks()
    blocks.put_in_force(ROWS, [(first, last, ks or [5], share)], STEPS)
    return blocks


def test_without_tries_k_is_the_tables() -> None:
    blocks = Blocks()
    blocks.put_in_force(ROWS, None, 0)
    assert [blocks.k_for(2), blocks.k_for(30)] == [3, 2]
    Engine(blocks).run([3] * 100)
    assert blocks.comparisons == {}


def test_one_comparison_by_its_values() -> None:
    """Blocks of 4 steps at 2 decoding requests, 3 scheduled: A A B A, the first of each run left out."""
    blocks = made()
    engine = Engine(blocks)
    while not blocks.comparisons:
        engine.run([2], prompts=7)
    # the engine's first step verifies nothing, the next is the first at K 3; two blocks until one is due (0.4 / 0.6)
    assert engine.verified == [0] + [3] * 9 + [3] + [5] * 5 + [5] + [3] * 5
    tried = (4, pytest.approx(0.24), 12, pytest.approx(0.72), 48, 0, 0.0)
    beside = (8, pytest.approx(0.32), 24, pytest.approx(0.96), 64, 0, 0.0)
    slower, richer = math.log(0.06 / 0.04), math.log((48 / 12) / (64 / 24))
    expected: Any = {(5, 3, 1, 4): (1, tried, beside, pytest.approx(slower**2), pytest.approx(richer**2))}
    assert blocks.comparisons == expected


def test_steps_without_prompts_tell_what_a_k_costs() -> None:
    """Lumps of prompts in the tried block and none beside it: the steps without them are compared."""
    blocks = made()
    engine = Engine(blocks)
    while not blocks.comparisons:
        tried = blocks._run is not None and blocks._run.tried is not None
        lump = int(tried and len(engine.verified) % 2)
        engine.run([2], prompts=lump, extra=0.05 * lump)
    ((_, sums, beside, square, _),) = blocks.comparisons.values()
    assert (sums[0], sums[5]) == (4, 2)
    assert [sums[1], sums[6]] == pytest.approx([0.34, 0.12])
    assert beside[5:] == pytest.approx((8, 0.32))
    assert square == pytest.approx(math.log(0.06 / 0.04) ** 2)


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_blocks_hold_no_step_of_another_k(lag: int) -> None:
    blocks = made()
    engine = Engine(blocks, lag).run([2] * 4000)
    (count, tried, beside, *_) = blocks.comparisons[5, 3, 1, 4]
    assert tried[0] == 4 * count
    assert beside[0] == 8 * count
    assert engine.asked.count(5) > 4 * count
    assert tried[1] / tried[0] == pytest.approx(0.06)
    assert beside[1] / beside[0] == pytest.approx(0.04)
    assert tried[4] / tried[2] == pytest.approx(2 * 6 / 3)


def test_tried_blocks_share_the_block_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FALL", 1e9)
    blocks = Blocks()
    blocks.put_in_force(ROWS, [(1, 4, [5], ALWAYS)], 16)
    engine = Engine(blocks).run([2] * 4000)
    assert engine.verified.count(3) < 2 * 16 * blocks.comparisons[5, 3, 1, 4][0]


def test_a_step_that_is_the_first_after_a_change_is_left_out() -> None:
    """Here it takes twice as long: that is in none of the sums."""
    engine = Engine(made())
    engine.seconds = lambda k, n: 0.08 if n > 1 and engine.verified[n - 2] != k else 0.04
    engine.run([2] * 200)
    ((count, tried, beside, *_),) = engine.blocks.comparisons.values()
    assert count > 3
    assert tried[1] == pytest.approx(0.16 * count)
    assert beside[1] == pytest.approx(0.32 * count)


@pytest.mark.parametrize("elsewhere", [1, 5, 9])
def test_a_block_that_leaves_its_row_is_dropped_and_k_is_the_tables_at_once(elsewhere: int) -> None:
    blocks = made(first=2)
    engine = Engine(blocks)
    while engine.asked[-1:] != [5]:
        engine.run([3])
    engine.run([3] * 3)
    assert blocks.k_for(elsewhere) in (3, 2)
    engine.run([elsewhere] * 2 + [3] * (STEPS + 1))
    assert engine.asked[-1] != 5, "a new block at the table's K comes first"
    assert blocks.comparisons == {}


def finish(blocks: Blocks) -> None:
    for _ in range(STEPS - 1):
        assert not blocks.comparisons
        blocks.count(3, 3, 3, 0.04, 12, 0)


@pytest.mark.parametrize("lag", [module.MOST_LAG, module.MOST_LAG + 1])
def test_blocks_with_too_many_steps_between_them_are_no_neighbours(lag: int) -> None:
    blocks = made()
    while blocks.k_for(3) != 5:
        blocks.count(3, 3, 3, 0.04, 12, 0)
    while blocks.k_for(3) == 5:
        blocks.count(5, 3, 3, 0.06, 18, 0)
    for _ in range(lag):
        blocks.count(5, 3, 3, 0.06, 18, 0)
    for _ in range(2):
        blocks.count(3, 3, 3, 0.04, 12, 0)
    finish(blocks)
    assert bool(blocks.comparisons) is (lag == module.MOST_LAG)


def test_a_new_table_drops_the_block() -> None:
    blocks = made()
    engine = Engine(blocks)
    while engine.asked[-1:] != [5]:
        engine.run([3])
    blocks.put_in_force(ROWS, [(1, 4, [5], ALWAYS)], STEPS)
    engine.run([3] * (STEPS + 1))
    assert engine.asked[-STEPS:] == [3] * STEPS
    assert blocks.comparisons == {}


def test_short_answers_with_pauses_between_them_are_compared_too() -> None:
    """Of a load whose answers end before a block does nothing would ever be known."""
    blocks = made()
    engine = Engine(blocks)
    for _ in range(60):
        engine.run([3] * (STEPS // 2 + 1))
        blocks.idle()
    assert blocks.comparisons


def test_a_row_of_tries_over_two_rows_of_the_table_is_two() -> None:
    blocks = Blocks()
    blocks.put_in_force(ROWS, [(3, 40, [3, 5], ALWAYS)], STEPS)
    Engine(blocks).run([4] * 200 + [5] * 200 + [30] * 200)
    assert set(blocks.comparisons) == {(5, 3, 3, 4), (3, 2, 5, 40), (5, 2, 5, 40)}, "the last row holds beyond its end"


def test_several_k_take_turns() -> None:
    blocks = made([5, 4, 1], share=0.1)
    Engine(blocks).run([2] * 3000)
    counts = [blocks.comparisons[k, 3, 1, 4][0] for k in (5, 4, 1)]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("share", [0.02, 0.1, 0.4])
def test_the_share_is_kept_at_first_and_falls(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FALL", 1e9)
    even = Engine(made(share=share)).run([2] * 20_000).verified.count(5) / 20_000
    assert even == pytest.approx(share, rel=0.15)
    monkeypatch.undo()
    engine = Engine(made(share=share)).run([2] * 400_000)
    assert engine.verified[-100_000:].count(5) / 100_000 < 0.03 + 0.25 * (share - 0.05)


def after_one_tried_block(blocks: Blocks, slow: float, prompts: int = 0) -> Engine:
    """An engine whose first tried block took `slow` seconds a step instead of 0.06; all later ones are even."""
    engine = Engine(blocks)
    while engine.asked[-1:] != [5]:
        engine.run([4])
    engine.run([4])
    engine.seconds = lambda *_: slow
    while engine.asked[-1] == 5:
        engine.run([4], prompts)
    engine.seconds = lambda k, _: 0.01 * (1 + k)
    return engine.run([4] * 500)


def test_one_block_twice_as_slow_per_token_strikes_a_k() -> None:
    """K 5 gives 1.5 times the tokens of K 3."""
    assert after_one_tried_block(made(), slow=0.04 * 1.5 * 2.1).blocks.comparisons[5, 3, 1, 4][0] == 1
    assert after_one_tried_block(made(), slow=0.04 * 1.5 * 1.9).blocks.comparisons[5, 3, 1, 4][0] > 9


def test_other_k_are_tried_where_one_is_struck() -> None:
    engine = after_one_tried_block(made([5, 2]), slow=0.5)
    assert engine.blocks.comparisons[5, 3, 1, 4][0] == 1
    assert engine.blocks.comparisons[2, 3, 1, 4][0] > 9


def test_a_lump_of_prompts_strikes_nothing() -> None:
    assert after_one_tried_block(made(), slow=0.5, prompts=900).blocks.comparisons[5, 3, 1, 4][0] > 9


def test_a_struck_k_is_tried_again_under_a_new_table() -> None:
    engine = after_one_tried_block(made(), slow=0.5)
    engine.blocks.put_in_force(ROWS, [(1, 4, [5], ALWAYS)], STEPS)
    assert engine.run([4] * 500).blocks.comparisons[5, 3, 1, 4][0] > 9


@pytest.mark.parametrize(("slower", "blocks"), [(1.2, 5), (1.04, None)])
def test_a_k_that_is_clearly_worse_is_struck_and_one_that_is_a_little_worse_is_not(
    slower: float, blocks: int | None
) -> None:
    engine = Engine(made(), seconds=lambda k, n: 0.04 * (1.5 * slower if k == 5 else 1.0) * (1 + 0.01 * (n % 3)))
    engine.run([4] * 2000)
    count = engine.blocks.comparisons[5, 3, 1, 4][0]
    assert count == blocks if blocks else count > 50


@pytest.mark.parametrize("lag", [0, 1])
def test_a_tried_block_that_takes_far_too_long_ends_early_and_is_compared(lag: int) -> None:
    engine = Engine(made(), lag, seconds=lambda k, _: 0.5 if k == 5 else 0.04).run([4] * 300)
    count, tried, *_ = engine.blocks.comparisons[5, 3, 1, 4]
    assert (count, tried[0]) == (1, 1)
    assert engine.verified.count(5) <= 2 + lag, "its first step alone took three times the block before"


def test_steps_that_are_never_counted_end_a_tried_block() -> None:
    blocks = made()
    engine = Engine(blocks)
    while engine.asked[-1:] != [5]:
        engine.run([4])
    asked = [blocks.k_for(4) for _ in range(100)]
    assert 5 in asked
    assert asked[2 * STEPS + module.SPARE_SCHEDULES :] == [3] * (100 - 2 * STEPS - module.SPARE_SCHEDULES)


def test_a_clock_that_stands_still_compares_nothing() -> None:
    assert Engine(made(), seconds=lambda *_: 0.0).run([4] * 100).blocks.comparisons == {}


def test_label_sets_are_bounded() -> None:
    blocks = Blocks()
    engine = Engine(blocks)
    for last in range(1, 4 * module.MOST_COMPARISONS):
        blocks.put_in_force([(1, 1 << 20, 3)], [(1, last, [5], ALWAYS)], STEPS)
        engine.run([1] * 30)
    assert len(blocks.comparisons) == module.MOST_COMPARISONS
    assert (5, 3, 1, last) in blocks.comparisons


def rows_of(loads: list[int]) -> list[int]:
    blocks = Blocks()
    blocks.put_in_force([(1, 4, 1), (5, 16, 2), (17, 64, 3)], None, 0)
    return [blocks.k_for(load) for load in loads]


def test_a_row_just_left_stays_for_some_steps() -> None:
    assert rows_of([4] * 9 + [5] * DWELL) == [1] * (9 + DWELL - 1) + [2]
    assert rows_of([4, 5, 4, 5, 5, 4] * 20) == [1] * 120
    assert rows_of([16] + [18] * 3 + [15] + [18] * 3) == [2] * 8


def test_a_row_left_by_far_changes_at_once() -> None:
    assert rows_of([4, 6, 4, 2, 16, 19, 40, 14, 1]) == [1, 2, 2, 1, 2, 3, 3, 2, 1]


def test_after_idleness_the_row_is_the_loads_at_once() -> None:
    blocks = Blocks()
    blocks.put_in_force(ROWS, None, 0)
    assert blocks.k_for(4) == 3
    blocks.idle()
    assert blocks.k_for(5) == 2


def test_a_step_in_which_nobody_decodes_changes_no_row() -> None:
    assert rows_of([6, 0, 6, 0, 0]) == [2] * 5


loads = st.lists(st.tuples(st.integers(0, 24), st.integers(1, 60)), max_size=12)
tries = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, 9), st.lists(st.integers(0, 6), min_size=1), st.floats(0.01, 0.4)),
    max_size=4,
)


@settings(deadline=None)
@given(loads, tries, st.integers(4, 9), st.integers(0, 2), st.integers(0, 2**32))
def test_whatever_comes_sums_are_those_of_whole_blocks(
    loads: list[tuple[int, int]], gaps: list[tuple[int, int, list[int], float]], steps: int, lag: int, seed: int
) -> None:
    """Tried K are those that may be tried there, and every sum is what its number of steps makes it."""
    rows, given, end = [(1, 4, 3), (5, 7, 0), (8, 16, 2)], [], 0
    for gap, width, ks, share in gaps:
        given.append((end + gap, end + gap + width, ks, share))
        end += gap + width
    blocks = Blocks()
    blocks.put_in_force(rows, given, steps)
    engine = Engine(blocks, lag, seconds=lambda k, n: 0.01 * (1 + k) * (1 + (seed >> n % 32) % 2))
    for load, length in loads:
        for _ in range(length):
            engine.run([load])
            asked = engine.asked[-1]
            may = {k for first, last, ks, _ in given if first <= load <= last for k in ks}
            assert asked in {0, 2, 3} | may
    for (k, against, first, last), (count, tried, beside, *squares) in blocks.comparisons.items():
        assert k != against
        assert any(low <= first <= last <= high for low, high, *_ in given)
        assert (against, True) in {(row[2], row[0] <= first and (last <= row[1] or row[2] == 2)) for row in rows}
        assert tried[0] == count * steps or k > against, "only a K that is far slower ends early"
        assert beside[0] == 2 * count * steps
        assert min(squares) >= 0
        for side, own in ((tried, k), (beside, against)):
            number, seconds, requests, request_seconds, tokens, *_ = side
            assert number * (first + 1) <= requests <= number * (last + 1)
            assert tokens == (requests - number) * (1 + own)
            assert 0.01 * (1 + own) * number * 0.999 <= seconds <= 0.02 * (1 + own) * number * 1.001
            assert seconds * (first + 1) * 0.999 <= request_seconds <= seconds * (last + 1) * 1.001
    assert sum(figures[1][0] for figures in blocks.comparisons.values()) <= len(engine.verified)


class TestADrafterThatRests:
    """It must catch up with every request before it drafts again: what hovers at a threshold must not wake it."""

    @staticmethod
    def resting() -> Blocks:
        blocks = Blocks()
        blocks.put_in_force([(1, 50, 1), (51, 256, 0)], None, STEPS)
        assert blocks.k_for(80) == 0
        blocks.resting = True
        return blocks

    def test_a_load_that_hovers_at_the_threshold_does_not_wake_it(self) -> None:
        blocks = self.resting()
        assert {blocks.k_for(load) for load in [45] * 40 + [60] + [45] * 40 + [52] + [30] * 40} == {0}

    def test_a_load_that_stays_below_does(self) -> None:
        blocks = self.resting()
        assert [blocks.k_for(45) for _ in range(RETURN)] == [0] * (RETURN - 1) + [1]

    def test_few_requests_wake_it_at_once(self) -> None:
        assert self.resting().k_for(20) == 1

    def test_an_idle_engine_and_another_table_do(self) -> None:
        blocks = self.resting()
        blocks.idle()
        assert blocks.k_for(45) == 1
        blocks = self.resting()
        blocks.put_in_force([(1, 90, 2), (91, 256, 0)], None, STEPS)
        assert blocks.k_for(80) == 2

    def test_one_that_has_missed_nothing_follows_the_table_as_ever(self) -> None:
        blocks = self.resting()
        blocks.resting = False
        assert blocks.k_for(40) == 1


class TestADrafterThatCatchesUp:
    """Steps in which it computes what it missed while it rested tell nothing of K."""

    ROWS = ((1, 16, 0),)
    SLOW = 7.0
    """Seconds of such a step, beside 0.01 to 0.04 of others: one of them in a block would show."""

    def run(self, blocks: Blocks, behind: Sequence[int], steps: int, lag: int = 0, slow: float = SLOW) -> list[int]:
        """K asked for in each of `steps` steps; the drafter catches up for `behind[i]` steps of trial i."""
        asked: list[int] = []
        pending: deque[tuple[int, float, bool]] = deque()
        trials, left, verified = 0, 0, 0
        for _ in range(steps):
            k = blocks.k_for(4)
            if k and not (asked and asked[-1]):
                left, trials = behind[trials % len(behind)], trials + 1
            late = k > 0 and left > 0
            left -= late
            pending.append((verified, slow if late else 0.01 + 0.005 * verified, late))
            verified = k
            asked.append(k)
            if len(pending) > lag:
                ended, seconds, late = pending.popleft()
                blocks.count(ended, 4, 4, seconds, 4 * (1 + ended), 0, late)
        return asked

    def trying(self, steps: int = STEPS, share: float = 0.4) -> Blocks:
        blocks = Blocks()
        blocks.put_in_force(self.ROWS, [(1, 16, [3], share)], steps)
        return blocks

    @settings(deadline=None)
    @given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(4, 9), st.integers(0, 2))
    def test_blocks_hold_none_of_them_and_every_trial_ends(self, behind: list[int], steps: int, lag: int) -> None:
        blocks = self.trying(steps)
        asked = self.run(blocks, behind, 1500, lag, slow=0.03)
        ((_, (count, tried, beside, *_)),) = blocks.comparisons.items()
        assert (tried[0], beside[0]) == (count * steps, 2 * count * steps)
        assert tried[1] == pytest.approx(0.025 * tried[0])
        assert beside[1] == pytest.approx(0.01 * beside[0])
        longest = max(len(run) for run in "".join(map(str, asked)).split("0"))
        assert longest <= 2 * steps + module.SPARE_SCHEDULES + module.MOST_BEHIND
        assert sum(k > 0 for k in asked) <= 0.4 * len(asked) + longest

    @pytest.mark.parametrize(("slow", "most"), [(0.001, module.MOST_BEHIND), (0.1, 21), (SLOW, 3), (0.0, 192)])
    def test_who_never_catches_up_is_not_waited_for_and_nothing_is_learnt(self, slow: float, most: int) -> None:
        """Ten times as long a step is waited for a tenth as often; a clock that stands still ends it too."""
        blocks = self.trying()
        asked = self.run(blocks, [10_000], 3000, slow=slow)
        trials = [len(run) for run in "".join(map(str, asked)).split("0") if run]
        assert 1 <= len(trials) < 120
        assert max(trials) <= most + 2
        assert blocks.comparisons == {}
        assert not any(record.struck for cell in blocks._cells for record in cell.records.values())

    def test_at_k_0_nothing_is_waited_for(self) -> None:
        """There requests have always missed something."""
        blocks = self.trying()
        for _ in range(STEPS + 1):
            blocks.k_for(4)
            blocks.count(0, 4, 4, 0.01, 4, 0, True)
        assert blocks._run is not None
        assert blocks._run._before[0] == STEPS

    def test_after_a_tried_k_0_the_block_beside_it_waits_too(self) -> None:
        blocks = Blocks()
        blocks.put_in_force(((1, 16, 3),), [(1, 16, [0], 0.4)], STEPS)
        verified, late = 3, 0
        for _ in range(400):
            k = blocks.k_for(4)
            late = 5 if k == 0 else late - 1
            behind = k > 0 and late > 0
            blocks.count(verified, 4, 4, 0.3 if behind and verified else 0.01 * (1 + verified), 4, 0, behind)
            verified = k
        ((_, (count, _, beside, *_)),) = blocks.comparisons.items()
        assert count > 10
        assert beside[1] == pytest.approx(0.04 * beside[0])
