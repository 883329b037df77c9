"""Show one SpeculativeDeployment: its pair, its pods, the table with the load of now, the last decisions, and what it
waits for. With --watch, again whenever that changes."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

from speculative_operator.cli import cluster, colours, output
from speculative_operator.cli.cluster import Cluster, Object, condition, mode, number, ready, speculation
from speculative_operator.cli.diagnosis import Finding, faults_of, warnings_of
from speculative_operator.cli.errors import OK

EPILOG = """examples:
  speculative status qwen3-8b -n models
  speculative status qwen3-8b -n models --watch

exit status: 0 shown, 1 there is none of that name, or the cluster refused"""

WATCH_SECONDS = 2.0
DECISIONS_KEPT = 10
"""In the status."""
CLEAR = "\x1b[2J\x1b[H"
"""Has a terminal begin a new screen."""
_WIDTH = 24
"""Characters of the longest bar."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    parser.add_argument("name", metavar="NAME", help="the SpeculativeDeployment")
    parser.add_argument(
        "-w", "--watch", action="store_true", help="show it again whenever it changes, until interrupted"
    )
    output.add_arguments(parser, "all decisions that status keeps, and every condition")
    cluster.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the view; the exit status. Raises CommandError."""
    at, shown = Cluster(arguments), ""
    while True:
        body = at.object(arguments.name)
        text = cluster.plain(_text(body, at.pods(arguments.name), arguments.output))
        if text != shown:
            sys.stdout.write(CLEAR if arguments.watch and sys.stdout.isatty() else "\n" if shown else "")
            colours.write(sys.stdout, text)
            shown = text
        if not arguments.watch:
            return OK
        time.sleep(WATCH_SECONDS)


def _text(body: Object, pods: Sequence[Object], form: str) -> str:
    if form in (output.JSON, output.YAML):
        return output.document(body, form)
    return "\n".join(view(body, pods, wide=form == output.WIDE))


def view(body: Object, pods: Sequence[Object] = (), *, wide: bool = False) -> Iterator[str]:
    """The lines of one object and its pods."""
    meta, status, seen = body["metadata"], body.get("status") or {}, speculation(body)
    yield f"{meta['name']} in {meta['namespace']}: {_state(condition(body, 'Ready'))}, mode {mode(body)}"
    yield from _pair(body)
    yield f"  pods        {ready(body).replace('/', ' of ')} ready"
    yield from _pods(seen, pods)
    if seen.get("concurrency"):
        yield f"  load        {seen['concurrency']} requests a step and pod"
    if _speed(seen):
        yield f"  speed       {_speed(seen)}"
    yield from _table(seen)
    yield from _decisions(status, DECISIONS_KEPT if wide else 3)
    yield from _waits(body)
    for one in status.get("conditions") or () if wide else ():
        yield f"  condition   {one.get('type')} {one.get('status')}, {one.get('reason')}: {one.get('message', '')}"


def _state(found: Object) -> str:
    if not found:
        return "the operator has not looked at it yet"
    return f"{'ready' if found.get('status') == 'True' else 'not ready'} ({found.get('reason')})"


def _pair(body: Object) -> Iterator[str]:
    status = body.get("status") or {}
    pair, method = status.get("pair") or {}, speculation(body).get("method")
    yield f"  verifier    {pair.get('verifier') or body['spec']['verifier']['model']}"
    speculator = pair.get("speculator") or method
    if speculator:
        yield f"  speculator  {speculator}" + (f" ({method})" if method and method != speculator else "")
    progress = (status.get("weights") or {}).get("text")
    if progress and condition(body, "WeightsReady").get("status") != "True":
        yield f"  weights     {progress}"


def _pods(seen: Object, pods: Sequence[Object]) -> Iterator[str]:
    """Each pod with its state, and the version of the table that was delivered to it."""
    from speculative_operator.reconcile.pods import read_pods

    found = read_pods(pods)
    wide = max((len(one.name) for one in found), default=0)
    newest = str(seen.get("tableVersion", ""))
    for one in found:
        state = "ready" if one.ready else one.trouble or "not ready"
        version = one.poked.partition("-")[0]
        late = f", not yet {newest}" if newest not in ("", version) else ""
        table = f"  table {version}{late}" if version else ""
        yield f"    {one.name:<{wide}}  {state}{table}"


def _speed(seen: Object) -> str:
    parts = [f"{seen['tpot']} per token" if seen.get("tpot") else ""]
    parts += [f"{seen['tpotOff']} without speculation" if seen.get("tpotOff") else ""]
    parts += [f"gain {seen['gain']} ({seen.get('gainRange', '')})" if seen.get("gain") else ""]
    parts += [f"{seen['acceptanceRate']} of draft tokens accepted" if seen.get("acceptanceRate") else ""]
    return ", ".join(part for part in parts if part)


def _table(seen: Object) -> Iterator[str]:
    """The table as a bar for each row, and where the load of now is."""
    rows = [row for row in seen.get("table") or () if isinstance(row, list) and len(row) == 3]
    if not rows:
        return
    off = ", waits for the speculator's return" if seen.get("hardOff") else ""
    yield f"  table       version {seen.get('tableVersion', '?')}{off}"
    now, most = number(seen.get("concurrency")), max(1, *(k for _, _, k in rows))
    for first, last, k in rows:
        here = "  <- load now" if now is not None and first <= max(round(now), 1) <= last else ""
        bar = "█" * max(round(_WIDTH * k / most), 1 if k else 0)
        yield f"    {f'{first}-{last}':>9} requests  K {k:<2} {bar}{here}".rstrip()
    if seen.get("tries"):
        yield f"  trials      {seen['tries']}"


def _decisions(status: Object, most: int) -> Iterator[str]:
    found = (status.get("decisions") or ())[:most]
    if found:
        yield "  decisions"
    for one in found:
        change = f"{one['from']} -> {one.get('to', '')}" if one.get("from") else str(one.get("to", ""))
        yield f"    {str(one.get('time', ''))[:19]}  {one.get('reason', '')}: {change}"
        if one.get("message"):
            yield f"      {one['message']}"


def _waits(body: Object) -> Iterator[str]:
    """What is wrong, proposals and warnings: each with what the operator says of it, and what to do."""
    for one in faults_of(body):
        yield f"  waits       {one.source} {one.reason}: {one.message}"
        yield from _next(one)
    proposal = ((body.get("status") or {}).get("rollout") or {}).get("proposal")
    if proposal:
        yield f"  proposes    {proposal.get('message', '')}"
        yield f"              speculative approve {body['metadata']['name']} -n {body['metadata']['namespace']}"
    for one in warnings_of(body):
        yield f"  warning     {one.reason}: {one.message}"


def _next(one: Finding) -> Iterator[str]:
    if one.next:
        yield f"  next        {one.next}"
