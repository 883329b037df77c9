"""The harm: a busy fleet writes its figures to the API server, whole objects at a time, hundreds of times a second."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.shell.fakeapi import FakeApi
from tests.unit.shell.scene import KEY
from tests.unit.shell.test_reconciler import Rig

from speculative_operator.reconcile.snapshot.writing import FIGURES_SECONDS
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.report import Budget
from speculative_operator.shell.telemetry import Telemetry

TICK = 10
MOST_PER_SECOND = 20


def write_all_day(fleet: int, seconds: int, namespaces: int) -> tuple[Counter[int], list[list[int]]]:
    """Writes of figures by minute, and when each object was written: every figure moves with every look. Objects of one
    namespace are looked at at the same moment, all of them for the first time a moment after a restart."""
    now = 0.0
    budget = Budget(lambda: fleet, lambda: now)
    times: list[list[int]] = [[] for _ in range(fleet)]
    minutes: Counter[int] = Counter()
    last = [0.0] * fleet
    for second in range(seconds):
        now = float(second)
        for namespace in range(second % TICK, namespaces, TICK):
            for one in range(namespace, fleet, namespaces):
                if now - last[one] >= budget.interval and budget.take():
                    last[one] = now
                    times[one].append(second)
                    minutes[second // 60] += 1
    return minutes, times


@pytest.mark.parametrize(("fleet", "namespaces"), [(5000, 100), (5000, 1), (500, 1)])
def test_busy_objects_never_write_more_than_twenty_statuses_a_second(fleet: int, namespaces: int) -> None:
    minutes, times = write_all_day(fleet, 1200, namespaces)
    assert max(minutes.values()) <= 60 * MOST_PER_SECOND
    assert min(len(written) for written in times) >= 1, "and none of them starves"
    gaps = [after - before for written in times for before, after in pairwise(written)]
    interval = Budget(lambda: fleet, lambda: 0.0).interval
    assert max(gaps) <= 2 * interval + TICK


def test_one_object_alone_writes_its_figures_twice_a_minute_at_most() -> None:
    minutes, (times,) = write_all_day(1, 600, 1)
    assert max(minutes.values()) <= 60 / FIGURES_SECONDS
    assert len(times) >= 600 / FIGURES_SECONDS - 2


@pytest.fixture
def spent(api: FakeApi, kube: Kube, telemetry: Telemetry) -> Rig:
    """A reconciler with nothing left of the budget."""
    rig = Rig(api, kube, telemetry)
    while rig.budget.take():
        pass
    return rig


def told(tokens: str, active: str = "True") -> dict[str, Any]:
    condition = {"type": "SpeculationActive", "status": active, "reason": "Tuned", "message": "K"}
    return {"conditions": [condition], "speculation": {"tokensPerSecond": tokens, "tableVersion": 3}}


async def test_figures_are_never_written_beyond_the_budget(spent: Rig) -> None:
    await spent.begin(status=told("100"))
    spent.reconciler._state(KEY, spent.cache.owner(KEY) or {}, 0.0)
    spent.plan = lambda _: ((), told("200"), ())
    await spent.reconciler.reconcile(KEY)
    assert spent.api.writes() == []
    spent.at = 1.0
    await spent.reconciler.reconcile(KEY)
    assert spent.status == told("200"), "they are once there is a grant"


async def test_what_has_changed_is_never_held_back_for_the_budget(spent: Rig) -> None:
    await spent.begin(status=told("100"))
    changed = deepcopy(told("100", active="False"))
    spent.plan = lambda _: ((), changed, ())
    await spent.reconciler.reconcile(KEY)
    assert spent.status == changed
