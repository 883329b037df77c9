"""An object at rest is not reconciled again, until anything that its reconcile is given is another."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.shell.fakeapi import FakeApi
from tests.unit.shell.scene import KEY, applying, manifest, owner, pod
from tests.unit.shell.test_reconciler import Rig

from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.reconcile.world import Event, Outcome, World
from speculative_operator.render import Capabilities
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.podseries import Answer
from speculative_operator.shell.resources import CHILD_BY_KIND, JOB, OWNER, POD
from speculative_operator.shell.rest import LONGEST, Rest
from speculative_operator.shell.rounds import Round
from speculative_operator.shell.telemetry import Telemetry
from speculative_operator.tuner import Memory

BLIND = Gap(Reason.METRICS_MISSING, "none")


class Quiet(Rig):
    """A reconciler whose ticks say for how long they stand."""

    stands_for = 1000.0

    def tick(self, world: World, memory: Memory | None, observation: Observation | None, now: float) -> Outcome:
        return replace(super().tick(world, memory, observation, now), stands_for=self.stands_for)

    async def looks(self, times: int = 4) -> int:
        """Number of ticks in some reconciles."""
        before = len(self.seen)
        for _ in range(times):
            if self.reconciler.rests(KEY) is None:
                await self.reconciler.reconcile(KEY)
        return len(self.seen) - before

    async def rest(self) -> dict[str, Any]:
        """Comes to rest; returns the stored object."""
        stored = await self.begin()
        self.cache.put(await self.api.put(POD, pod()))
        await self.looks()
        assert await self.looks() == 0
        return stored


@pytest.fixture
def rig(api: FakeApi, kube: Kube, telemetry: Telemetry) -> Quiet:
    return Quiet(api, kube, telemetry)


async def test_two_quiet_reconciles_are_enough(rig: Quiet) -> None:
    await rig.begin()
    await rig.looks(1)  # writes the status
    assert await rig.looks(5) == 2
    assert len(rig.api.writes()) == 1


async def test_every_news_ends_it(rig: Quiet) -> None:
    of = await rig.rest()
    rig.cache.put(await rig.api.put(POD, pod(ready=False)))
    assert await rig.looks() == 2
    rig.cache.put(await rig.api.put(POD, pod("gemma-2")))
    assert await rig.looks() == 2
    rig.cache.put(await rig.api.put(CHILD_BY_KIND["Service"], manifest(of)))
    assert await rig.looks() == 2
    rig.cache.remove(rig.api.find("Pod", "gemma-2")[0])
    assert await rig.looks() == 2
    rig.cache.put(await rig.api.put(OWNER, {**owner(generation=2), "status": rig.status}))
    assert await rig.looks() >= 2
    rig.cache.put(await rig.api.put(POD, pod()))
    rig.round = Round(time.time(), BLIND)
    assert await rig.looks() == 2
    rig.reconciler._sources = replace(rig.reconciler._sources, capabilities=lambda: Capabilities(pod_monitor=True))
    assert await rig.looks() == 2
    assert await rig.looks() == 0


async def test_rounds_of_the_same_gap_are_counted_and_nothing_more(rig: Quiet) -> None:
    await rig.rest()
    for number in range(6):
        rig.round = Round(1000.0 + number, BLIND)
        assert await rig.looks(2) == (2 if number == 0 else 0)
    counted = [line for line in rig.telemetry.render().decode().splitlines() if "MetricsMissing" in line]
    assert any(line.endswith(" 6.0") for line in counted), counted


async def test_new_figures_are_looked_at(rig: Quiet) -> None:
    await rig.rest()
    for number in range(3):
        rig.round = Round(time.time() + number, Answer({}))
        assert await rig.looks(1) == 1


@pytest.mark.parametrize("why", ["action", "event", "job", "soon over", "a clock set back"])
async def test_no_rest_while_anything_is_under_way(rig: Quiet, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = await rig.begin()
    await rig.looks(1)
    if why == "action":
        rig.plan = lambda world: ((applying(of),), {"observedGeneration": 1}, ())
    elif why == "event":
        rig.plan = lambda world: ((), {"observedGeneration": 1}, (Event("Normal", Reason.CREATED, "told"),))
    elif why == "job":
        rig.cache.put(await rig.api.put(JOB, manifest(of, "Job")))
    elif why == "soon over":
        rig.stands_for = 0.0
    else:
        await rig.looks()
        past = time.time() - 3.0
        monkeypatch.setattr(time, "time", lambda: past)
        assert await rig.looks(1) == 1
        return
    assert await rig.looks() == 4


MEASURES = {"verifier": {"model": "hf://Qwen/Qwen3-8B"}, "speculator": {"auto": True, "measure": {}}}


async def test_an_object_that_measures_rests_while_there_is_no_candidate(rig: Quiet) -> None:
    await rig.begin(spec=MEASURES)
    await rig.looks(1)
    assert await rig.looks(5) == 2
    assert len(rig.api.writes()) == 1


async def test_no_rest_while_a_candidate_is_asked_for(rig: Quiet) -> None:
    told = {"observedGeneration": 1, "measured": {"candidate": {"phase": "Starting"}}}
    await rig.begin(spec=MEASURES, status=told)
    rig.plan = lambda world: ((), told, ())
    await rig.looks(1)
    assert await rig.looks() == 4


def test_it_never_lasts_longer_than_is_told_or_than_some_minutes() -> None:
    first = Rest().after(("a",), 1e9, 100.0, 10.0)
    assert not first.holds(("a",), 100.0)
    second = first.after(("a",), 1e9, 110.0, 10.0)
    assert second.holds(("a",), 110.0 + LONGEST - 1.0)
    assert not second.holds(("a",), 110.0 + LONGEST)
    assert not second.holds(("b",), 111.0)
    assert not second.holds(None, 111.0)
    assert not first.after(("a",), 5.0, 110.0, 10.0).holds(("a",), 115.0)
