"""One run of one policy, as a worker process does it, and the store of runs that the tuner cannot change.

A stored run is found by everything that it depends on: plant, requests, events, sources of simulator and rivals. The
 tuner's own runs are never stored.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import speculative_lab
import speculative_operator
from bench.tuner.traces import ROOT, read_trace
from speculative_lab.sim import session as session_module
from speculative_lab.sim.catalogue import BY_NAME
from speculative_lab.sim.experiment import run
from speculative_lab.sim.policies.base import Controller
from speculative_lab.sim.policies.fixed import constant
from speculative_lab.sim.policies.ours import Ours, Untried
from speculative_lab.sim.policies.registry import RIVALS, references
from speculative_lab.sim.scenarios import Case, build
from speculative_lab.sim.score import Run
from speculative_lab.sim.session import Session
from speculative_operator.domain.decision import Decision
from speculative_operator.engines.registry import engine_for

STORE = ROOT / "build" / "bench" / "runs"
OURS, NEVER = "ours", "never"
"""`never`: pods that never had a drafter, the truth about removal."""
_SIMULATOR = Path(speculative_lab.__file__).parent / "sim"
_STEP_TIME = Path(speculative_operator.__file__).parent / "physics" / "step_time.py"
_OF_THE_TUNER = {
    "surface.py",
    "telemetry.py",
    "ours.py",
    "plugin.py",
    "score.py",
    "catalogue.py",
    "scenarios.py",
    "pairs.py",
    "profiles.py",
}
"""Files of sim/ that change no reference run, or change it through plant and requests, which are in the key."""


@dataclass(frozen=True, slots=True)
class Task:
    """Which run to make."""

    scenario: str
    seed: int
    shaken: bool
    policy: str
    scale: float = 1.0
    stored: bool = True
    telemetry: bool = True
    """Whether the plug-in runs in the pods the tuner turns. No other policy has it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a task. The last fields are the tuner's alone."""

    task: Task
    run: Run
    seconds: float
    """Simulated."""
    wall: float
    decide_ms: list[float] = field(default_factory=list)
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    untried: Run | None = None
    """The same tables at the same times with nothing tried; None where nothing was."""


def be_nice() -> None:
    """For worker processes: leave the machine to whoever else works on it."""
    os.nice(10)


def perform(task: Task) -> Outcome:
    """Makes the run, or takes it from the store."""
    case = make(task)
    if task.policy == OURS:
        return _tuned(task, case)
    path = STORE / f"{_key(task, case)}.pickle"
    began = time.perf_counter()
    if task.stored and path.is_file():
        return Outcome(task, pickle.loads(path.read_bytes()), case.seconds, 0.0)  # noqa: S301 - our own file
    found = _run(case, controller(case, task.policy), off=task.policy == NEVER)
    wall = time.perf_counter() - began
    STORE.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_bytes(pickle.dumps(found))
    part.replace(path)
    return Outcome(task, found, case.seconds, wall)


def make(task: Task) -> Case:
    """The case of a task."""
    scenario = BY_NAME[task.scenario]
    trace = read_trace(scenario.trace) if scenario.trace else None
    return build(scenario, task.seed, shaken=task.shaken, trace=trace, scale=task.scale)


def controller(case: Case, policy: str) -> Controller:
    """A fresh controller by name: a reference, a rival, or no drafter at all."""
    if policy == NEVER:
        return constant(0, case.plant.knobs)
    return (references(case.plant) | dict(RIVALS))[policy](case.plant, case.workload, case.seed)


def _tuned(task: Task, case: Case) -> Outcome:
    taken: list[float] = []
    plain = session_module.__dict__["decide"]
    session_module.__dict__["decide"] = _timed(plain, taken)
    try:
        policy = replace(case.policy, trials=task.telemetry)
        session = Session(engine_for(case.pair.spec()), policy, acknowledged=task.telemetry)
        tuner = Ours(session)
        began = time.perf_counter()
        found = _run(case, tuner, telemetry=task.telemetry)
        wall = time.perf_counter() - began
    finally:
        session_module.__dict__["decide"] = plain
    untried = _run(case, Untried(tuner.acts), telemetry=task.telemetry) if tuner.tried else None
    return Outcome(task, found, case.seconds, wall, taken, tuner.decisions, untried)


def _timed(function: Callable[..., Any], taken: list[float]) -> Callable[..., Any]:
    def timed(*arguments: Any) -> Any:
        began = time.thread_time()  # of the processor: a busy machine must not look like a slow tuner
        answer = function(*arguments)
        taken.append(1000.0 * (time.thread_time() - began))
        return answer

    return timed


def _run(case: Case, controlled: Controller, *, off: bool = False, telemetry: bool = False) -> Run:
    return run(
        case.plant, case.workload, controlled, case.seconds, case.seed, replicas=case.scenario.replicas,
        restarts=case.restarts, routing=case.scenario.routing, off=off, telemetry=telemetry,
    )  # fmt: skip


def _key(task: Task, case: Case) -> str:
    load = case.workload
    digest = hashlib.sha256(f"{task.policy} {task.seed} {_sources()} {case.plant!r}".encode())
    digest.update(repr((case.seconds, case.scenario.replicas, case.restarts, case.scenario.routing)).encode())
    digest.update(repr((load.classes, load.concurrency, load.pools, load.drift)).encode())
    for array in (load.prompt, load.output, load.kind, load.arrival):
        digest.update(b"" if array is None else array.tobytes())
    return f"{task.scenario}-{task.policy}-{digest.hexdigest()[:24]}"


@cache
def _sources() -> str:
    digest = hashlib.sha256()
    for path in sorted([*_SIMULATOR.rglob("*.py"), _STEP_TIME]):
        if path.name not in _OF_THE_TUNER:
            digest.update(path.read_bytes())
    return digest.hexdigest()
