"""Finds the harm that a fault did: compares what was before with what is after, and looks at all that was meanwhile.

Pure, and without a word about any fault, so that no fault is judged more kindly than another. `run` asks it after each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Row = tuple[int, int, int]
FOLLOW_THE_LOAD = frozenset({"SpeculationActive", "TuningConverged"})
"""Conditions that differ by load and by what was learned, not by whether a fault is over."""


class Check(StrEnum):
    """What a fault must not do."""

    REQUESTS = "requests"
    K = "K"
    PODS = "pods"
    FOREIGN = "foreign"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class Harm:
    """One thing that must not have happened, in a sentence."""

    check: Check
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table of K, whoever tells it."""

    version: int
    rows: tuple[Row, ...]

    @property
    def ks(self) -> frozenset[int]:
        return frozenset(row[2] for row in self.rows)


@dataclass(frozen=True, slots=True)
class Pod:
    """A serving pod that is not about to go."""

    owner: str
    name: str
    uid: str
    restarts: int
    ready: bool


@dataclass(frozen=True, slots=True)
class Served:
    """A SpeculativeDeployment that clients use, and what says which table it has."""

    ks: frozenset[int]
    """K that may ever be in force."""
    conditions: Mapping[str, tuple[str, str]]
    """Type -> status and reason."""
    current: bool
    """Its status is of its newest generation."""
    in_status: Table | None
    mounted: Table | None
    """In the ConfigMap that its pods mount; None where K is part of their template."""
    version_in_pods: int | None
    """What its pods say that they run; None where they do not say."""
    children: frozenset[str] = frozenset()
    """Objects that are controlled by it, but for those that come and go."""


@dataclass(frozen=True, slots=True)
class Sight:
    """Everything at one moment."""

    served: Mapping[str, Served]
    pods: tuple[Pod, ...]
    foreign: Mapping[str, str]
    """What belongs to others, each with a text that changes when it is touched."""


@dataclass(frozen=True, slots=True)
class Requests:
    """What the clients of one object got."""

    answered: int = 0
    failed: int = 0
    first_error: str = ""


@dataclass(frozen=True, slots=True)
class Write:
    """A change that the operator made through the API server."""

    verb: str
    namespace: str
    resource: str
    name: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """Everything between two sights."""

    requests: Mapping[str, Requests] = field(default_factory=dict)
    tables: Mapping[str, frozenset[Table]] = field(default_factory=dict)
    """Every table that was ever stored for an object."""
    steps: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Object -> K -> engine steps that its pods ran with it."""
    writes: tuple[Write, ...] = ()


def find_harm(before: Sight, after: Sight, meanwhile: Meanwhile) -> list[Harm]:
    """All harm but a state that has not come back, which `unsettled` tells."""
    return [
        *_requests(before, meanwhile.requests),
        *_tables(before, meanwhile),
        *_pods(before.pods, after.pods),
        *_foreign(before.foreign, after.foreign),
        *_writes(before.served, meanwhile.writes),
    ]


def _requests(before: Sight, requests: Mapping[str, Requests]) -> Iterator[Harm]:
    for name in before.served:
        got = requests.get(name, Requests())
        if not got.answered:
            yield Harm(Check.REQUESTS, f"{name}: not one request was answered")
        if got.failed:
            total = got.answered + got.failed
            yield Harm(Check.REQUESTS, f"{name}: {got.failed} of {total} requests failed: {got.first_error}")


def _tables(before: Sight, meanwhile: Meanwhile) -> Iterator[Harm]:
    for name, served in before.served.items():
        stored = {k for table in meanwhile.tables.get(name, ()) for k in table.ks}
        run = {k for k, steps in meanwhile.steps.get(name, {}).items() if steps > 0}
        for what, ks in (("a table was stored", stored), ("engine steps ran", run)):
            if beyond := sorted(ks - served.ks):
                yield Harm(Check.K, f"{name}: {what} with K {beyond}, allowed are {sorted(served.ks)}")


def _pods(before: Iterable[Pod], after: Iterable[Pod]) -> Iterator[Harm]:
    found = {pod.uid: pod for pod in after}
    for pod in before:
        if pod.uid not in found:
            yield Harm(Check.PODS, f"{pod.owner}: pod {pod.name} is gone")
        elif found[pod.uid].restarts != pod.restarts:
            yield Harm(Check.PODS, f"{pod.owner}: a container of pod {pod.name} was restarted")


def _foreign(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Harm]:
    for name, content in before.items():
        if name not in after:
            yield Harm(Check.FOREIGN, f"{name} is gone")
        elif after[name] != content:
            yield Harm(Check.FOREIGN, f"{name} was changed")


OWN_RECORDS = frozenset({"leases", "events"})
"""Resources that the operator writes beside children."""


def _writes(served: Mapping[str, Served], writes: Iterable[Write]) -> Iterator[Harm]:
    """Every child of `auto` is named `auto` or `auto-...`; names of faults' own objects begin with `fault-`."""
    names = (*served, "fault")
    for write in sorted(set(writes), key=str):
        ours = write.name in served or write.name.startswith(tuple(f"{name}-" for name in names))
        if write.resource not in OWN_RECORDS and (not ours or write.namespace.startswith("kube-")):
            yield Harm(Check.FOREIGN, f"the operator did: {write}")


def unsettled(before: Sight, now: Sight) -> list[Harm]:
    """What is not back to what it was, or does not agree with itself; empty when the state has converged."""
    found: list[str] = []
    for name, was in before.served.items():
        if name not in now.served:
            found.append(f"{name} is gone")
            continue
        found += [f"{name}: {text}" for text in _differences(was, now.served[name])]
    known = {pod.uid for pod in before.pods}
    found += [f"{pod.owner}: pod {pod.name} is one too many" for pod in now.pods if pod.uid not in known]
    found += [f"{pod.owner}: pod {pod.name} is not ready" for pod in now.pods if pod.uid in known and not pod.ready]
    return [Harm(Check.STATE, text) for text in found]


def _differences(was: Served, now: Served) -> Iterator[str]:
    if not now.current:
        yield "the status is of an earlier generation"
    for kind, wanted in was.conditions.items():
        found = now.conditions.get(kind, ("absent", ""))
        if kind not in FOLLOW_THE_LOAD and found != wanted:
            yield f"{kind} is {' '.join(found)}, was {' '.join(wanted)}"
    if now.children != was.children:
        yield f"children that are missing or new: {', '.join(sorted(now.children ^ was.children))}"
    if now.mounted != (now.in_status if was.mounted else None):
        yield f"the table of the pods, {now.mounted}, is not the one of the status, {now.in_status}"
    elif now.mounted is not None and now.version_in_pods not in (None, now.mounted.version):
        yield f"pods run version {now.version_in_pods} of the table, not {now.mounted.version}"
