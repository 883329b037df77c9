"""What is done to a fleet, one phase after the other, and the figures of each. Called by `__main__`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import requests

from bench.scale.bed import ARGUMENT, BY_HAND, DEPLOYMENTS, IMAGE, Bed, Version
from bench.scale.client import MERGE, OWN_KIND, PATCH
from bench.scale.machine import Moment, cpu_seconds, memory_mib

SOME = 20
"""Deployments that are deleted, and edited by hand."""
GONE_SECONDS = 12.0
SETTLED_SECONDS = 60.0
Say = Callable[[str], None]


def limit(count: int) -> float:
    """Longest wait for something to be done to all."""
    return 120.0 + 0.6 * count


@dataclass
class Found:
    """Figures of one operator, and how busy others kept the machine in each phase."""

    figures: dict[str, float] = field(default_factory=dict)
    foreign_cpu_s: dict[str, float] = field(default_factory=dict)
    foreign_cores: dict[str, float] = field(default_factory=dict)


class Fleet:
    """`count` objects on a bed, from nothing to an API server that was gone."""

    def __init__(self, bed: Bed, count: int, rest_seconds: float, say: Say) -> None:
        self.bed, self.rest_seconds, self.say = bed, rest_seconds, say
        self.owners = [f"n{number}" for number in range(count)]
        self.found = Found()

    def measure(self) -> Found:
        for phase in (self.one, self.create, self.rest, self.edit, self.repair, self.gone):
            with self._phase(phase.__name__):
                phase()
        self.found.figures["rss_peak"] = memory_mib(self.bed.pid, "VmHWM")
        return self.found

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began, known = Moment.now(), set(self.found.figures)
        yield
        seconds, cores = began.foreign()
        self.found.foreign_cpu_s[name], self.found.foreign_cores[name] = seconds, cores
        told = {key: value for key, value in self.found.figures.items() if key not in known}
        self.say(f"  {name}: {told}, foreign_cpu_s {seconds}")

    def _keep(self, **figures: float) -> None:
        self.found.figures |= {name: round(value, 3) for name, value in figures.items()}

    def one(self) -> None:
        """The operator at its start, and a single object."""
        self._deployments(["warm"])
        self.bed.settle(60.0)
        self._keep(rss_idle=memory_mib(self.bed.pid), one=self._deployments(["one"])["one"])
        self.bed.settle(60.0)

    def _deployments(self, owners: Collection[str]) -> dict[str, float]:
        """Seconds from the creation of each to its Deployment."""
        created = self.bed.paced(owners, self.bed.create)
        seen = self._deployment_is(owners, lambda _: True, "a Deployment")
        return _between(created, seen)

    def _deployment_is(self, owners: Collection[str], wanted: Callable[[Version], bool], what: str) -> dict[str, float]:
        return self.bed.wait_for(
            owners, lambda one: self.bed.first("Deployment", one, wanted), limit(len(owners)), what
        )

    def create(self) -> None:
        count = len(self.owners)
        self.bed.audited()
        started, cpu = time.monotonic(), cpu_seconds(self.bed.pid)
        taken = list(self._deployments(self.owners).values())
        children = self.bed.wait_for(self.owners, self.bed.complete, limit(count), "all children")
        self._keep(create_p50=statistics.median(taken), create_max=max(taken))
        self._keep(children=max(children.values()) - started, create_cpu=cpu_seconds(self.bed.pid) - cpu)
        deadline = time.monotonic() + limit(count)
        while self.bed.ready() < count + 2:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.bed.ready()} of {count + 2} objects are Ready")
            time.sleep(1.0 + count / 500)
        calls = len(self.bed.audited())
        self.bed.settle(limit(count))
        self._keep(calls=calls / count, rss=memory_mib(self.bed.pid))

    def rest(self) -> None:
        """Nothing happens. Before that, the operator has found that there are no figures, which takes it a minute."""
        time.sleep(SETTLED_SECONDS)
        self.bed.audited()
        cpu, started = cpu_seconds(self.bed.pid), time.monotonic()
        time.sleep(self.rest_seconds)
        share = (cpu_seconds(self.bed.pid) - cpu) / (time.monotonic() - started)
        self._keep(rest_cpu=100 * share, rest_writes=self.bed.writes() * 60 / self.rest_seconds)

    def edit(self) -> None:
        """Arguments of all, then the image of all."""
        for name, mark, change in (
            ("args", ARGUMENT, {"engine": {"args": [ARGUMENT]}}),
            ("image", IMAGE, {"engine": {"image": IMAGE}}),
        ):
            taken = self._edited(mark, change)
            self._keep(**{f"{name}_p50": statistics.median(taken), f"{name}_max": max(taken)})
            self.bed.settle(limit(len(self.owners)))

    def _edited(self, mark: str, change: Mapping[str, Any]) -> list[float]:
        def do(owner: str) -> None:
            self.bed.api.call("PATCH", f"{OWN_KIND}/{owner}", {"spec": change}, MERGE)

        done = self.bed.paced(self.owners, do)
        return list(_between(done, self._deployment_is(self.owners, lambda one: mark in one.marks, "edited")).values())

    def repair(self) -> None:
        """Deployments that are deleted, and others whose arguments somebody edits."""
        some, others = self.owners[:SOME], self.owners[-SOME:]
        before = {owner: self.bed.uid(owner) for owner in some}
        done = self.bed.paced(some, lambda one: self.bed.api.call("DELETE", f"{DEPLOYMENTS}/{one}"), 10.0)
        back = self.bed.wait_for(
            some,
            lambda one: self.bed.first("Deployment", one, lambda version: version.uid != before[one]),
            limit(SOME),
            "back",
        )
        self._keep(back_p50=statistics.median(_between(done, back).values()))
        self.bed.settle(limit(SOME))
        change = [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": BY_HAND}]
        done = self.bed.paced(others, lambda one: self.bed.api.call("PATCH", f"{DEPLOYMENTS}/{one}", change, PATCH))
        seen = self._deployment_is(others, lambda one: BY_HAND in one.marks, "edited by hand")
        reverted = self.bed.wait_for(
            others,
            lambda one: self.bed.first("Deployment", one, lambda version: BY_HAND not in version.marks, seen[one]),
            limit(SOME),
            "reverted",
        )
        self._keep(reverted_max=max(_between(done, reverted).values()))
        self.bed.settle(limit(SOME))

    def gone(self) -> None:
        """The API server ends and comes back; the next object, and how often the operator ended."""
        with self.bed.cluster.without("kube-apiserver"):
            ends = time.monotonic() + GONE_SECONDS
            while time.monotonic() < ends:
                self.bed.keep_operator()
                time.sleep(0.2)
        back = time.monotonic()
        while True:
            try:
                self.bed.create("after")
                break
            except requests.HTTPError as error:
                if error.response is not None and error.response.status_code == 409:
                    break
            except requests.RequestException:
                time.sleep(0.1)
        seen = self._deployment_is(["after"], lambda _: True, "a Deployment")
        self._keep(gone=seen["after"] - back, gone_exits=self.bed.exits)


def _between(done: Mapping[str, float], seen: Mapping[str, float]) -> dict[str, float]:
    """A watch may be faster than the answer to the request."""
    return {name: max(0.0, at - done[name]) for name, at in seen.items()}
