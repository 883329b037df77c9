"""The operator is killed at twenty random moments of a canary's analysis, its promotion or its return: before a look,
or before or after a write reaches the API server. Each new process knows what the API server and Prometheus know. It
ends as with an operator that lives on, and at no moment does the route lead to somebody who cannot answer."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from tests.unit.shell.fakeapi import FakeApi
from tests.unit.shell.scene import owner, pod, replica_set
from tests.unit.shell.test_canaries import parts
from tests.unit.shell.test_past import BEGIN, Server, addresses
from tests.unit.shell.test_reconciler import SETTINGS

from speculative_operator.domain.observation import Series
from speculative_operator.reconcile.tick import tick
from speculative_operator.render import Capabilities
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.jobs import Jobs
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.past import Past
from speculative_operator.shell.reconciler import Reconciler
from speculative_operator.shell.report import Budget, Reporter
from speculative_operator.shell.resources import CHILD_BY_KIND, OWNER, POD
from speculative_operator.shell.sources import Sources
from speculative_operator.shell.telemetry import Telemetry
from speculative_operator.shell.turns import Turns
from speculative_operator.shell.writes import Writer

STABLE, NEXT, ROUTE = ("ns", "stable"), "gemma", CHILD_BY_KIND["HTTPRoute"]
LOOK, KILLS, MOST_LOOKS = 10.0, 20, 200
"""Seconds between two looks, kills of one life, and looks until the end at most."""
ANALYSIS = {"steps": [5, 50], "stepSeconds": 60, "deadlineSeconds": 900, "ttftWorseByPercent": 200}
ENDS = ("Promoted", "TakenBack")
GOOD, SLOWER = 1.0, 0.9
"""Steps that the canary makes in the time of one of the first object's."""


class Paced(Server):
    """A Prometheus that knows one pod of each object; the canary's makes `pace` as many steps."""

    pace = GOOD

    def series(self, pod: str, start: float, end: float) -> Iterable[Series]:
        for one in super().series("stable-1", start, end):
            slower = pod != "stable-1" and one.name.endswith(("_total", "_count", "tokens_total_sum"))
            pace = self.pace if slower else 1.0
            yield Series(one.name, {**one.labels, "pod": pod}, tuple((at, pace * value) for at, value in one.samples))


class Life:
    """Two objects on an API server, and operators that follow each other, each killed at one of the moments `ends`."""

    def __init__(self, api: FakeApi, kube: Kube, pace: float) -> None:
        self.api, self.kube, self.moments, self.kills = api, kube, 0, 0
        self.ends: Collection[int] = ()
        self.now, self.metrics = BEGIN, Paced()
        self.metrics.pace = pace
        self.weights: list[int] = []
        self._task: asyncio.Task[Any] | None = None
        self._send = kube._send
        self.begin()

    def begin(self) -> None:
        """A new process: of the last one nothing is left."""
        telemetry, self.cache = Telemetry(), Cache()
        writer = Writer(self.kube, self.cache, telemetry, lambda: True, lambda: None)
        reporter = Reporter(self.kube, self.cache, telemetry, lambda: True)
        budget, turns = Budget(lambda: len(self.cache), lambda: self.now), Turns(1, lambda: self.now)
        self.past = Past(SETTINGS, self.metrics.fetch, addresses)
        jobs = Jobs(self.kube, lambda: self.now)
        sources = Sources(lambda _: None, lambda: Capabilities(http_route=True), jobs, turns, budget, self.past)
        self.reconciler = Reconciler(SETTINGS, self.cache, writer, reporter, telemetry, sources, tick)

    def dies(self) -> bool:
        """Whether the operator is killed at this moment."""
        self.moments += 1
        killed = self.moments in self.ends
        self.kills += int(killed)
        return killed

    async def send(self, call: Any) -> Any:
        """One request of the operator's."""
        task = self._task
        if call.body is None:
            return await self._send(call)
        if self.dies():
            await self.end(task)
        found = await self._send(call)
        if self.dies():
            await self.end(task)
        return found

    async def end(self, task: asyncio.Task[Any] | None) -> None:
        """The process that runs `task` is no more: nothing that it still does reaches anybody."""
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    async def look(self) -> None:
        """One look of the operator at the first object."""
        if self.dies():
            self.begin()
        for body in list(self.api.objects.values()):
            self.cache.put(body)
        self._task = asyncio.create_task(self.reconciler.reconcile(STABLE))
        try:
            await self._task
        except asyncio.CancelledError:
            self.begin()
        for step in self.past._steps.values():
            if step.task is not None:
                await step.task
        self.weigh()
        self.now += LOOK

    def weigh(self) -> None:
        """Remembers the canary's weight; the route leads to the two alone, both of which answer."""
        for body in self.api.find("HTTPRoute"):
            (rule,) = body["spec"]["rules"]
            shares = {one["name"]: one.get("weight", 1) for one in rule["backendRefs"]}
            assert set(shares) <= {STABLE[1], NEXT}
            assert sum(shares.values()) > 0
            self.weights.append(shares.get(NEXT, 0) if len(shares) > 1 else 0)

    @property
    def told(self) -> dict[str, Any]:
        (found,) = self.api.find(OWNER.kind, STABLE[1])
        known: dict[str, Any] = found.get("status", {}).get("canary", {})
        return known

    async def until_the_end(self) -> None:
        """Look until the analysis and the last kill are over, and three times more: the route has followed then."""
        for _ in range(MOST_LOOKS):
            await self.look()
            if self.told.get("phase") in ENDS and self.moments >= max(self.ends, default=0):
                break
        for _ in range(3):
            await self.look()


