"""What a canary and its object did is read piece by piece, and after a restart again: it is the same."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from tests.unit.shell.scene import owner
from tests.unit.shell.test_reconciler import COUNTERS, GAUGES, SETTINGS

from speculative_operator.api.convert import to_domain
from speculative_operator.domain.observation import Gap, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.reconcile.world import Evidence
from speculative_operator.shell.bodies import Key
from speculative_operator.shell.past import LONGEST_SECONDS, PATIENCE_SECONDS, Past
from speculative_operator.shell.podseries import Addresses, Answer

BEGIN = 1_800_000_004.0
SCRAPE = 5.0
KNOWN = "the first step", BEGIN


def spec_of(name: str) -> DeploymentSpec:
    body = copy.deepcopy(owner(name=name))
    body["metadata"]["uid"] = name
    return to_domain(body)


STABLE, NEXT = spec_of("stable"), spec_of("next")


@dataclass
class Server:
    """A Prometheus with one pod of each object; the canary's is half as fast."""

    out: bool = False
    asked: list[tuple[float, float]] = field(default_factory=list)
    """Ends and lengths of the questions."""
    restarted: float = 0.0
    """Unix time from which the canary's counters count anew."""

    def fetch(self, namespace: str, pods: Addresses, now: float, most: int, seconds: float) -> Answer | Gap:
        self.asked.append((now, seconds))
        if self.out:
            return Gap(Reason.PROMETHEUS_ERROR, "prometheus is unreachable")
        return Answer({pod: tuple(self.series(pod, now - seconds, now)) for pod in pods})

    def series(self, pod: str, start: float, end: float) -> Iterable[Series]:
        times = [at for n in range(int(start / SCRAPE), int(end / SCRAPE) + 1) if start < (at := n * SCRAPE) <= end]
        labels = {"pod": pod, "namespace": "ns", "engine": "0", "model_name": "gemma"}
        pace = 0.5 if pod == "next-1" else 1.0

        def value(each: float, at: float) -> float:
            origin = self.restarted if pod == "next-1" and at >= self.restarted > 0 else 1_700_000_000.0
            return pace * each * (at - origin) / 10.0

        for name, each in COUNTERS.items():
            yield Series(name, labels, tuple((at, value(each, at)) for at in times))
        for name, still in GAUGES.items():
            yield Series(name, labels, tuple((at, still) for at in times))


def addresses(keys: Iterable[Key]) -> Mapping[str, tuple[str, ...]]:
    return {f"{name}-1": ("10.0.0.1",) for _, name in keys}


async def look(past: Past, now: float, known: tuple[str, float] | None = KNOWN) -> Evidence | None:
    """What is known at `now`, once the reading that it began has ended."""
    past.look(STABLE, NEXT, known, now)
    step = past._steps.get(("ns", "stable"))
    if step is not None and step.task is not None:
        await step.task
    return past.look(STABLE, NEXT, known, now)


def fresh(server: Server) -> Past:
    return Past(SETTINGS, server.fetch, addresses)


async def test_a_restart_reads_the_same_again() -> None:
    server = Server()
    past, end = fresh(server), BEGIN + 1500.0
    seen = None
    for n in range(1, 101):
        seen = await look(past, BEGIN + 15.0 * n)
    assert seen is not None
    assert len(seen.stable.samples) == len(seen.canary.samples) == 100
    assert sum(one.tokens for one in seen.canary.samples) == pytest.approx(
        sum(one.tokens for one in seen.stable.samples) / 2.0
    )
    assert seen.canary.gained == pytest.approx(396.0 / 390.0)
    assert max(seconds for _, seconds in server.asked) < 140.0
    again = await look(fresh(server), end)
    assert again is not None
    assert again.stable.samples == seen.stable.samples
    assert again.canary.drafts == pytest.approx(seen.canary.drafts)


async def test_an_outage_leaves_a_hole_that_is_read_later() -> None:
    server = Server(out=True)
    past = fresh(server)
    assert await look(past, BEGIN + 31.0) is None, "nothing is judged before the step was read"
    seen = await look(past, BEGIN + 31.0 + PATIENCE_SECONDS)
    assert seen is not None
    assert (seen.gap, seen.stable.samples) == ("prometheus is unreachable", ())
    server.out = False
    seen = await look(past, BEGIN + 62.0 + PATIENCE_SECONDS)
    assert seen is not None
    assert seen.gap == ""
    assert seen.stable.samples[0].start < BEGIN + 10.0
    assert len(seen.stable.samples) == 24


async def test_a_pod_that_restarts_loses_one_sample() -> None:
    server = Server(restarted=BEGIN + 301.0)
    seen = await look(fresh(server), BEGIN + 600.0)
    assert seen is not None
    assert len(seen.stable.samples) == 40
    assert 37 <= len(seen.canary.samples) < 40


async def test_another_step_begins_with_nothing_and_an_end_is_forgotten() -> None:
    server = Server()
    past = fresh(server)
    assert await look(past, BEGIN + 300.0) is not None
    seen = await look(past, BEGIN + 361.0, ("the second step", BEGIN + 300.0))
    assert seen is not None
    assert all(one.start >= BEGIN + 290.0 for one in seen.stable.samples)
    assert await look(past, BEGIN + 400.0, None) is None
    assert past._steps == {}


async def test_what_is_kept_is_bounded() -> None:
    server = Server()
    seen = await look(fresh(server), BEGIN + 86_400.0)
    assert seen is not None
    assert len(seen.stable.samples) <= LONGEST_SECONDS / 15.0
    assert len(server.asked) <= 13
