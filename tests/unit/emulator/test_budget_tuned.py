"""The tuner beside an engine that trims verification: counters tell what was offered, earned and spent."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest
from tests.unit.emulator.building import Run, configured
from tests.unit.engines.building import spec, valued

from speculative_lab.emulator.assembly import by_scheduled, constant
from speculative_lab.emulator.settings import Settings
from speculative_lab.plant.session import Session
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import Mode, OffPolicy, Workload
from speculative_operator.domain.table import KTable
from speculative_operator.engines.pairs import pair_facts
from speculative_operator.engines.registry import engine_for

SPEC = spec(max_speculative_tokens=7, adaptive_verification=True)
KNOBS = engine_for(SPEC).knobs(SPEC)
WORKLOAD = Workload.CREATIVE
FAR = 1e9
"""Unix seconds of the engine's start."""


def started() -> Run:
    """An engine with the command line of the adapter."""
    args = engine_for(SPEC).container(resolve(SPEC), KTable.constant(1, KNOBS.max_batch)).args
    flags = [
        text for name in ("--speculative-config", "--max-cudagraph-capture-size") for text in (name, valued(args, name))
    ]
    return Run(configured(*flags, environment={}), Settings(step_noise=0.0, acceptance_spread=0.8))


def serve(engine: Run, load: int, seconds: float, tick: Callable[[], None] | None = None) -> float:
    """Tokens per second of `load` requests in a closed loop; `tick` is called every five seconds."""
    begin, tokens, due = engine.now, 0, engine.now + 5.0
    while engine.now < begin + seconds:
        while engine.core.running + len(engine.core.waiting) < load:
            engine.add(220, int(engine._rng.integers(100, 400)), WORKLOAD)
        tokens += engine.step().generated_tokens
        if tick is not None and engine.now >= due:
            due += 5.0
            tick()
    return tokens / (engine.now - begin)


def rates(load: int) -> dict[int, float]:
    """Tokens per second of each constant K."""
    found = {}
    for k in KNOBS.ks:
        engine = started()
        engine.core.lengths = constant(k)
        serve(engine, load, 3.0)
        found[k] = serve(engine, load, 8.0)
    return found


def test_trimmed_drafts_at_high_load_take_none_from_low_load() -> None:
    engine, registry = started(), CollectorRegistry()
    registry.register(engine.metrics)
    session = Session(
        engine_for(SPEC), Policy(Mode.AUTO, KNOBS, facts=pair_facts(SPEC), off_policy=OffPolicy.KEEP_RUNNING)
    )

    def follow() -> None:
        engine.core.lengths = by_scheduled([0, *session.table.resize(KNOBS.max_batch).dense()])

    def tick() -> None:
        session.feed(FAR + engine.now, {"pod": generate_latest(registry).decode()})
        follow()

    follow()
    serve(engine, 256, 60.0, tick)
    assert any(one.verified_tokens < 0.9 * one.draft_tokens for one in engine.results), "vLLM trims at this load"
    assert serve(engine, 256, 20.0, tick) > 0.97 * max(rates(256).values())
    idle, kept = rates(4), session.table.k_at(4)
    assert idle[kept] > 0.95 * max(idle.values()) > 1.2 * idle[0]
