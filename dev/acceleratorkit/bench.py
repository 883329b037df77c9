"""Arms of a comparison, turn about: what each gives at each load, round after round, while time is left.

Called by `program`. A cell is one arm at one load in one round, and is kept as soon as it was measured. The first round
warms up and does not count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from acceleratorkit.engines import Engine, Sent
from acceleratorkit.stages import Record
from realengine.counters import Counters

WAVES, STEADY = "waves", "steady"
WARM_TOKENS = 96
"""Of a wave before a cell: K = 0 becomes off after 64 steps of it."""
ROUNDS, LONGEST, SHORTEST = 3, 9.0, 1.5
"""Rounds that the time is divided among, and seconds of a cell at most and at least; what is left goes into further
rounds."""
FILLED = 0.85
"""Of the time that is left, what rounds are planned for: a wave that began is awaited."""
STOP_SECONDS = 15.0
"""Of a stage's time, for engines to end."""
START_SHARE = 0.7
"""Of a stage's time that engines may take to start."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """So many requests at a time: all together in waves, or one after another without a pause (`steady`)."""

    kind: str
    width: int
    tokens: int
    """Of an answer; with steady traffic, of the shortest."""


@dataclass(frozen=True, slots=True)
class Arm:
    """What is compared: an engine at a K; the K of one without a speculator is None."""

    name: str
    engine: str
    k: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Engines that serve side by side, and the arms that are compared on them. The first arm is compared with."""

    name: str
    engines: Sequence[Engine]
    arms: Sequence[Arm]
    traffic: Sequence[Traffic]


class Serves(Protocol):
    """What is asked of an engine that serves (`engines.Running`)."""

    @property
    def ready_seconds(self) -> float: ...

    def force(self, k: int) -> None: ...

    def waves(self, width: int, tokens: int, seconds: float) -> Sent: ...

    def looked(self) -> tuple[Counters, float | None]: ...

    async def steady(self, width: int, tokens: int, settle: float, seconds: float) -> tuple[Any, Any, Sent]: ...


Serving = Callable[[Sequence[Engine], float], AbstractContextManager[tuple[Mapping[str, Serves], Mapping[str, str]]]]
"""Starts engines within so many seconds: those that serve, and why the others do not."""


class Bench:
    """Measures groups with engines that `serving` starts, into `record`."""

    def __init__(self, serving: Serving, record: Record, clock: Callable[[], float] = time.monotonic) -> None:
        self._serving, self._record, self._clock = serving, record, clock

    def measure(self, group: Group, until: float) -> None:
        """One group, until so late. Raises RuntimeError where none of its engines starts."""
        left = until - self._clock()
        with self._serving(group.engines, START_SHARE * left) as (serve, failed):
            for engine in group.engines:
                ready = serve[engine.name].ready_seconds if engine.name in serve else None
                self._record.add("engines", {
                    "group": group.name, "name": engine.name, "runner": engine.runner, "speculator": engine.speculator,
                    "ready_seconds": ready, "failed": failed.get(engine.name, ""),
                })  # fmt: skip
            arms = [arm for arm in group.arms if arm.engine in serve]
            if not arms:
                raise RuntimeError("; ".join(failed.values()))
            self._rounds(group, arms, serve, until - STOP_SECONDS)

    def _rounds(self, group: Group, arms: Sequence[Arm], serve: Mapping[str, Serves], until: float) -> None:
        cells, broken = len(arms) * len(group.traffic), set[str]()
        seconds, begun, longest = SHORTEST, self._clock(), dict.fromkeys(group.traffic, SHORTEST)
        for turn, (number, traffic, arm) in enumerate(turns(arms, group.traffic)):
            now = self._clock()
            if turn == cells:  # the warm round has told what a cell takes beside its own seconds
                beside = (now - begun) / cells - SHORTEST
                seconds = min(LONGEST, max(SHORTEST, FILLED * (until - now) / (ROUNDS * cells) - beside))
            if now + max(seconds, longest[traffic]) > until or len(broken) == len(arms):
                return
            if arm.name in broken:
                continue
            where = {"group": group.name, "load": traffic.kind, "width": traffic.width, "arm": arm.name}
            try:
                found = cell(serve[arm.engine], arm, traffic, seconds)
            except Exception as error:  # this engine; the others are measured
                broken.add(arm.name)
                why = f"{type(error).__name__}: {error}"[:500]
                self._record.add("cells", {**where, "round": number, "broken": why})
                continue
            longest[traffic] = max(longest[traffic], self._clock() - now)
            print(number, *where.values(), found, flush=True)
            if number:
                self._record.add("cells", {**where, "round": number, **found})


def turns(arms: Sequence[Arm], traffic: Sequence[Traffic]) -> Iterator[tuple[int, Traffic, Arm]]:
    """Round, load and arm for ever; the order of arms is turned about, so that none always comes after the same."""
    number = 0
    while True:
        for one in traffic:
            for arm in arms if number % 2 else reversed(arms):
                yield number, one, arm
        number += 1


def cell(engine: Serves, arm: Arm, traffic: Traffic, seconds: float) -> dict[str, Any]:
    """What one arm gives at one load: tokens per second, milliseconds a step, tokens of a request and step, the K that
    was drafted, the share of steps that left the speculator out, and requests that failed."""
    if arm.k is not None:
        engine.force(arm.k)
    engine.waves(traffic.width, min(WARM_TOKENS, traffic.tokens), 0.0)
    if traffic.kind == STEADY:
        before, after, sent = asyncio.run(engine.steady(traffic.width, traffic.tokens, 1.0, seconds))
    else:
        before = engine.looked()
        sent = engine.waves(traffic.width, traffic.tokens, seconds)
        after = engine.looked()
    seen = after[0].since(before[0])
    steps = max(seen.steps, 1.0)
    rested = None if after[1] is None or before[1] is None else round((after[1] - before[1]) / steps, 3)
    return {
        "tokens_per_second": round(seen.generated / sent.seconds, 1), "step_ms": round(1000 * sent.seconds / steps, 3),
        "tokens_per_step": round(1.0 + seen.accepted / seen.drafts if seen.drafts else 1.0, 3),
        "k": round(seen.k, 3), "left_out": rested, "seconds": round(sent.seconds, 2),
        "failed": sent.failed,
    }  # fmt: skip