async def serve(life: Life) -> None:
    """Both objects are made, and their pods are ready."""
    found = parts()
    canary = await life.api.put(OWNER, found["owner"])
    found["service"]["metadata"]["ownerReferences"][0]["uid"] = canary["metadata"]["uid"]
    await life.api.put(CHILD_BY_KIND["Service"], found["service"])
    await life.api.put(POD, found["pod"])
    first = owner(name=STABLE[1])
    first["spec"] |= {"route": {"gateway": {"name": "public"}, "canary": {"name": NEXT, "analysis": ANALYSIS}}}
    first["spec"]["verifier"]["servedName"] = NEXT
    await life.api.put(OWNER, first)
    while not life.api.find("Deployment", STABLE[1]):
        await life.look()
    (deployment,) = life.api.find("Deployment", STABLE[1])
    status = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
    deployment["metadata"]["generation"] = 1
    await life.api.put(CHILD_BY_KIND["Deployment"], {**deployment, "status": status})
    one = pod(f"{STABLE[1]}-1")
    one["metadata"] |= {"labels": {**deployment["spec"]["template"]["metadata"]["labels"], "pod-template-hash": "5d"},
                        "ownerReferences": [replica_set(f"{STABLE[1]}-5d")]}  # fmt: skip
    await life.api.put(POD, one)


async def lived(api: FakeApi, kube: Kube, pace: float, ends: Collection[int] = ()) -> Life:
    """A whole analysis, which changes nothing but the status and the route."""
    api.objects.clear()
    with pytest.MonkeyPatch.context() as patch:
        life = Life(api, kube, pace)
        patch.setattr(kube, "_send", life.send)
        patch.setattr(time, "time", lambda: life.now)
        await serve(life)
        made, life.moments, life.ends = len(api.calls), 0, ends
        await life.until_the_end()
    assert {one.plural for one in api.calls[made:] if one.write} <= {OWNER.plural, ROUTE.plural, "configmaps", "events"}
    return life


@pytest.mark.parametrize(
    ("pace", "reason", "weights"), [(GOOD, "CanaryPromoted", [0, 5, 50, 100]), (SLOWER, "CanaryWorse", [0, 5, 0])]
)
async def test_the_end_is_the_same_though_the_operator_is_killed_twenty_times(
    api: FakeApi, kube: Kube, pace: float, reason: str, weights: list[int]
) -> None:
    api.resources = (*api.resources, ROUTE)
    calm = await lived(api, kube, pace)
    seed = random.randrange(1_000_000)
    ends = random.Random(seed).sample(range(1, calm.moments + 1), KILLS)
    killed = await lived(api, kube, pace, ends)
    print(f"seed {seed}: killed at {sorted(ends)} of {calm.moments} moments")
    for life in (calm, killed):
        print(f"{life.kills} kills, {life.now - BEGIN:.0f} s: {life.told}")
        assert life.told["reason"] == reason
        assert [weight for weight, _ in itertools.groupby(life.weights)] == weights
    assert killed.kills == KILLS
