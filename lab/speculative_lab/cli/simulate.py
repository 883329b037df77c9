"""Run policies over a recorded load on a simulated deployment, and compare them with the best table in hindsight.

Every policy gets the same requests on the same machine. The tuner sees what Prometheus would and what the plug-in
tells; rivals inside an engine see its steps. Speed is output tokens per second that a request spends in the system,
waiting included; regret is what is missing to the best table that was found.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speculative_operator.cli import commands, terminal
from speculative_operator.cli.commands import OK, CommandError, UsageError

if TYPE_CHECKING:
    from speculative_lab.plant.given import Given
    from speculative_lab.plant.serving import Outcome
    from speculative_lab.plant.traces import Format, Trace
    from speculative_lab.plant.world import World
    from speculative_operator.domain.decision import Policy

EPILOG = """examples:
  speculative simulate --trace AzureLLMInferenceTrace_conv.csv --format azure --seconds 10m
  speculative simulate --trace mine.jsonl --verifier Qwen/Qwen3-8B --speculator Qwen/Qwen3-0.6B \\
      --method draft_model --accelerator A100-80GB --max-k 5 --policy ours --policy smartspec -o json

policies: ours; counters, the tuner without the plug-in; smartspec; timed; adaptive, vLLM's adaptive verification.
Default: all of them. The best table in hindsight (oracle) and every constant (static_K; off is K = 0) always run.
Needs numba: pip install . './lab[sim]'.
exit status: 0 simulated, 1 failed, 2 wrong use of the command line"""

LARGEST_TRACE = 512 * 2**20
HEADS = {"meta-llama/Llama-3.1-8B-Instruct": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}
"""Verifier -> EAGLE-3 head that is meant when none is named."""
OURS, COUNTERS, ORACLE, OFF = "ours", "counters", "oracle", "off"
HEADERS = ("POLICY", "SPEED", "REGRET %", "TPOT ms", "p99", "TTFT ms", "p99", "WRITES", "UNSAFE %")
SLOWER = 2.0
"""Percent by which a 5-minute window may be slower than K = 0."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    load = parser.add_argument_group("load").add_argument
    load("--trace", metavar="FILE", required=True, help="file of requests with their times and lengths")
    load("--format", choices=("azure", "jsonl", "csv"), help="format of the trace; default: by its first line")
    load("--seconds", metavar="TIME", default="", help="length of the simulated load, such as 10m; default: all of it")
    load("--speed-up", metavar="X", type=float, default=1.0, help="requests arrive X times as fast; default 1")
    pair = parser.add_argument_group("deployment").add_argument
    pair("--spec", metavar="FILE", default="", help="SpeculativeDeployment instead of the options below")
    pair("--facts", metavar="FILE", default="", help="facts of models and hardware")
    pair("--accelerator", metavar="NAME", default="H100-SXM", help="default H100-SXM")
    pair("--accelerators", metavar="N", type=int, default=1, help="number of accelerators of one replica; default 1")
    pair("--verifier", metavar="MODEL", default="meta-llama/Llama-3.1-8B-Instruct", help="default Llama-3.1-8B")
    pair("--speculator", metavar="MODEL", default="", help="default: the EAGLE-3 head of the default verifier")
    pair("--method", default="eagle3", help="eagle3, draft_model, ngram, ...; default eagle3")
    pair("--workload", default="Mixed", help="Code, Structured, Chat, Summarization, Creative or Mixed; default Mixed")
    pair("--max-k", metavar="K", type=int, help="largest K; default 8")
    pair("--replicas", metavar="N", type=int, default=1, help="requests go to them in turn; default 1")
    pair("--seed", metavar="N", type=int, default=0, help="of what nobody knows of the machine; default 0")
    output = parser.add_argument_group("policies and output").add_argument
    output("--policy", metavar="NAME", action="append", default=[], help="may be repeated")
    terminal.add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Simulate and print."""
    _check(options)
    try:
        from speculative_lab.plant.given import world_of
    except ModuleNotFoundError as missing:
        if missing.name != "numba":
            raise
        raise CommandError("the simulation needs numba", "install it with: pip install . './lab[sim]'") from None
    given = described(options)
    try:
        world = world_of(given)
    except ValueError:
        raise CommandError(
            "neither the catalogue nor the facts know verifier and accelerator",
            "use others, or give their shapes with --facts",
        ) from None
    rows = standings(world, options.policy)
    if options.output != terminal.TEXT:
        for row in rows:
            print(terminal.format_document(row, options.output))
        print(terminal.format_document({"summary": _summary(given, rows)}, options.output))
        return OK
    sys.stdout.write(f"{_title(given, options)}\n\n")
    terminal.write_table(sys.stdout, HEADERS, [_cells(row) for row in rows], frozenset(range(1, len(HEADERS))))
    sys.stdout.write(f"\n{_sentence(_summary(given, rows))}\n")
    return OK


def standings(world: World, wanted: list[str]) -> list[dict[str, Any]]:
    """A row for each policy, the fastest first. Raises UsageError for a policy that is not known."""
    from speculative_lab.plant import law, rivals
    from speculative_lab.plant.oracle import search

    runs: dict[str, Callable[[], Outcome]] = {
        OURS: lambda: law.run(world, world.policy, law.PLUG_IN).outcome,
        COUNTERS: lambda: law.run(world, world.policy, law.COUNTERS).outcome,
        **{name: lambda name=name: rivals.run(world, name) for name in rivals.RIVALS},  # type: ignore[misc]
    }
    for name in wanted:
        if name not in runs:
            raise UsageError(f"--policy {name!r} is not known", f"use one of {', '.join(runs)}")
    found = search(world)
    fastest = found.fastest()
    assert fastest is not None
    outcomes = {ORACLE: fastest[1]}
    outcomes |= {
        f"static_{k}" if k else OFF: run for k, run in zip(world.policy.knobs.ks, found.constants, strict=True)
    }
    outcomes |= {name: runs[name]() for name in runs if name in wanted or not wanted}
    rows = [_row(name, world, run, outcomes) for name, run in outcomes.items()]
    return sorted(rows, key=lambda row: -row["speed"])


def _row(name: str, world: World, run: Outcome, outcomes: dict[str, Outcome]) -> dict[str, Any]:
    from speculative_lab.plant.serving import unsafe

    windows = unsafe(world, run, outcomes[OFF])
    tells = name in (OURS, COUNTERS)
    return {
        "policy": name,
        "speed": round(run.speed, 4),
        "regretPercent": round(100.0 * (1.0 - run.speed / outcomes[ORACLE].speed), 3) if run.speed else None,
        "tpotMs": _latency(run.tpot),
        "ttftMs": _latency(run.ttft),
        "requests": len(run.ttft),
        "writes": run.writes if tells else None,
        "unsafeWindowsPercent": 100.0 * sum(one > SLOWER for one in windows) / len(windows) if windows else None,
    }


def _latency(seconds: Any) -> dict[str, float | None]:
    import numpy as np

    if not len(seconds):
        return {"mean": None, "p50": None, "p99": None}
    p50, p99 = np.percentile(seconds, [50, 99])
    return {
        name: round(1e3 * float(value), 3) for name, value in (("mean", seconds.mean()), ("p50", p50), ("p99", p99))
    }


def _cells(row: dict[str, Any]) -> list[str]:
    values = [row["tpotMs"]["mean"], row["tpotMs"]["p99"], row["ttftMs"]["mean"], row["ttftMs"]["p99"]]
    return [
        row["policy"], _cell(row["speed"], 2), _cell(row["regretPercent"], 2), *(_cell(one, 1) for one in values),
        _cell(row["writes"], 0), _cell(row["unsafeWindowsPercent"], 1),
    ]  # fmt: skip


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _summary(given: Given, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The last of the documents."""
    by_name = {row["policy"]: row for row in rows}
    static = next((row for row in rows if row["policy"] == OFF or row["policy"].startswith("static_")), None)
    ours = by_name.get(OURS)

    def over(other: dict[str, Any] | None) -> float | None:
        known = ours is not None and other is not None and ours["speed"] and other["speed"]
        return round(100.0 * (ours["speed"] / other["speed"] - 1.0), 3) if known else None  # type: ignore[index]

    return {
        "simulatedSeconds": given.seconds,
        "seed": given.seed,
        "replicas": given.replicas,
        "bestStatic": static["policy"] if static else None,
        "oursRegretPercent": ours["regretPercent"] if ours else None,
        "oursOverOffPercent": over(by_name.get(OFF)),
        "oursOverBestStaticPercent": over(static),
    }


