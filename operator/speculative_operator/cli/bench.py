"""Load NAME with a ladder of request rates, with drafts and without, and show times and throughput beside each other.

GuideLLM sends the requests, from Jobs in the namespace, one at a time: at each rate with drafts, without, without,
with, so that what drifts meets both sides. Without --against, drafts of NAME are suspended meanwhile for all its
requests; with it, OTHER serves those without drafts, such as an object with mode: Disabled. What will be sent is said
before. An object that serves other requests now is loaded only with --yes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from itertools import groupby

from speculative_operator.cli import bench_page, cluster, commands, terminal
from speculative_operator.cli.asking import Engine, prompts_of
from speculative_operator.cli.bench_jobs import keep, noted_steps, prompts, send
from speculative_operator.cli.cluster import Cluster, Object
from speculative_operator.cli.commands import OK, CommandError, UsageError
from speculative_operator.cli.subject import spec_of
from speculative_operator.cli.suspending import check_comparable, check_live, suspended, wait
from speculative_operator.comparing.ladder import Measure, Rung, Step, mean, rungs, verdict
from speculative_operator.domain import names
from speculative_operator.domain.spec import Mode
from speculative_operator.engines.exposition import ExpositionError, parse
from speculative_operator.engines.vllm import reading
from speculative_operator.render.load_job import IMAGE, START_SECONDS, Load, prompts_map

EPILOG = """examples:
  speculative bench qwen3-8b --against qwen3-8b-plain -n models --html bench.html
  speculative bench qwen3-8b -n models --rates 1,4,16 --data prompts.jsonl --yes
  speculative bench qwen3-8b -n models --show

