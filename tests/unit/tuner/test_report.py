"""Figures of a decision."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.tuner.plant import Plant, policy

from speculative_operator.domain.table import KTable
from speculative_operator.tuner.outlook import outlook
from speculative_operator.tuner.report import estimate
from speculative_operator.tuner.traffic import pool


def test_the_gain_is_that_of_the_k_that_the_table_has_for_the_scheduled_requests() -> None:
    """Where prompts run more requests are scheduled than decode, and another row of the table may hold."""
    table = KTable.from_rows([(1, 20, 3), (21, 256, 0)])
    look = pool([Plant().window(KTable.constant(3, 256), 18.0, 100.0)])
    look = replace(look, mean_k=None)  # nothing measured of either K
    view = outlook(policy())
    drafting = estimate(view, replace(look, scheduled=19.0), table)
    none = estimate(view, replace(look, scheduled=25.0), table)
    assert (drafting.k, none.k) == (3.0, 0.0)
    assert drafting.gain_percent is not None
    assert none.gain_percent is not None
    assert drafting.gain_percent.mid > 5.0
    assert none.gain_percent.mid < 0.0