def _sentence(told: dict[str, Any]) -> str:
    """What the table means."""
    ran = f"{told['simulatedSeconds']:.0f} s simulated, seed {told['seed']}."
    if told["oursRegretPercent"] is None:
        return ran
    compared = "slower" if told["oursRegretPercent"] >= 0 else "faster"
    said = f"ours is {abs(told['oursRegretPercent']):.2f} % {compared} than the best table"
    if told["oursOverOffPercent"] is not None:
        said += f"; {told['oursOverOffPercent']:+.1f} % against K = 0"
        said += f"; {told['oursOverBestStaticPercent']:+.1f} % against {told['bestStatic']}, the best constant"
    return f"{said}.\n{ran}"


def _title(given: Given, options: argparse.Namespace) -> str:
    facts = given.policy.facts
    names = [facts.verifier and facts.verifier.name, facts.method, facts.accelerator and facts.accelerator.name]
    count = len(given.trace.until(given.seconds))
    return f"{count} requests of {Path(options.trace).name} on {', '.join(map(str, names))}"


def _check(options: argparse.Namespace) -> None:
    if not 0 < options.speed_up < 1e6:
        raise UsageError(f"--speed-up is {options.speed_up:g}", "write a number above 0, such as 2")
    if not 1 <= options.replicas <= 64:
        raise UsageError(f"--replicas is {options.replicas}", "write 1 to 64")
    if options.seed < 0:
        raise UsageError(f"--seed is {options.seed}", "write 0 or more")


