"""Write one HTML page on the last hours of an object: load, K, time per token, gain, acceptance, cost, decisions.

The figures come from the engines' own counters in Prometheus, pooled over the object's pods as the tuner pools them.
The speed without a speculator is not measured: it is what the tuner believes now, for each load of the past. The page
opens offline.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from speculative_operator.cli import cluster, commands, history
from speculative_operator.cli.cluster import Cluster, Object
from speculative_operator.cli.commands import OK, CommandError
from speculative_operator.domain import names

if TYPE_CHECKING:
    from speculative_operator.cli.page import Point
    from speculative_operator.cli.subject import Subject

EPILOG = """examples:
  speculative report qwen3-8b -n models --prometheus http://localhost:9090
  speculative report qwen3-8b -n models --prometheus http://localhost:9090 --since 7d --to week.html

exit status: 0 written, 1 Prometheus has no samples of these pods, or the cluster refused, 2 wrong use"""

POINTS = 480
"""Most instants of a page: more than it has columns to draw."""
LEAST_STEP, LONGEST_STEP = 15, 300
"""Fewest and most seconds between two instants; windows of more than ten minutes count as none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    add = parser.add_argument
    add("name", metavar="NAME", help="the SpeculativeDeployment")
    cluster.add_arguments(parser)
    history.add_arguments(parser)
    add("--since", metavar="WHEN", default="24h", help="24h (ago), 2026-01-31T12:00:00Z or unix seconds; default 24h")
    add("--until", metavar="WHEN", default="now", help="the same; default now")
    add("--step", metavar="TIME", default="", help="a multiple of the scrape interval (by the length of the time)")
    add("--to", metavar="FILE", default="", help="the page (NAME.html)")


def run(arguments: argparse.Namespace) -> int:
    """Write the page; returns the exit status. Raises CommandError."""
    from speculative_operator.cli.page import course_of, page

    at = Cluster(arguments)
    body = at.object_with_notes(arguments.name)
    span = _span(arguments)
    found, client = _subject(body), history.client_of(arguments)
    if not found.engine.metric_names:
        raise CommandError(f"{found.spec.engine.type} has no metrics by which K could be told: there is no report")
    pods = f"{re.escape(names.child(found.spec.name))}-[a-z0-9]+-[a-z0-9]+"
    selector = history.selector_of(found.engine.metric_names, at.namespace, pods)
    points = course_of(found, body, history.scrapes(client, selector, at.namespace, span), span.step)
    if not points:
        since, until = commands.format_time(span.start), commands.format_time(span.end)
        raise CommandError(
            f"no samples of these pods between {since} and {until}", f"check times and pods with the query {selector}"
        )
    path = Path(arguments.to or f"{arguments.name}.html")
    text = page(body, points, span, _command(arguments))
    _write(path, text)
    _say(path, points)
    return OK


def _span(arguments: argparse.Namespace) -> history.Span:
    """The time to report on, with a step that gives at most POINTS instants."""
    now = time.time()
    length = commands.parse_moment(arguments.until, "--until", now) - commands.parse_moment(
        arguments.since, "--since", now
    )
    step = min(max(LEAST_STEP, -(-int(max(length, 0)) // POINTS // LEAST_STEP) * LEAST_STEP), LONGEST_STEP)
    return history.span_of(arguments.since, arguments.until, arguments.step or f"{step}s", now)


def _subject(body: Object) -> Subject:
    """The object with the speculator that the operator picked, where it is the operator's to pick."""
    from speculative_operator.api.wire import SpecError
    from speculative_operator.cli.subject import subject

    try:
        return subject({key: body[key] for key in ("metadata", "spec")})
    except SpecError as problem:
        raise CommandError(f"{body['metadata']['name']}: {problem}") from None


def _command(arguments: argparse.Namespace) -> str:
    """The command that makes the page again, without credentials."""
    from speculative_operator.domain.reasons import without_credentials

    words = ["speculative", "report", arguments.name, "--prometheus", without_credentials(arguments.prometheus)]
    words += ["-n", arguments.namespace] if arguments.namespace else []
    return shlex.join([*words, "--since", arguments.since, "--until", arguments.until])


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise CommandError(f"--to {path}: {problem.strerror}", "give a file in a writable folder") from None


def _say(path: Path, points: list[Point]) -> None:
    sys.stderr.write(f"report: {path}, {len(points)} windows\n")