exit status: 0 measured or shown, 1 failed, or not begun without --yes, 2 wrong use"""

WARM_SECONDS = 15
"""Of a first step that counts for nothing: it has the image pulled and the engine warm."""
OVERHEAD_SECONDS = 40
"""That a step takes beside its requests, about."""
LOOK_SECONDS = 3.0
"""Between two looks at whether an object serves requests."""
_TOKENS = (reading.GENERATED, reading.PROMPT)
_REQUESTS = (reading.RUNNING, reading.WAITING)
_DRAFTED = (reading.DRAFTS, reading.DRAFT_TOKENS, reading.ACCEPTED)
_HEADERS = ("rate/s", "measure", "without", "with", "with / without", "repeats")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    add = parser.add_argument
    add("name", metavar="NAME", help="the SpeculativeDeployment")
    cluster.add_arguments(parser)
    add("--against", metavar="OTHER", default="", help="object whose pods answer without drafts; K of NAME stays then")
    add("--rates", metavar="R,R,..", default="1,2,4,8", help="requests per second, evenly spaced (1,2,4,8)")
    add("--seconds", metavar="S", type=int, default=60, help="for which each rate is sent (60, up to 180)")
    add("--repeats", metavar="N", type=int, default=2, help="of each rate on each side (2)")
    add("--prompt-tokens", metavar="N", type=int, default=512, help="of prompts made of English words, about (512)")
    add("--output-tokens", metavar="N", type=int, default=256, help="of each answer; with --data at most (256)")
    add("--data", metavar="FILE", default="", help='own prompts: one a line, or JSON lines with "prompt"')
    add("--model", metavar="M", default="", help="served name to ask for, such as an adapter's (the first)")
    add("--completions", action="store_true", help="ask /v1/completions, for models without a chat template")
    add("--api-key-secret", metavar="NAME:KEY", default="", help="Secret with the engine's API key")
    add("--image", metavar="IMAGE", default="", help="of GuideLLM 0.8 (its own)")
    add("--html", metavar="FILE", default="", help="write a page with the picture")
    add("--yes", action="store_true", help="also load an object that serves requests now")
    add("--show", action="store_true", help="measure nothing: show the last result, of a day at most")
    add("-o", "--output", choices=(terminal.TEXT, terminal.JSON), default=terminal.TEXT, help="json: one object")


def run(arguments: argparse.Namespace) -> int:
    """Measure or read, and print; the exit status. Raises CommandError."""
    plan, at, steps = _plan(arguments), Cluster(arguments), list[Step]()
    if arguments.show:
        steps += noted_steps(at, arguments.name)
    else:
        try:
            _measure(at, arguments, plan, steps)
        except KeyboardInterrupt:
            told = f"{len(steps)} of {len(plan)} steps are measured and kept"
            print(f"stopped: {told}; speculative bench {arguments.name} --show", file=sys.stderr)
            raise
    if not steps:
        raise CommandError(f"no result of {arguments.name} is kept", "run it without --show")
    ladder = rungs(steps)
    rows, said = list(_rows(ladder)), [*verdict(ladder), *_CANNOT]
    if arguments.html:
        bench_page.write(arguments.html, arguments.name, ladder, rows, said)
    if arguments.output == terminal.JSON:
        print(json.dumps({"name": arguments.name, "rungs": [asdict(one) for one in ladder], "said": said}))
        return OK
    terminal.write_table(sys.stdout, _HEADERS, rows, frozenset((0, 2, 3, 4)))
    print("", *said, sep="\n")
    return OK


def _plan(given: argparse.Namespace) -> list[Step]:
    """The steps in their order. Raises UsageError."""
    commands.check_ranges(
        given, seconds=(10, 180), repeats=(1, 10), prompt_tokens=(8, 100_000), output_tokens=(2, 10_000)
    )
    try:
        rates = [float(one) for one in given.rates.split(",")]
    except ValueError:
        rates = []
    if not rates or not all(0.01 <= one <= 1000 for one in rates):
        raise UsageError(f"--rates is {given.rates!r}", "give requests per second, 0.01 to 1000, such as 1,2,4,8")
    return [
        Step(rate, drafts, repeat)
        for rate in sorted(set(rates))
        for repeat in range(1, given.repeats + 1)
        for drafts in ((True, False) if repeat % 2 else (False, True))
    ]


def _measure(at: Cluster, given: argparse.Namespace, plan: Sequence[Step], done: list[Step]) -> None:
    """Add each step to `done` when it is over. Raises CommandError."""
    own = prompts_of(given.data) if given.data else []
    sides = {True: at.object(given.name), False: at.object(given.against or given.name)}
    check_comparable(*sides.values()) if given.against else check_live(sides[True])
    load = _load(given, sides[True])
    loads = {drafts: replace(load, url=_url(body)) for drafts, body in sides.items()}
    _announce(given, plan, loads)
    _check_quiet(at, given)
    engine = None if given.against else Engine(at, given.name, given, [" ".join(own[:1]) or "Once upon a time"])
    warm = (True, False) if given.against else (True,)
    with prompts(at, given.name, prompts_map(load, own, len(plan) + len(warm))):
        node = ""
        for number, drafts in enumerate(warm, len(plan)):
            short = replace(loads[drafts], seconds=min(WARM_SECONDS, given.seconds))
            _, pod = send(at, short, Step(plan[0].rate, drafts, 0), number, node)
            node = str(pod["spec"].get("nodeName") or "")
        for drafts, group in groupby(enumerate(plan), key=lambda one: one[1].drafts):
            block, name = list(group), sides[drafts]["metadata"]["name"]
            with _side(at, given, engine, drafts, len(block)):
                for number, planned in block:
                    _check_quiet(at, given)
                    before = _counted(at, name, _DRAFTED)
                    step, pod = send(at, loads[drafts], planned, number, node)
                    step = _with_drafts(step, before, _counted(at, name, _DRAFTED), sides[drafts])
                    keep(at, pod, step)
                    print(_progress(step, given.repeats), file=sys.stderr)
                    done.append(step)


def _load(given: argparse.Namespace, body: Object) -> Load:
    """The requests for an object. Raises CommandError."""
    secret, _, key = given.api_key_secret.partition(":")
    if given.api_key_secret and not (secret and key):
        raise UsageError(f"--api-key-secret is {given.api_key_secret!r}", "write NAME:KEY")
    return Load(
        spec=spec_of({**body, "kind": names.KIND}), owner=str(body["metadata"]["uid"]), url=_url(body),
        data=f"{given.name[:40]}-bench-{time.time_ns() >> 20:x}",
        seconds=given.seconds, prompt_tokens=given.prompt_tokens, output_tokens=given.output_tokens,
        own_prompts=bool(given.data), image=given.image or IMAGE, model=given.model,
        path="/v1/completions" if given.completions else "/v1/chat/completions",
        key=(secret, key) if secret else None,
    )  # fmt: skip


def _url(body: Object) -> str:
    """Where an object is served. Raises CommandError where it is not."""
    name, status = body["metadata"]["name"], body.get("status") or {}
    if not status.get("url") or not status.get("readyReplicas"):
        raise CommandError(f"{name} has no ready pod", f"speculative status {name}")
    return str(status["url"])


def _announce(given: argparse.Namespace, plan: Sequence[Step], loads: Mapping[bool, Load]) -> None:
    """Say what will be sent where."""
    requests = sum(one.rate for one in plan) * given.seconds
    minutes = math.ceil(len(plan) * (given.seconds + OVERHEAD_SECONDS) / 60)
    without = f"without them to {loads[False].url}" if given.against else "without, while no request of it has drafts"
    words = f"{requests * given.prompt_tokens:,.0f} prompt and " if not given.data else ""
    print(
        f"{requests:,.0f} requests with {words}up to {requests * given.output_tokens:,.0f} output tokens, "
        f"about {minutes} minutes: {given.rates} requests/s for {given.seconds} s each, {given.repeats} times with "
        f"drafts to {loads[True].url}, and {without}",
        file=sys.stderr,
    )


def _check_quiet(at: Cluster, given: argparse.Namespace) -> None:
    """Raises CommandError where requests of others come, or may come unseen, and that was not allowed."""
    if given.yes:
        return
    first = {name: _counted(at, name, _TOKENS) for name in {given.name, given.against or given.name}}
    time.sleep(LOOK_SECONDS)
    for name, before in first.items():
        running, after = _counted(at, name, _REQUESTS), _counted(at, name, _TOKENS)
        if before is None or running is None:
            raise CommandError(f"whether {name} serves requests cannot be seen", "--yes loads it all the same")
        if sum(running) or after != before:
            raise CommandError(f"{name} serves requests now", "wait for a quiet hour, or --yes to load it all the same")


def _side(
    at: Cluster, given: argparse.Namespace, engine: Engine | None, drafts: bool, steps: int
) -> AbstractContextManager[None]:
    """Has drafts suspended for so many steps where that is what they need. Raises CommandError where the pods draft
    nothing when they should."""
    if engine is not None and not drafts:
        return suspended(at, given.name, engine, math.ceil(steps * (given.seconds + START_SECONDS) / 60) + 1)
    if engine is not None and not wait(engine, drafts=True):
        why = f"the pods of {given.name} draft nothing: K is 0 at one request"
        raise CommandError(why, "nothing is there to compare")
    return nullcontext()


def _counted(at: Cluster, name: str, wanted: Sequence[str]) -> list[float] | None:
    """Sums of vLLM's counters over the pods of an object; 0 for what none counts, None where they cannot be read."""
    try:
        found = [parse(at.ask(pod, "metrics"), (*wanted, reading.GENERATED)) for pod in at.pods(name)]
    except (CommandError, ExpositionError):
        return None
    totals = [sum(value for page in found for (series, _), value in page.items() if series == one) for one in wanted]
    return totals if found and all(found) else None


