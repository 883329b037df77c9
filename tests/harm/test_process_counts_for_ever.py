"""A pause that doubles with each failure was reckoned without an end: after a thousand failures of one kind or child
the reckoning itself failed, for every kind of the process and for all that the object needs."""

from __future__ import annotations

import pytest

from speculative_operator.shell.ledger import Ledger

SLOT = ("Service", "gemma")


@pytest.mark.parametrize("times", [5, 1_100, 10**6])
def test_a_child_that_is_changed_back_for_ever_never_fails_the_visit(times: int) -> None:
    ledger = Ledger()
    ledger.applied[SLOT] = ("digest", times, 0.0)
    assert not ledger.may_apply(SLOT, "digest", 1, now=1.0)
    assert ledger.may_apply(SLOT, "digest", 1, now=301.0)
    assert ledger.may_apply(SLOT, "another", 1, now=1.0)
