"""List the SpeculativeDeployments of a cluster: what serves, with which K, and what that gains."""

from __future__ import annotations

import argparse
import sys
import time

from speculative_operator.cli import cluster, terminal
from speculative_operator.cli.cluster import Cluster, Object
from speculative_operator.cli.commands import OK
from speculative_operator.cli.diagnosis import reason_shown, silence_of

EPILOG = """examples:
  speculative get -n models
  speculative get -A --output json

exit status: 0 listed, 1 the cluster refused or cannot be reached"""

_HEADERS = ("namespace", "name", "ready", "mode", "method", "K", "accepted", "gain", "cost/1k", "state", "reason")
_WIDE = ("load", "tpot", "without", "actuator", "verifier", "speculator")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    cluster.add_arguments(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    cluster.add_selector(parser)
    terminal.add_format(parser, "load, time per token, actuator and models too")


def run(arguments: argparse.Namespace) -> int:
    """Print the objects; returns the exit status. Raises CommandError."""
    at = Cluster(arguments)
    found = at.objects(everywhere=arguments.all_namespaces, labels=arguments.selector)
    silent = at.operator_silent(time.time())
    if arguments.output in (terminal.JSON, terminal.YAML):
        for body in found:
            print(terminal.format_document(body, arguments.output))
    elif found:
        wide = arguments.output == terminal.WIDE
        headers = (*_HEADERS, *_WIDE) if wide else _HEADERS
        terminal.write_table(sys.stdout, headers, [row(body, wide=wide) for body in found], frozenset((5,)))
        for one in silence_of(found[0], silent):
            print(f"warning: {one.message}; next: {one.next}", file=sys.stderr)
    else:
        print("no SpeculativeDeployment" + " with these labels" * bool(arguments.selector), end="")
        print("" if arguments.all_namespaces else "; -A looks into all namespaces")
    return OK


def row(body: Object, *, wide: bool = False) -> tuple[str, ...]:
    """The cells of one object."""
    status, seen = body.get("status") or {}, cluster.speculation(body)
    meta = body["metadata"]
    cells = (
        meta["namespace"], meta["name"], cluster.ready(body), cluster.mode(body),
        *(seen.get(key, "") for key in ("method", "k", "acceptanceRate", "gain", "costPer1kTokens", "state")),
        reason_shown(body),
    )  # fmt: skip
    if wide:
        pair = status.get("pair") or {}
        cells += (
            *(seen.get(key, "") for key in ("concurrency", "tpot", "tpotOff", "actuator")),
            pair.get("verifier") or body["spec"]["verifier"]["model"], pair.get("speculator", ""),
        )  # fmt: skip
    return tuple(cluster.plain(str(cell)) if cell not in ("", None) else "-" for cell in cells)
