"""Compare two objects by what their pods served in the same hours: time per token, time to first token, their 99th
percentiles, tokens per second and accelerator, and cost, at equal batch size and share of prompt tokens; or at equal
requests per second and pod, where the two hardly ever have the same batch size.

A is what serves now, such as an object with `mode: Disabled`; B is what may take its place. Ratios are B over A, with
intervals that hold however often one looks: in at most one of twenty comparisons of equal objects is anything ever
Better or Worse. Figures come from the engines' counters in Prometheus. Nothing is written to the cluster.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from speculative_operator.cli import cluster, commands, terminal
from speculative_operator.cli.cluster import Cluster
from speculative_operator.cli.commands import OK, CommandError, UsageError
from speculative_operator.comparing.matching import Basis
from speculative_operator.comparing.measures import Sample
from speculative_operator.comparing.verdict import Comparison, Judged, Measure, Verdict, compare

if TYPE_CHECKING:
    from speculative_operator.cli.history import Ask, Subject

EPILOG = """examples:
  speculative compare qwen3-8b-plain qwen3-8b -n models
  speculative compare qwen3-8b-plain qwen3-8b -n models --since 15m --watch
  speculative compare a b --prometheus http://127.0.0.1:9090 -o json

exit status: 0 B is Better or Equivalent, 1 B is Worse or the command failed (then it prints `error:` and no verdict),
2 Undecided, or wrong use"""

WATCH_SECONDS = 30.0
UNDECIDED = 2
HEADERS = ("measure", "A", "B", "B / A", "interval", "verdict")
_DAY = 86_400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    add = parser.add_argument
    add("a", metavar="A", help="the SpeculativeDeployment that serves now")
    add("b", metavar="B", help="the one that is held against it")
    add("--since", metavar="WHEN", default="1h", help="figures from then on: 1h (ago), 2026-01-31T12:00:00Z (1h)")
    add("--prometheus", metavar="URL", default="", help="address of Prometheus (that of the cluster)")
    add("-w", "--watch", action="store_true", help="compare every half minute until there is a verdict")
    add("-o", "--output", choices=("text", "json"), default="text", help="json: one object")
    cluster.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison; the exit status. Raises CommandError."""
    from speculative_operator.cli.history import Subject, asking

    if arguments.a == arguments.b:
        raise UsageError(f"A and B are both {arguments.a}", "name two objects; `speculative explain` tells of one")
    began = commands.parse_moment(arguments.since, "--since", time.time())
    if not 0 < time.time() - began <= 31 * _DAY:
        raise UsageError(f"--since is {arguments.since!r}", "write how long ago, such as 1h, at most 31d")
    at = Cluster(arguments)
    bodies = [at.object(name) for name in (arguments.a, arguments.b)]
    ask = asking(at, arguments.prometheus)
    while True:
        subjects = [Subject.of(body, at.pods(body["metadata"]["name"])) for body in bodies]
        samples = _common_hours(ask, subjects, began, time.time())
        found = compare(samples[0], samples[1])
        _print(arguments.output, subjects, samples, found)
        if found.verdict is not Verdict.UNDECIDED:
            return commands.FAILED if found.verdict is Verdict.WORSE else OK
        if not arguments.watch:
            return UNDECIDED
        time.sleep(WATCH_SECONDS)


def _common_hours(ask: Ask, subjects: Sequence[Subject], began: float, now: float) -> list[list[Sample]]:
    """Samples of both objects of the time in which both served. Raises CommandError where there is none."""
    from speculative_operator.cli.history import read

    for one in subjects:
        if not one.pods:
            name = one.spec.name
            raise CommandError(f"{name} has no pods, or you may not list them", f"speculative status {name}")
    found = read(ask, subjects, began, now)
    for one, samples in zip(subjects, found, strict=True):
        if not samples:
            raise CommandError(
                f"Prometheus has no figures of {one.spec.name} since {commands.format_time(began)} UTC",
                "speculative doctor tells how Prometheus finds the pods; or give a longer --since",
            )
    first, last = max(own[0].start for own in found), min(own[-1].end for own in found)
    if first >= last:
        spans = [[commands.format_time(end) for end in (own[0].start, own[-1].end)] for own in found]
        told = [f"{one.spec.name} from {span[0]} to {span[1]} UTC" for one, span in zip(subjects, spans, strict=True)]
        raise CommandError(f"the two have no hours in common: {', '.join(told)}", "let both serve, and compare then")
    return [[one for one in own if first - 1 <= one.start and one.end <= last + 1] for own in found]