def described(options: argparse.Namespace) -> Given:
    """Deployment and load that the options describe; called by `run` and by dev/bench. Raises CommandError."""
    from speculative_lab.plant.given import Given
    from speculative_operator.physics.acceptance import prior_survival

    policy, trace = _policy(options), _trace(options)
    whole = commands.parse_duration(options.seconds, "--seconds") if options.seconds else float(trace.arrival[-1])
    seconds = max(120.0, 60.0 * math.ceil(whole / 60.0))
    assert policy.facts.method is not None
    first = float(prior_survival(policy.facts.method, policy.workload, 1)[0])
    return Given(policy, trace, seconds, min(max(first, 0.01), 0.99), options.seed, options.replicas)


def _policy(options: argparse.Namespace) -> Policy:
    """What the tuner knows of the deployment. Raises CommandError."""
    from dataclasses import replace

    from speculative_operator.api.wire import SpecError
    from speculative_operator.cli.subject import subject
    from speculative_operator.domain.table import Actuator
    from speculative_operator.physics.draft_costs import kv_tokens

    facts = commands.read_document(options.facts, "--facts") if options.facts else None
    body = commands.read_document(options.spec, "--spec") if options.spec else _body(options)
    try:
        policy = subject(body, facts).policy
    except SpecError as problem:
        raise CommandError(f"{options.spec}: {problem}" if options.spec else str(problem)) from None
    if policy.knobs.actuator is not Actuator.LIVE:
        raise CommandError("K of this deployment is not set while it serves", "use vLLM with a method that drafts")
    held, whole = (kv_tokens(policy.facts, with_speculator=own) for own in (True, False))
    if held == 0:
        raise CommandError("the weights leave no room for a KV cache", "set more --accelerators, or use smaller models")
    known = replace(policy.facts, kv_capacity_tokens=held, kv_capacity_tokens_without_speculator=whole)
    return replace(policy, facts=known)


def _body(options: argparse.Namespace) -> dict[str, Any]:
    """The spec that the options stand for."""
    from speculative_operator.domain.spec import Method

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


def _trace(options: argparse.Namespace) -> Trace:
    from speculative_lab.plant import traces

    lines = commands.read_text(options.trace, "--trace", LARGEST_TRACE).splitlines()
    try:
        return traces.read(lines, options.format or _format(lines)).sped_up(options.speed_up)
    except traces.TraceError as problem:
        raise CommandError(f"{options.trace}: {problem}") from None


def _format(lines: list[str]) -> Format:
    """What the first line looks like."""
    first = next((line.strip() for line in lines if line.strip()), "")
    return "jsonl" if first.startswith("{") else "csv"
