"""A simulated deployment with its load and everybody who may control it. Made from options by `simulate`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from speculative_lab.cli.facts import with_facts
from speculative_lab.sim import catalogue, drafts, experiment, scenarios, traces
from speculative_lab.sim.deployment import MissingCompilerError
from speculative_lab.sim.pairs import capture_sizes
from speculative_lab.sim.plant import DEFAULT_KV_TOKENS, Plant, perturbed, plant_for
from speculative_lab.sim.policies import fixed, registry
from speculative_lab.sim.policies.base import Controller
from speculative_lab.sim.policies.ours import Ours
from speculative_lab.sim.score import Run
from speculative_lab.sim.session import Session
from speculative_lab.sim.watched import Watched
from speculative_lab.sim.workload import Workload
from speculative_operator.api.wire import SpecError
from speculative_operator.cli import commands
from speculative_operator.cli.commands import CommandError, UsageError
from speculative_operator.cli.subject import subject
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.spec import Method
from speculative_operator.domain.spec import Workload as Kind
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.base import Engine
from speculative_operator.engines.registry import engine_for
from speculative_operator.physics.draft_costs import kv_tokens

EAGER_SECONDS = 0.005
"""What a step beyond the captured graphs costs more: 3 to 9 ms are reported for 8B to 70B."""
LARGEST_TRACE = 512 * 2**20
HEADS = {"meta-llama/Llama-3.1-8B-Instruct": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}
"""Verifier -> EAGLE-3 head that is meant when none is named."""
OURS, ORACLE, OFF, NEVER, STATIC, RIVALS = "ours", "oracle", "off", "never", "static", "rivals"


@dataclass(frozen=True)
class Arena:
    """Everything that the runs of all policies have in common."""

    title: str
    plant: Plant
    workload: Workload
    policy: Policy
    engine: Engine
    seconds: float
    seed: int
    replicas: int = 1
    restarts: tuple[tuple[float, int], ...] = ()
    routing: Literal["least-loaded", "round-robin"] = "least-loaded"


@dataclass(frozen=True)
class Result:
    """One policy's run."""

    run: Run
    watched: Watched
    wall_seconds: float
    session: Session | None = None
    decide_seconds: tuple[float, ...] = ()


def arena(options: argparse.Namespace) -> Arena:
    """The arena that the options describe. Raises CommandError."""
    return _of_scenario(options) if options.scenario else _of_trace(options)


def names(found: Arena) -> list[str]:
    """Every policy that can run there, references first."""
    return [OURS, *registry.references(found.plant), NEVER, *registry.RIVALS]


def chosen(found: Arena, wanted: list[str]) -> list[str]:
    """The policies to run: those wanted, with groups spelt out, and always the oracle. Raises UsageError."""
    every = names(found)
    groups = {STATIC: [name for name in every if name.startswith("static_")], RIVALS: list(registry.RIVALS)}
    picked: list[str] = []
    for name in wanted or every:
        if name not in every and name not in groups:
            raise UsageError(f"--policy {name!r} is not known", f"use one of {', '.join([*every, *groups])}")
        picked += groups.get(name, [name])
    return list(dict.fromkeys([ORACLE, *picked]))


def compete(found: Arena, wanted: list[str]) -> Iterator[Result]:
    """Run one policy after the other; each sees the same requests."""
    try:
        for name in wanted:
            yield _run(found, name)
    except MissingCompilerError as missing:
        problem, _, remedy = str(missing).partition(": ")
        raise CommandError(problem, remedy) from None


def _run(found: Arena, name: str) -> Result:
    plugin = found.policy.knobs.actuator is Actuator.LIVE
    policy = replace(found.policy, trials=plugin)
    session = Session(found.engine, policy, acknowledged=plugin) if name == OURS else None
    inner: Controller
    if session is not None:
        inner = Ours(session, time.thread_time)
    elif name == NEVER:
        inner = fixed.constant(0, found.plant.knobs)
        inner.name = NEVER
    else:
        makers = {**registry.references(found.plant), **registry.RIVALS}
        inner = makers[name](found.plant, found.workload, found.seed)
    watched = Watched(inner, found.engine)
    began = time.perf_counter()
    run = experiment.run(
        found.plant, found.workload, watched, found.seconds, found.seed,
        replicas=found.replicas, restarts=found.restarts, routing=found.routing, off=name == NEVER,
        telemetry=plugin and session is not None,
    )  # fmt: skip
    spent = time.perf_counter() - began
    took = tuple(inner.feed_seconds) if isinstance(inner, Ours) else ()
    return Result(run, watched, spent, session, took)


def _of_scenario(options: argparse.Namespace) -> Arena:
    known = catalogue.BY_NAME
    if options.scenario not in known:
        raise UsageError(f"--scenario {options.scenario!r} is not known", f"use one of {', '.join(known)}")
    if options.spec:
        raise UsageError("--scenario has its own deployment", "remove --spec")
    scenario = known[options.scenario]
    recorded = _trace(options) if options.trace else None
    if scenario.trace and recorded is None:
        raise UsageError(f"--scenario {scenario.name} replays {scenario.trace}", "give its file with --trace")
    scale = (
        commands.parse_duration(options.seconds, "--seconds") / (60.0 * scenario.minutes) if options.seconds else 1.0
    )
    case = scenarios.build(scenario, options.seed, shaken=options.perturb, trace=recorded, scale=scale)
    return Arena(
        title=f"{scenario.name}: {scenario.about}",
        plant=case.plant,
        workload=case.workload,
        policy=case.policy,
        engine=engine_for(case.pair.spec()),
        seconds=case.seconds,
        seed=case.seed,
        replicas=scenario.replicas,
        restarts=case.restarts,
        routing=scenario.routing,
    )