def _print(form: str, subjects: Sequence[Subject], samples: Sequence[Sequence[Sample]], found: Comparison) -> None:
    if form == "json":
        sides = {side: one.spec.name for side, one in zip("ab", subjects, strict=True)}
        print(json.dumps({**sides, "models": [_models(one) for one in subjects], **asdict(found)}), flush=True)
        return
    for side, one in zip("AB", subjects, strict=True):
        pods = f"{len(one.pods)} pod{'s' if len(one.pods) != 1 else ''}"
        print(cluster.plain(f"{side}  {one.spec.name}: {_models(one)}, {pods}"))
    if len({one.spec.verifier.source.uri for one in subjects}) > 1:
        print("   the verifiers differ: what follows says nothing of the quality of their answers")
    seconds = samples[0][-1].end - samples[0][0].start if all(samples) else 0.0
    both, matched = commands.format_age(seconds), commands.format_age(found.matched_seconds)
    print(f"   the same {both}, compared at {found.basis} ({matched} of it)")
    if found.basis is Basis.ARRIVALS:
        print("   (they had too little time at the same batch size: this is what clients feel at this traffic)")
    print()
    terminal.write_table(sys.stdout, HEADERS, [row(one) for one in found.measures], frozenset((1, 2, 3, 4)))
    print(*_costs(subjects, samples, found), "", _last_line(subjects, found), sep="\n", flush=True)


def _models(one: Subject) -> str:
    picked = ((one.body.get("status") or {}).get("pair") or {}).get("speculator")
    given = one.spec.speculator.source if one.spec.speculator is not None else None
    speculator = picked or (given.uri if given is not None else "")
    told = f"speculator {speculator}, " if speculator else ""
    return f"{one.spec.verifier.source.uri}, {told}mode {cluster.mode(one.body)}"


def row(one: Judged) -> tuple[str, ...]:
    """One measure as the table shows it, by `HEADERS`. The demo uses it too."""
    if one.a is None or one.b is None or one.ratio is None:
        return one.measure, "-", "-", "-", "-", f"{one.verdict}: {one.why}"
    ends = ["?" if end is None else f"{end:.3f}" for end in (one.low, one.high)]
    verdict = f"{one.verdict}: {one.why}" if one.why else str(one.verdict)
    return (
        one.measure, _figure(one, one.a), _figure(one, one.b), f"{one.ratio:.3f}",
        "-" if ends == ["?", "?"] else f"{ends[0]} to {ends[1]}", verdict,
    )  # fmt: skip


def _figure(one: Judged, value: float) -> str:
    if one.measure is Measure.COST:
        return f"{value:.3g}"
    return f"{value:.4g}" if one.measure is Measure.THROUGHPUT else f"{1000 * value:.4g} ms"


def _costs(subjects: Sequence[Subject], samples: Sequence[Sequence[Sample]], found: Comparison) -> Iterator[str]:
    """Yield the arithmetic of the cost, and what the present traffic of both costs if one of them serves all of it."""
    cost, speed = found.of(Measure.COST), found.of(Measure.THROUGHPUT)
    if cost.a is None or cost.b is None or speed.a is None or speed.b is None:
        return
    yield ""
    for side, one, tokens, price in zip("AB", subjects, (speed.a, speed.b), (cost.a, cost.b), strict=True):
        hourly = one.spec.accelerator.hourly_cost
        yield f"{side}  {hourly:g} an hour / 3600 s / {tokens:.4g} tokens/s x 1000 = {price:.3g} per 1,000 tokens"
    rate = sum(sum(one.tokens for one in own) / sum(one.seconds for one in own) for own in samples)
    daily = [rate * _DAY / 1000 * price for price in (cost.a, cost.b)]
    a, b = (f"{each:,.2f} a day, {365 * each:,.0f} a year" for each in daily)
    yield f"   the present {rate:.4g} tokens/s cost A {a}; B {b}"
    yield "   (while steps run: hours in which accelerators wait come on top)"


def _last_line(subjects: Sequence[Subject], found: Comparison) -> str:
    """The overall verdict and what to do."""
    a, b = (one.spec.name for one in subjects)
    next_step = {
        Verdict.BETTER: f"let {b} serve in place of {a}",
        Verdict.EQUIVALENT: f"keep whichever is simpler: at these loads {b} costs and gains nothing",
        Verdict.WORSE: f"keep {a}; speculative explain {b} tells why",
        Verdict.UNDECIDED: "let both serve longer, at the same load; --watch waits for a verdict",
    }[found.verdict]
    return f"{found.verdict}: {found.why}; {next_step}"
