"""Tell before anything is deployed whether speculation is worth it: memory, K and gain by load, cost, and a verdict.

The figures are those with which the operator starts: its model of the machine, fitted to published measurements, and
the acceptance that publications report for the method. Nothing is measured; the interval says how far off that may be.
Without --read nothing is downloaded, and shapes come from the package's catalogue of models. A verifier or accelerator
that nothing knows gets no figures: the verdict is "not known", with what to give.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from speculative_operator.cli import commands, terminal
from speculative_operator.cli.check import judge_pair, read_models
from speculative_operator.cli.commands import FAILED, OK, CommandError, UsageError
from speculative_operator.cli.pairs import add_catalogue, rows_of
from speculative_operator.domain.spec import Workload
from speculative_operator.pairing.memory import fit
from speculative_operator.pairing.shapes import pair_facts
from speculative_operator.weights.source import WeightsError

if TYPE_CHECKING:
    from speculative_operator.cli.planning import Plan
    from speculative_operator.cli.subject import Subject

EPILOG = """examples:
  speculative plan Qwen/Qwen3-8B --on H100-SXM
  speculative plan pair.yaml
  speculative plan pair.yaml --load 24 --context 6000
  speculative plan pair.yaml --workload Chat
  speculative plan pair.yaml --read --output json

exit status: 0 speculation is expected to pay, 1 it is not, the pair cannot be served, or model or accelerator are not
known, 2 wrong use"""

_HEADERS = ("requests", "start K", "best K", "gain", "80 % interval", "TPOT ms", "without", "cost/1k", "without")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    add = parser.add_argument
    commands.add_object(parser)
    add("--load", metavar="N", type=float, help="requests in one step of a pod that the verdict is about (the best)")
    add("--context", metavar="N", type=float, default=1000.0, help="tokens of a request in the cache (1000)")
    add("--prompt-ratio", metavar="R", type=float, default=1.0, help="prompt tokens per output token (1)")
    add(
        "--workload", metavar="KIND", type=str.capitalize, choices=[one.value for one in Workload],
        help=f"kind of text, in place of spec.speculation.workload: {', '.join(Workload)}",
    )  # fmt: skip
    add("--read", action="store_true", help="read the models' files, as `speculative check` does")
    add("--claims-at", metavar="DIR", default="", help="folder below which claims are mounted, for pvc://")
    add_catalogue(parser)
    terminal.add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan; the exit status. Raises CommandError."""
    from speculative_operator.cli.planning import plan_of

    commands.check_ranges(arguments, load=(1, 10_000_000), context=(1, 10_000_000), prompt_ratio=(0, 10_000))
    found, pair, misfit = _subject(arguments), "", ""
    if arguments.read:
        found, pair, misfit = _read(arguments, found)
    plan = plan_of(found, rows_of(arguments), arguments.context, arguments.prompt_ratio, arguments.load, misfit)
    plan.pair = pair
    if arguments.output == terminal.TEXT:
        _show(plan)
    else:
        print(terminal.format_document(plan.to_json(), arguments.output))
    return OK if plan.pays else FAILED


def _subject(arguments: argparse.Namespace) -> Subject:
    from speculative_operator.api.convert import SpecError
    from speculative_operator.cli.subject import subject

    try:
        found = subject(commands.read_object(arguments), rows_of(arguments))
    except SpecError as problem:
        raise UsageError(f"{arguments.file}: {problem}") from None
    return found.with_workload(Workload(arguments.workload)) if arguments.workload else found


def _read(arguments: argparse.Namespace, found: Subject) -> tuple[Subject, str, str]:
    """Read the models' files: returns the subject with their shapes, a sentence on pair and memory, and why the pair
    cannot be served, or an empty text. Raises CommandError."""
    from speculative_operator.reconcile.pair.verdicts import tuner_facts

    try:
        spec, sides, _ = read_models(found.spec, rows_of(arguments), arguments.claims_at)
    except WeightsError as problem:
        raise CommandError(str(problem)) from None
    verifier, speculator = sides["verifier"], sides.get("speculator")
    accelerator = found.policy.facts.accelerator
    verdict = judge_pair(spec, sides)
    memory = fit(verifier, speculator, spec, accelerator, context=int(arguments.context))
    facts = tuner_facts(spec, pair_facts(verifier, speculator, spec, accelerator))
    if memory.tokens is not None:
        facts = replace(
            facts,
            kv_capacity_tokens=memory.tokens,
            kv_capacity_tokens_without_speculator=memory.tokens_without_speculator,
        )
    errors = "; ".join(one.message for one in verdict.errors)
    pair = f"not compatible: {errors}" if errors else f"compatible, {len(verdict.warnings)} warnings"
    misfit = errors or (memory.message if memory.fits is False else "")
    return replace(found, policy=replace(found.policy, facts=facts)), f"{pair}; {memory.message}", misfit


def _show(plan: Plan) -> None:
    out = sys.stdout
    out.write(f"{plan.title}\n")
    for label, text in plan.facts():
        out.write(f"  {label:<11} {text}\n")
    if plan.rows:
        out.write("\n")
        priced = any(one.cost is not None for one in plan.rows)
        headers = _HEADERS if priced else _HEADERS[:7]
        terminal.write_table(
            out, headers, [one.cells(priced=priced) for one in plan.rows], frozenset(range(len(headers)))
        )
        out.write(f"{plan.end}\n\n" if plan.end else "\n")
    out.write(f"verdict: {plan.verdict}\n")
    for line in plan.advice:
        out.write(f"  {line}\n")