def _of_trace(options: argparse.Namespace) -> Arena:
    if not options.trace:
        raise UsageError("no load is given", "give --trace FILE or --scenario NAME")
    trace = _trace(options)
    found = _subject(options)
    if found.policy.knobs.actuator is Actuator.NONE:
        raise CommandError("the deployment has no speculator, or mode Disabled", "set a method that drafts")
    facts = found.policy.facts
    held, whole = (kv_tokens(facts, with_speculator=own) for own in (True, False))
    if held == 0:
        raise CommandError("the weights leave no room for a KV cache", "set more --accelerators, or use smaller models")
    facts = replace(facts, kv_capacity_tokens=held, kv_capacity_tokens_without_speculator=whole)
    policy = replace(found.policy, facts=facts)
    rng = np.random.default_rng([options.seed, 3])
    kind, method = policy.workload, facts.method or Method.EAGLE3
    classes, mix = drafts.published_mix(method) if kind is Kind.MIXED else ((drafts.published(method, kind),), (1.0,))
    seconds = commands.parse_duration(options.seconds, "--seconds") if options.seconds else float(trace.arrival[-1])
    seconds = max(60.0, 5.0 * round(seconds / 5.0))
    hardware = facts.accelerator.name if facts.accelerator else "an unknown accelerator"
    count = int((trace.arrival <= seconds).sum())
    return Arena(
        title=f"{count} requests of {Path(options.trace).name} on {found.spec.verifier.source.location}, "
        f"{method} and {hardware}",
        plant=_plant(policy, options, held or DEFAULT_KV_TOKENS, whole or DEFAULT_KV_TOKENS),
        workload=trace.workload(classes, mix, rng),
        policy=policy,
        engine=found.engine,
        seconds=seconds,
        seed=options.seed,
        replicas=options.replicas,
    )


def _plant(policy: Policy, options: argparse.Namespace, held: int, whole: int) -> Plant:
    knobs = policy.knobs
    sizes = knobs.capture_sizes or capture_sizes(knobs)
    try:
        plant = plant_for(
            policy.facts, replace(knobs, capture_sizes=sizes),
            kv_tokens=held, kv_tokens_without=whole, eager_seconds=EAGER_SECONDS,
        )  # fmt: skip
    except ValueError:
        raise CommandError(
            "neither the catalogue nor the facts know verifier and accelerator",
            "use others, or give their shapes with --facts",
        ) from None
    return perturbed(plant, np.random.default_rng([options.seed, 7])) if options.perturb else plant


def _subject(options: argparse.Namespace) -> Any:
    facts = commands.read_document(options.facts, "--facts") if options.facts else None
    body = commands.read_document(options.spec, "--spec") if options.spec else _body(options)
    try:
        return with_facts(subject(body), facts)
    except SpecError as problem:
        raise CommandError(f"{options.spec}: {problem}" if options.spec else str(problem)) from None


def _body(options: argparse.Namespace) -> dict[str, Any]:
    """The spec that the options stand for."""
    speculator: dict[str, Any] = {"method": options.method}
    draft_free = any(options.method == method.value and method.draft_free for method in Method)
    model = options.speculator or ("" if draft_free else HEADS.get(options.verifier, ""))
    if model:
        speculator["model"] = _uri(model)
    verifier = {"model": _uri(options.verifier), "tensorParallelSize": options.accelerators}
    speculation: dict[str, Any] = {"workload": options.workload}
    if options.max_k is not None:
        speculation["maxSpeculativeTokens"] = options.max_k
    accelerator = {"product": options.accelerator}
    return {"verifier": verifier, "speculator": speculator, "speculation": speculation, "accelerator": accelerator}


def _uri(model: str) -> str:
    return model if "://" in model else f"hf://{model}"


def _trace(options: argparse.Namespace) -> traces.Trace:
    lines = commands.read_text(options.trace, "--trace", LARGEST_TRACE).splitlines()
    try:
        found = traces.read(lines, options.format or _format(lines))
        return found.scaled(1.0 / options.speed_up) if options.speed_up != 1.0 else found
    except traces.TraceError as problem:
        raise CommandError(f"{options.trace}: {problem}") from None


def _format(lines: list[str]) -> traces.Format:
    """What the first line looks like."""
    first = next((line.strip() for line in lines if line.strip()), "")
    tests: tuple[tuple[traces.Format, Callable[[str], bool]], ...] = (
        ("jsonl", lambda line: line.startswith("{")),
        ("azure", lambda line: line.startswith("TIMESTAMP,ContextTokens,")),
    )
    return next((form for form, fits in tests if fits(first)), "csv")
