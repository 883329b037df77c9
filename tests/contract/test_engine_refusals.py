"""Combinations that no engine supports, applied to a real API server, and refused by the first tick."""

from __future__ import annotations

import pytest
from tests.contract.refused_engines import COMBINATIONS, WITHOUT, Combination
from tests.contract.server import Server
from tests.unit.engines.test_refused_combinations import hold, said_by_tick, said_of_drafts

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("case", COMBINATIONS, ids=lambda case: case.name)
def test_refused_before_a_pod_exists(server: Server, case: Combination) -> None:
    taken = server.create(case.body())
    if case.by == WITHOUT:
        hold(case, *said_of_drafts(taken))
        return
    reason, (message,) = said_by_tick(taken)
    hold(case, reason, message)