def _with_drafts(step: Step, before: list[float] | None, after: list[float] | None, body: Object) -> Step:
    """The step with K and acceptance length by counters of the pods. Raises CommandError where pods drafted and should
    not have, or may have."""
    name = body["metadata"]["name"]
    if before is None or after is None or any(b < a for a, b in zip(before, after, strict=True)):
        if step.drafts or cluster.mode(body) == Mode.DISABLED:
            return step
        raise CommandError(f"whether pods of {name} drafted in a step without drafts cannot be seen", "run it again")
    drafts, tokens, accepted = (b - a for a, b in zip(before, after, strict=True))
    if tokens and not step.drafts:
        raise CommandError(f"pods of {name} drafted {tokens:.0f} tokens in a step without drafts", "run it again")
    return replace(step, k=tokens / drafts, acceptance_length=1 + accepted / drafts) if drafts else step


def _progress(step: Step, repeats: int) -> str:
    told = f"{step.rate:g}/s {'with drafts' if step.drafts else 'without'}, {step.repeat} of {repeats}"
    return f"{told}: {_requests([step])}, TPOT {_figure(Measure.TPOT, [step])}"


def _rows(ladder: Sequence[Rung]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table."""
    for rung in ladder:
        rate = f"{rung.rate:g}"
        for measure in Measure:
            ratio = rung.ratio(measure)
            value = f"{ratio.value:.3f}" if ratio else "-"
            spread = f"{ratio.low:.3f} to {ratio.high:.3f}" if ratio and ratio.repeats > 1 else "-"
            yield rate, measure, _figure(measure, rung.plain), _figure(measure, rung.drafted), value, spread
        yield rate, "requests", _requests(rung.plain), _requests(rung.drafted), "", ""
        known = [(one.k, one.acceptance_length) for one in rung.drafted if one.k and one.acceptance_length]
        if known:
            k, length = (sum(own) / len(known) for own in zip(*known, strict=True))
            yield rate, "K, acceptance length", "", f"{k:.2f}, {length:.2f}", "", ""


def _figure(measure: Measure, steps: Sequence[Step]) -> str:
    value = mean(steps, measure)
    if value is None:
        return "-"
    return f"{value:.4g}" if measure is Measure.THROUGHPUT else f"{1000 * value:.4g} ms"


def _requests(steps: Sequence[Step]) -> str:
    done, failed, cut = (sum(getattr(one, name) for one in steps) for name in ("done", "failed", "cut"))
    return f"{done} done, {failed} failed, {cut} cut off"


_CANNOT = (
    "One look: the range of the repeats is no confidence interval, and evenly spaced requests queue less than yours.",
    "Words put together at random are accepted otherwise than your text: --data sends prompts of yours.",
    "speculative compare judges by real requests.",
)
