"""Tell whether the output with drafts is the same as without, on the pods that serve NAME.

Prompts are answered greedily by one ready pod, with the logprobs of the most likely tokens: twice while the operator
keeps K at 0, then with the K of the table. Where answers part, the logprobs tell a tie of numerics from another
distribution; the second answer without drafts shows what the engine does not repeat by itself. Meanwhile no request of
the object has drafts; that ends with the command, and by itself. With --against the answers without drafts come from
the pods of another object, such as one with mode: Disabled, and nothing is suspended. The result is kept in the object,
whose condition OutputsVerified tells it while such pods run.
"""

from __future__ import annotations

import argparse
import time

from speculative_operator.cli import cluster, commands
from speculative_operator.cli.asking import Engine, prompts_of
from speculative_operator.cli.cluster import Cluster, plain
from speculative_operator.cli.commands import FAILED, OK, CommandError
from speculative_operator.cli.suspending import MOST_MINUTES, check_comparable, check_live, suspended, wait
from speculative_operator.domain import names
from speculative_operator.domain.formats import timestamp
from speculative_operator.outputs.judge import Judgement, Kind, Run, judge
from speculative_operator.outputs.record import Record, Verdict

EPILOG = """examples:
  speculative verify qwen3-8b -n models
  speculative verify qwen3-8b --prompts ours.jsonl --tokens 512 --parallel 8 --minutes 15
  speculative verify qwen3-8b --against qwen3-8b-plain

exit status: 0 Same or SameButTies, 1 Different, or it could not be found out, 2 wrong use"""

LINES = 10
"""Answers that part and are shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    add = parser.add_argument
    add("name", metavar="NAME", help="the SpeculativeDeployment")
    cluster.add_arguments(parser)
    add("--against", metavar="OTHER", default="", help="object whose pods answer without drafts; K stays then")
    add("--prompts", metavar="FILE", default="", help='one a line, or JSON lines with "prompt" (a built-in set)')
    add("--limit", metavar="N", type=int, default=0, help="only the first N prompts")
    add("--tokens", metavar="N", type=int, default=128, help="tokens of each answer (128)")
    add("--parallel", metavar="N", type=int, default=1, help="prompts at once (1); K is that of this batch size")
    add("--minutes", metavar="M", type=int, default=5, help="minutes for which drafts are suspended (5, up to 15)")
    add("--model", metavar="M", default="", help="served name to ask for, such as an adapter's (the first)")


def run(arguments: argparse.Namespace) -> int:
    """Ask, judge, print and keep the result; the exit status. Raises CommandError."""
    commands.check_ranges(arguments, tokens=(1, 4096), parallel=(1, 256), minutes=(1, MOST_MINUTES))
    prompts = prompts_of(arguments.prompts)[: arguments.limit or None]
    at, name = Cluster(arguments), arguments.name
    body = at.object(name)
    engine = Engine(at, name, arguments, prompts)
    if arguments.against:
        check_comparable(body, at.object(arguments.against))
        other = Engine(at, arguments.against, arguments, prompts)
        without, control = _undrafted(other, f"{arguments.against} drafts too; set its spec.speculation.mode: Disabled")
    else:
        check_live(body)
        with suspended(at, name, engine, arguments.minutes):
            without, control = _undrafted(engine, "the pod drafted though drafts were suspended; run it again")
    judgement = judge(without, control, _drafted(engine))
    _show(judgement, len(prompts))
    if engine.template:
        found = (len(prompts), judgement.tokens, judgement.count(Kind.TIE), judgement.count(Kind.DIFFERENT))
        record = Record(judgement.verdict, engine.template, timestamp(time.time()), *found)
        at.annotate(name, names.ANNOTATION_VERIFIED, record.to_text())
    return FAILED if judgement.verdict is Verdict.DIFFERENT else OK


def _undrafted(engine: Engine, why: str) -> tuple[Run, Run]:
    """Two runs without drafts. Raises CommandError saying `why` where the pod drafted in them."""
    before = engine.count_drafts()
    runs = engine.answers(), engine.answers()
    if engine.count_drafts() != before:
        raise CommandError(why)
    return runs


def _drafted(engine: Engine) -> Run:
    """A run with drafts. Raises CommandError where the pod drafts nothing."""
    if engine.count_drafts() is not None and not wait(engine, drafts=True):
        raise CommandError("the pod drafts nothing: the table's K is 0 at this load", "nothing is there to verify")
    return engine.answers()


def _show(found: Judgement, prompts: int) -> None:
    for one in found.partings[:LINES]:
        words = " and ".join(f"{plain(token.token)!r} {token.logprob:.2f}" for token in (one.without, one.drafted))
        print(f"prompt {one.prompt}, token {one.position}: {one.kind} ({words})")
    if len(found.partings) > LINES:
        print(f"and {len(found.partings) - LINES} more")
    if found.drifts:
        both = f"{found.drift:.2f} nats, without drafts by {found.control_drift:.2f}"
        print(f"logprobs of the same tokens differ by {both}")
    counts = ", ".join(f"{found.count(kind)} {what}" for kind, what in _PARTS.items())
    print(f"{found.verdict}: {prompts} prompts, {found.tokens} tokens compared; answers that part: {counts}")
    print(f"A fault in one of {found.resolution} tokens would have shown itself with a chance of 95 %.")


_PARTS = {
    Kind.TIE: "at a tie",
    Kind.DIFFERENT: "elsewhere",
    Kind.UNSTEADY: "without drafts too, which count for nothing",
}
