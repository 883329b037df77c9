"""Comparisons of blocks as sums that are taken from each other and weighed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from speculative_operator.domain.observation import BlockTotals, Comparison


def _totals_less(after: BlockTotals, before: BlockTotals) -> BlockTotals:
    return BlockTotals(*(getattr(after, f.name) - getattr(before, f.name) for f in fields(BlockTotals)))


def less(after: Comparison, before: Comparison | None) -> Comparison:
    """What was added since `before`."""
    if before is None:
        return after
    return replace(
        after,
        blocks=after.blocks - before.blocks,
        trial=_totals_less(after.trial, before.trial),
        beside=_totals_less(after.beside, before.beside),
        seconds_square=max(after.seconds_square - before.seconds_square, 0.0),
        tokens_square=max(after.tokens_square - before.tokens_square, 0.0),
    )


def lost_request_seconds(comparisons: Iterable[Comparison]) -> float:
    """Request-seconds that tried blocks took beyond what the K in force would have taken for their tokens."""
    lost = 0.0
    for item in comparisons:
        if item.beside.tokens > 0:
            lost += item.trial.request_seconds - item.trial.tokens * item.beside.request_seconds / item.beside.tokens
    return lost
