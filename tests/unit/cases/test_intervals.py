"""The interval of `plan` against pods that were measured beside pods without a speculator."""

from __future__ import annotations

import io
from collections import defaultdict
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from statistics import mean

from figures import intervals

PAGE = Path(__file__).parents[3] / "docs" / "tuning-mathematics.md"
WIDEST = {"H200 draft model": 1.9, "llm-d EAGLE-3": 0.7, "SpecForge MoE": 0.75, "vLLM K = 0": 0.6}
"""Log of the upper end over the lower one: an interval that holds everything says nothing."""


@cache
def judged() -> dict[str, list[intervals.Judged]]:
    found: dict[str, list[intervals.Judged]] = defaultdict(list)
    for one in intervals.plain_pods():
        found[one.case].append(one)
    return found


def test_three_of_four_measured_cases_lie_inside_at_every_load() -> None:
    assert set(judged()) == set(WIDEST)
    held = [case for case, rows in judged().items() if all(one.inside for one in rows)]
    assert len(held) >= 3, held


def test_no_interval_is_wide_enough_to_hold_everything() -> None:
    for case, rows in judged().items():
        assert max(one.width for one in rows) <= WIDEST[case], case


def test_the_losses_are_losses_or_gains_too_small_to_promise() -> None:
    """Where pods with drafts were slower, `plan` promises no gain: its interval reaches below 0."""
    losses = [one for rows in judged().values() for one in rows if one.measured < 0.0]
    assert len(losses) == 9
    assert all(one.interval.low < 0.0 for one in losses)


def test_four_of_five_published_speedups_lie_inside() -> None:
    sources: dict[str, list[bool]] = defaultdict(list)
    rows = intervals.published()
    for one, span in rows:
        sources[one.case.source].append(intervals.holds(one, span))
    assert len(rows) == 192
    assert sum(map(sum, sources.values())) / len(rows) >= 0.84
    assert 0.75 <= mean(map(mean, sources.values())) <= 0.95


def test_the_page_tells_the_share_that_the_command_prints() -> None:
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert intervals.main() == 0
    _, share = printed.getvalue().strip().split("\n\n")
    assert share.split(";")[0] in " ".join(PAGE.read_text(encoding="utf-8").split())
