"""Show one SpeculativeDeployment as a tree: its pair with its progress and its pods, the table with the load of now,
the last decisions, and what it waits for. With --watch, again whenever that changes."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence

from speculative_operator.cli import cluster, commands, terminal
from speculative_operator.cli.cluster import Cluster, Object, condition, mode, number, plain, ready, skips, speculation
from speculative_operator.cli.commands import OK
from speculative_operator.cli.diagnosis import faults_of, next_step, silence_of, warnings_of
from speculative_operator.domain.reading import seconds_of

EPILOG = """examples:
  speculative status qwen3-8b -n models
  speculative status qwen3-8b -n models --watch

exit status: 0 shown, 1 there is none of that name, or the cluster refused"""

WATCH_SECONDS = 2.0
DECISIONS_KEPT = 10
"""Number of decisions that the status keeps."""
CLEAR = "\x1b[H\x1b[2J"
"""The sequence with which a terminal begins a new screen."""
_WIDTH = 24
"""Characters of the longest bar."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    parser.add_argument("name", metavar="NAME", help="the SpeculativeDeployment")
    parser.add_argument(
        "-w", "--watch", action="store_true", help="show it again whenever it changes, until interrupted"
    )
    terminal.add_format(parser, "all decisions that status keeps, and every condition")
    cluster.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the view; the exit status. Raises CommandError."""
    at, began, shown = Cluster(arguments), time.time(), None
    redraws = arguments.watch and sys.stdout.isatty()
    while True:
        body, pods, silent = at.object(arguments.name), at.pods(arguments.name), at.operator_silent(time.time())
        known = view(body, pods, began, silent and began, wide=True)  # an age that grows prints nothing anew
        if shown != known or redraws:
            sys.stdout.write(CLEAR if redraws else "" if shown is None else "\n")
            _write(body, pods, silent, arguments)
            shown = known
        if not arguments.watch:
            return OK
        time.sleep(WATCH_SECONDS)


def _write(body: Object, pods: Sequence[Object], silent: float | None, arguments: argparse.Namespace) -> None:
    form, now = arguments.output, time.time()
    if form in (terminal.JSON, terminal.YAML):
        print(cluster.plain(terminal.format_document(body, form)), flush=True)
        return
    lines = view(body, pods, now, silent, wide=form == terminal.WIDE)
    shown = add_time(lines, now) if arguments.watch else lines
    terminal.write_coloured(sys.stdout, "\n".join(shown))


def add_time(lines: Sequence[str], now: float) -> list[str]:
    """The lines with the time at which they were read."""
    return [f"{lines[0]}, {commands.format_time(now)} UTC", *lines[1:]]


def view(
    body: Object, pods: Sequence[Object], now: float, silent: float | None = None, *, wide: bool = False
) -> list[str]:
    """The lines on one object and its pods at unix time `now`, `silent` seconds after the operator's last sign of life
    where that is too long ago. Each is indented by its depth in the tree."""
    meta, status, seen = body["metadata"], body.get("status") or {}, speculation(body)
    below = [*_pair(body, pods, now)]
    if _speed(seen):
        below.append(f"speed  {_speed(seen)}{cluster.age_of(seen, now)}")
    below += [
        *_table(seen, skips(body)),
        *_decisions(status, DECISIONS_KEPT if wide else 3),
        *_canary(body),
        *_waits(body, silent),
    ]
    conditions = status.get("conditions") or () if wide else ()
    if conditions:
        below.append("conditions")
    for one in conditions:
        below.append(f"  {one.get('type')} {one.get('status')}, {one.get('reason')}: {one.get('message')}")
    root = f"{meta['name']} in {meta['namespace']}: {_state(condition(body, 'Ready'))}, mode {mode(body)}"
    return [plain(root), *(f"  {plain(one)}" for one in below)]


def _state(found: Object) -> str:
    if not found:
        return "the operator has not looked at it yet"
    return f"{'ready' if found.get('status') == 'True' else 'not ready'} ({found.get('reason')})"


def _pair(body: Object, pods: Sequence[Object], now: float) -> Iterator[str]:
    """Yield both models, how far their weights are, and the pods made of them."""
    status, method = body.get("status") or {}, speculation(body).get("method")
    pair = status.get("pair") or {}
    yield f"pair  {method}" if method else "pair"
    yield f"  verifier    {pair.get('verifier') or body['spec']['verifier']['model']}"
    if pair.get("speculator"):
        yield f"  speculator  {pair['speculator']}"
    progress = (status.get("weights") or {}).get("text")
    if progress and condition(body, "WeightsReady").get("status") != "True":
        yield f"  weights     {progress}"
    yield f"  pods        {ready(body).replace('/', ' of ')} ready"
    yield from (f"    {one}" for one in _pods(body, pods, now))


def _pods(body: Object, pods: Sequence[Object], now: float) -> Iterator[str]:
    """Yield each pod with its state and since when, its K at the present load, and the table that was delivered to
    it."""
    from speculative_operator.reconcile.snapshot.pods import read_pods

    seen, found = speculation(body), read_pods(pods)
    wide = max((len(one.name) for one in found), default=0)
    since = {one["metadata"].get("name"): _since(one) for one in pods}
    newest = seen.get("tableVersion")
    for one in found:
        state = "ready" if one.ready else one.trouble or "not ready"
        age = f"  {commands.format_age(now - then)}" if (then := since[one.name]) is not None else ""
        version = one.poked.partition("-")[0]
        k = _k(body, version)
        table = f"  table {version}" + (f", not yet {newest}" if str(newest) != version and newest else "")
        yield f"{one.name:<{wide}}{age}  {state}" + (f"  K {k}" if k else "") + (table if version else "")


def _since(pod: Object) -> float | None:
    """Unix seconds since which a pod is ready or not ready; else of its creation; None where neither is known."""
    return seconds_of(
        str(condition(pod, "Ready").get("lastTransitionTime") or pod["metadata"].get("creationTimestamp"))
    )


def _k(body: Object, version: str) -> str:
    """K at the present load of a pod that follows this version of the table; empty where that is not known."""
    seen = speculation(body)
    if version.isdecimal() and int(version) >= (seen.get("rowsVersion") or seen.get("tableVersion") or 0):
        return str(seen.get("k") or "")
    made = (body.get("status") or {}).get("decisions") or ()
    text = next((str(one.get("to")) for one in made if str(one.get("tableVersion")) == version), "")
    load = max(round(number(seen.get("concurrency")) or 0.0), 1)
    return next((k for last, k in re.findall(r"(\d+):(\S*)", text) if load <= int(last)), "")


def _speed(seen: Object) -> str:
    parts = [f"{seen['tpot']} per token" if seen.get("tpot") else ""]
    parts += [f"{seen['tpotOff']} without a speculator" if seen.get("tpotOff") else ""]
    parts += [f"gain {seen['gain']} ({seen.get('gainRange', '')})" if seen.get("gain") else ""]
    parts += [f"{seen['acceptanceRate']} of draft tokens accepted" if seen.get("acceptanceRate") else ""]
    return ", ".join(part for part in parts if part)


def _table(seen: Object, live: bool) -> Iterator[str]:
    """Yield the table as a bar for each range of loads, with the present load; `live`: K = 0 is off."""
    rows = [row for row in seen.get("table") or () if isinstance(row, list) and len(row) == 3]
    load = f"{seen['concurrency']} requests a step and pod now" if seen.get("concurrency") else ""
    if not rows:
        if load:
            yield f"load  {load}"
        return
    off = ", waits for the speculator's return" if seen.get("speculatorRemoved") else ""
    yield f"table  version {seen.get('tableVersion', '?')}{off}" + (f", {load}" if load else "")
    now, most = number(seen.get("concurrency")), max(1, *(k for _, _, k in rows))
    wide = max(len(f"{first}-{last}") for first, last, _ in rows)
    for first, last, k in rows:
        here = "  <- load now" if now is not None and first <= max(round(now), 1) <= last else ""
        bar = "█" * max(round(_WIDTH * k / most), 1 if k else 0) or "off" * live
        yield f"  {f'{first}-{last}':>{wide}} requests  K {k:<2} {bar}{here}".rstrip()
    if seen.get("tries"):
        yield f"  trials  {seen['tries']}"


def _decisions(status: Object, most: int) -> Iterator[str]:
    found = (status.get("decisions") or ())[:most]
    if found:
        yield "decisions"
    for one in found:
        change = f"{one['from']} -> {one.get('to', '')}" if one.get("from") else str(one.get("to", ""))
        yield f"  {str(one.get('time', ''))[:19]}  {one.get('reason', '')}: {change}"
        if one.get("message"):
            yield f"    {one['message']}"


def _canary(body: Object) -> Iterator[str]:
    """Yield how far the analysis of the canary is."""
    found, meta = (body.get("status") or {}).get("canary"), body["metadata"]
    if found:
        yield f"canary  {found.get('name')}: {found.get('phase')}, {found.get('weight')} % of requests"
        yield from (f"  {found[name]}" for name in ("message", "comparison") if found.get(name))
        yield from _next(next_step(str(found.get("reason")), meta["name"], meta["namespace"]))


def _waits(body: Object, silent: float | None) -> Iterator[str]:
    """Yield faults, proposals and warnings, each with the operator's message and what to do."""
    for one in (*silence_of(body, silent), *faults_of(body)):
        yield f"waits  {one.source} {one.reason}: {one.message}"
        yield from _next(one.next)
    proposal = ((body.get("status") or {}).get("rollout") or {}).get("proposal")
    if proposal:
        yield f"proposes  {proposal.get('message', '')}"
        yield from _next(f"speculative approve {body['metadata']['name']} -n {body['metadata']['namespace']}")
    for one in warnings_of(body):
        yield f"warning  {one.reason}: {one.message}"


def _next(step: str) -> Iterator[str]:
    if step:
        yield f"  next  {step}"
