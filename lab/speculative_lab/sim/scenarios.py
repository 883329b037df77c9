"""Loads and mishaps that every controller is judged on: a plant, requests, and what the tuner knows of it.

Called by bench and by the command line's `--scenario`. A scenario's course is written in shares of its length, so that
it can be run shorter. A day is compressed into its 20 to 60 minutes: load moves about 30 times as fast as it would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np

from speculative_lab.sim.drafts import Drafts
from speculative_lab.sim.experiment import Routing
from speculative_lab.sim.pairs import PAIRS, Pair
from speculative_lab.sim.plant import Plant, perturbed
from speculative_lab.sim.profiles import KINDS, MIXED, classes
from speculative_lab.sim.traces import Trace
from speculative_lab.sim.workload import Lengths, Phase, Workload, closed_loop, open_loop, poisson, replayed
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.spec import Objective
from speculative_operator.domain.spec import Workload as Kind

Requests = Callable[["Scene"], Workload]

SHORT = (Lengths(500, 0.8, 8000), Lengths(300, 0.6, 4000))
"""Prompt and output tokens of most scenarios."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What a load is made from."""

    seconds: float
    classes: tuple[Drafts, ...]
    rng: np.random.Generator
    trace: Trace | None


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load on one deployment. Times are shares of the length unless said."""

    name: str
    about: str
    pair: str
    minutes: float
    requests: Requests
    moving: bool = True
    """False: the load is stationary, and few writes are expected."""
    replicas: int = 1
    routing: Routing = "least-loaded"
    restarts: tuple[tuple[float, int], ...] = ()
    """(when, replica) that crashes."""
    load_steps: tuple[float, ...] = ()
    """When the load jumps: adaptation is measured from there."""
    dead_since: float = 0.0
    """From when on it is judged whether the drafter is dead weight."""
    trace: str = ""
    """Name of the trace that it replays."""
    plant: Mapping[str, Any] = field(default_factory=dict)
    """Fields of Plant that differ from the pair's."""
    objective: Objective = field(default_factory=Objective)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A scenario with a seed: everything that a run needs."""

    scenario: Scenario
    seed: int
    seconds: float
    pair: Pair
    plant: Plant
    workload: Workload
    policy: Policy

    @property
    def restarts(self) -> tuple[tuple[float, int], ...]:
        return tuple((share * self.seconds, replica) for share, replica in self.scenario.restarts)


def build(
    scenario: Scenario, seed: int, *, shaken: bool = False, trace: Trace | None = None, scale: float = 1.0
) -> Case:
    """The case of `seed`. `shaken`: physics and acceptance off by up to 30 %, and shapes that no model has.

    `scale`: of the length.

    Raises ValueError when the scenario replays a trace and none is given.
    """
    if scenario.trace and trace is None:
        raise ValueError(f"{scenario.name} replays the trace {scenario.trace}, which is not at hand")
    pair = PAIRS[scenario.pair]
    seconds = max(300.0, round(scenario.minutes * 60.0 * scale / 5.0) * 5.0)
    plant = replace(pair.plant(), **scenario.plant)
    policy = replace(pair.policy(plant), objective=scenario.objective)
    own = classes(pair.method)
    if shaken:
        rng = np.random.default_rng([seed, _number(scenario), 7])
        plant, own = perturbed(plant, rng), classes(pair.method, rng)
    scene = Scene(seconds, own, np.random.default_rng([seed, _number(scenario)]), trace)
    return Case(scenario, seed, seconds, pair, plant, scenario.requests(scene), policy)


def _number(scenario: Scenario) -> int:
    return crc32(scenario.name.encode())


def only(kind: Kind) -> tuple[float, ...]:
    """A mix of one class."""
    return (*(float(one is kind) for one in KINDS), 0.0)


def _wave(scene: Scene, low: float, high: float, steps: int = 80) -> list[tuple[float, float]]:
    """One day: from `low` up to `high` and back, geometrically, in `steps` steps."""
    shares = np.arange(steps) / steps
    levels = low * (high / low) ** (0.5 - 0.5 * np.cos(2.0 * np.pi * shares))
    return [(float(share * scene.seconds), float(level)) for share, level in zip(shares, levels, strict=True)]


def _whole(course: Sequence[tuple[float, float]]) -> list[tuple[float, int]]:
    return [(start, max(0, round(level))) for start, level in course]


def _at(scene: Scene, *levels: tuple[float, float]) -> list[tuple[float, float]]:
    """A course from (share of the length, level)."""
    return [(share * scene.seconds, level) for share, level in levels]


def _phase(mix: Sequence[float], start: float = 0.0, lengths: tuple[Lengths, Lengths] = SHORT) -> Phase:
    return Phase(start, tuple(mix), *lengths)


def day(low: int, high: int, mix: Sequence[float] = MIXED) -> Requests:
    """Closed loop over a day."""
    return lambda scene: closed_loop(_whole(_wave(scene, low, high)), scene.classes, [_phase(mix)], scene.rng)


def day_of_arrivals(low: float, high: float, lengths: tuple[Lengths, Lengths] = SHORT) -> Requests:
    """Open loop over a day, requests per second."""
    return lambda scene: open_loop(
        tuple(_wave(scene, low, high)), scene.seconds, scene.classes, [_phase(MIXED, lengths=lengths)], scene.rng
    )


def levels(
    *course: tuple[float, int], mix: Sequence[float] = MIXED, drift: Sequence[tuple[float, float]] = ()
) -> Requests:
    """Closed loop with jumps: (share of the length, requests in flight); `drift` likewise."""
    return lambda scene: closed_loop(
        _whole(_at(scene, *course)), scene.classes, [_phase(mix)], scene.rng, tuple(_at(scene, *drift))
    )


def bursts(base: float, factor: float, every: float, length: float, lengths: tuple[Lengths, Lengths]) -> Requests:
    """Open loop at `base` requests per second, `factor` times as many for `length` seconds every `every` seconds."""

    def requests(scene: Scene) -> Workload:
        starts = np.arange(0.0, scene.seconds, every)
        rate = [level for start in starts for level in ((start, base), (start + every - length, factor * base))]
        return open_loop(tuple(rate), scene.seconds, scene.classes, [_phase(MIXED, lengths=lengths)], scene.rng)

    return requests


def lumps(rate: float, size: float, lengths: tuple[Lengths, Lengths], apart: float = 0.2) -> Requests:
    """Open loop: `rate` requests per second that come `size` at a time on average, within `apart` seconds."""

    def requests(scene: Scene) -> Workload:
        starts = poisson(((0.0, rate / size),), scene.seconds, scene.rng)
        sizes = 1 + scene.rng.poisson(size - 1.0, len(starts))
        arrival = np.sort(np.repeat(starts, sizes) + scene.rng.uniform(0.0, apart, sizes.sum()))
        prompt, output = (one.sample(len(arrival), scene.rng) for one in lengths)
        return replayed(arrival, prompt, output, scene.classes, MIXED, scene.rng)

    return requests


def mixes(concurrency: int, every: float, *kinds: Kind) -> Requests:
    """Closed loop whose requests are of one class after the other, in turn, changing at each `every` of the length."""

    def requests(scene: Scene) -> Workload:
        starts = np.arange(0.0, scene.seconds - 1.0, every * scene.seconds)
        phases = [_phase(only(kinds[turn % len(kinds)]), float(start)) for turn, start in enumerate(starts)]
        return closed_loop([(0.0, concurrency)], scene.classes, phases, scene.rng)

    return requests


def growing_context(*course: tuple[float, int, float]) -> Requests:
    """Closed loop: (share of the length, requests in flight, prompt tokens)."""

    def requests(scene: Scene) -> Workload:
        phases = [
            _phase(MIXED, share * scene.seconds, (Lengths(prompt, 0.1, 40_000), SHORT[1]))
            for share, _, prompt in course
        ]
        flight = _whole(_at(scene, *((share, count) for share, count, _ in course)))
        return closed_loop(flight, scene.classes, phases, scene.rng)

    return requests


def replay(pace: float = 1.0) -> Requests:
    """The trace from its start, `pace` times as fast as recorded; classes are drawn by the mix."""

    def requests(scene: Scene) -> Workload:
        if scene.trace is None:
            raise ValueError("no trace is at hand")
        part = scene.trace.scaled(1.0 / pace).sliced(0.0, scene.seconds)
        return part.workload(scene.classes, MIXED, scene.rng)

    return requests
