"""Print the decisions of the tuner as they come, of one object, a namespace or all: a line each, until interrupted."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from speculative_operator.cli import cluster, commands, terminal
from speculative_operator.cli.cluster import Cluster, Object
from speculative_operator.cli.commands import OK

EPILOG = """examples:
  speculative watch -n models
  speculative watch qwen3-8b -n models --since 1h
  speculative watch -A -o json --for 10m

exit status: 0 the time of --for is over, 1 the cluster refused or cannot be reached, 130 interrupted"""

WATCH_SECONDS = 5.0
"""Seconds between two looks: one list of the objects each."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    parser.add_argument("name", metavar="NAME", nargs="?", default="", help="one SpeculativeDeployment (all)")
    cluster.add_arguments(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    parser.add_argument("--since", metavar="WHEN", default="now", help="decisions from then on first: 1h (ago); now")
    parser.add_argument("--for", metavar="TIME", dest="length", default="", help="stop after that long, such as 10m")
    terminal.add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print decisions until the time is over; returns the exit status. Raises CommandError."""
    at = Cluster(arguments)
    began = commands.parse_moment(arguments.since, "--since", time.time())
    ends = time.monotonic() + commands.parse_duration(arguments.length, "--for") if arguments.length else None
    printed: set[tuple[str, ...]] = set()
    while True:
        bodies = [at.object(arguments.name)] if arguments.name else at.objects(everywhere=arguments.all_namespaces)
        for key, body, found in new_decisions(bodies, began, printed):
            printed.add(key)
            print(line(body, found, arguments.output), flush=True)
        left = WATCH_SECONDS if ends is None else min(WATCH_SECONDS, ends - time.monotonic())
        if left <= 0:
            return OK
        time.sleep(left)


def new_decisions(
    bodies: list[Object], began: float, printed: set[tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], Object, Object]]:
    """Yield (key, object, decision) of every decision since `began` that was not printed, the oldest first."""
    found = []
    for body in bodies:
        meta = body["metadata"]
        for one in (body.get("status") or {}).get("decisions") or ():
            key = (str(meta.get("namespace")), meta["name"], str(one.get("time")), str(one.get("to")))
            if key not in printed and _time(one) >= began:
                found.append((key, body, one))
    yield from sorted(found, key=lambda one: (one[0][2], one[0]))


def _time(found: Object) -> float:
    try:
        return commands.seconds_of(str(found.get("time")))
    except ValueError:
        return 0.0


def line(body: Object, found: Object, form: str) -> str:
    """The line for one decision: text for people, or JSON for programs."""
    meta = body["metadata"]
    if form != terminal.TEXT:
        return terminal.format_document({"namespace": meta.get("namespace"), "name": meta["name"], **found}, form)
    change = f"{found['from']} -> {found.get('to', '')}" if found.get("from") else str(found.get("to", ""))
    message = f": {found['message']}" if found.get("message") else ""
    text = f"{str(found.get('time', ''))[:19]}  {meta.get('namespace')}/{meta['name']}  {found.get('reason')}  {change}"
    return cluster.plain(text + message)
