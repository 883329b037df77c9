"""What would have been decided over the history of a real deployment, as a Prometheus server has it.

Asks query_range for the raw counters of the serving pods, feeds them to the path that the operator takes, and prints
every decision that differs from the one before. Nothing is changed anywhere. The history is that of the K that ran
then, so mode Auto is replayed as Recommend: each answer is what would have been put in place of what ran, and no
other K is tried, whose outcome no history holds.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

from speculative_operator.cli import commands, history, terminal
from speculative_operator.cli.commands import FAILED, OK, CommandError, UsageError

if TYPE_CHECKING:
    from speculative_operator.cli.subject import Subject
    from speculative_operator.domain.decision import Decision
    from speculative_operator.replay.session import Session

EPILOG = """examples:
  speculative replay --prometheus http://localhost:9090 --namespace llm --spec pair.yaml --start 2h
  speculative replay --prometheus https://thanos.example --token-file token --namespace llm --pod-regex 'llama-.*' \\
      --spec pair.yaml --start 2026-01-31T08:00:00Z --end 2026-01-31T20:00:00Z --step 30s --json

exit status: 0 replayed, 1 Prometheus failed or has no samples of these pods, 2 wrong use of the command line"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    history.add_arguments(parser)
    add = parser.add_argument
    add("--namespace", metavar="N", required=True, help="namespace of the serving pods")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--selector", metavar="MATCHERS", default="", help="""series to read, in PromQL: 'job="llama"'"""
    )
    which.add_argument("--pod-regex", metavar="RE", default="", help="pods to read, by name: 'llama-.*'")
    add("--spec", metavar="FILE", required=True, help="SpeculativeDeployment (YAML or JSON)")
    add("--facts", metavar="FILE", default="", help="facts of models and hardware, as for `speculative tune`")
    add("--ran", metavar="K", type=int, help="K that the pods used; default: the table with which the operator starts")
    add("--start", metavar="WHEN", default="1h", help="2h (ago), 2026-01-31T12:00:00Z or unix seconds; default 1h")
    add("--end", metavar="WHEN", default="now", help="the same; default now")
    add("--step", metavar="TIME", default="30s", help="a multiple of the scrape interval; default 30s")
    add(
        "--json",
        action="store_true",
        help="print one JSON object per scrape, as `speculative tune` does, then a summary",
    )


def run(arguments: argparse.Namespace) -> int:
    """Replay the history and print the decisions; returns the exit status. Raises CommandError when nothing was
    found."""
    span = history.span_of(arguments.start, arguments.end, arguments.step, time.time())
    subject = _subject(arguments)
    metrics = subject.engine.metric_names
    if not metrics:
        raise CommandError(
            f"{arguments.spec}: {subject.spec.engine.type} has no metrics by which K could be decided, "
            "so there is nothing to replay",
            "use a spec with another engine",
        )
    client, selector = history.client_of(arguments), _selector(arguments, metrics)
    session = _session(subject, arguments.ran, span.start)
    decided = (
        (moment, session.feed(moment, pods))
        for moment, pods in history.scrapes(client, selector, arguments.namespace, span)
    )
    report = _Json(sys.stdout) if arguments.json else _Text(sys.stdout, sys.stderr)
    for moment, decision in decided:
        report.add(moment, decision)
    if not report.scrapes:
        raise CommandError(
            f"no samples of these pods between {commands.format_time(span.start)} and {commands.format_time(span.end)}",
            f"check namespace, pods and times with the query {selector}",
        )
    report.end()
    return OK


class _Report(ABC):
    """Counts the decisions of a replay."""

    def __init__(self, out: TextIO) -> None:
        self.scrapes = 0
        self._out = out
        self._changes = self._valid = 0
        self._states: Counter[str] = Counter()
        self._table: list[list[int]] = []

    def add(self, moment: float, decision: Decision) -> None:
        self.scrapes += 1
        self._changes += decision.changed
        self._valid += decision.valid
        self._states[decision.state.value] += 1
        self._table = decision.table.rows()
        self._show(moment, decision)

    @abstractmethod
    def _show(self, moment: float, decision: Decision) -> None:
        """Write one decision at its moment."""

    @abstractmethod
    def end(self) -> None:
        """Write the end of the report."""

    def _summary(self) -> dict[str, Any]:
        return {
            "scrapes": self.scrapes,
            "valid": self._valid,
            "changes": self._changes,
            "states": dict(self._states),
            "table": self._table,
        }


class _Json(_Report):
    """Writes an object for each scrape, the summary last."""

    def _show(self, moment: float, decision: Decision) -> None:
        from speculative_operator.cli.tune import answer

        self._write(answer(moment, decision))

    def end(self) -> None:
        self._write(self._summary())

    def _write(self, value: Mapping[str, Any]) -> None:
        self._out.write(json.dumps(value, allow_nan=False) + "\n")


class _Text(_Report):
    """Writes a row for each decision that differs from the one before, at the end of the replay; a sentence after
    it."""

    def __init__(self, out: TextIO, progress: TextIO) -> None:
        super().__init__(out)
        self._rows: list[list[str]] = []
        self._last: tuple[object, ...] = ()
        self._progress = progress if progress.isatty() else None

    def _show(self, moment: float, decision: Decision) -> None:
        seen = (decision.state, decision.reason, decision.table)
        if seen != self._last:
            self._last = seen
            self._rows.append(_row(moment, decision))
        if self._progress is not None:
            self._progress.write(f"\r{commands.format_time(moment)}  {self.scrapes} scrapes")
            self._progress.flush()

    def end(self) -> None:
        if self._progress is not None:
            self._progress.write("\r\x1b[K")
        terminal.write_table(
            self._out, ("TIME (UTC)", "STATE", "REASON", "K BY REQUESTS", "GAIN", "MESSAGE"), self._rows
        )
        states = ", ".join(f"{state} {count}" for state, count in self._states.most_common())
        self._out.write(f"\n{self.scrapes} scrapes, {self._changes} new tables (*); {states}\n")


def _row(moment: float, decision: Decision) -> list[str]:
    gain = decision.estimate.gain_percent
    shown = f"{gain.mid:+.1f} % [{gain.low:+.1f}, {gain.high:+.1f}]" if gain is not None else "-"
    mark = "*" if decision.changed else ""
    table = f"{decision.table}{mark}"
    return [commands.format_time(moment), decision.state.value, decision.reason.value, table, shown, decision.message]


def _subject(arguments: argparse.Namespace) -> Subject:
    from speculative_operator.api.wire import SpecError
    from speculative_operator.cli.subject import subject

    facts = commands.read_document(arguments.facts, "--facts") if arguments.facts else None
    try:
        found = subject(commands.read_document(arguments.spec, "--spec"), facts)
    except SpecError as problem:
        raise CommandError(f"{arguments.spec}: {problem}", status=FAILED) from None
    for path in found.ignored:
        sys.stderr.write(f"warning: {path} is unknown and ignored\n")
    return found


def _session(subject: Subject, ran: int | None, now: float) -> Session:
    """A session that proposes; the K that ran, where it is given, is its active K. Raises UsageError."""
    from speculative_operator.domain.spec import Mode
    from speculative_operator.domain.table import KTable
    from speculative_operator.replay.session import Session
    from speculative_operator.tuner import Memory

    policy = subject.policy
    if policy.mode is Mode.AUTO:
        policy = replace(policy, mode=Mode.RECOMMEND)
    if ran is None:
        return Session(subject.engine, policy)
    if ran not in policy.knobs.ks:
        raise UsageError(f"--ran is {ran}", f"this deployment can run K {', '.join(map(str, policy.knobs.ks))}")
    return Session(subject.engine, policy, Memory.fresh(KTable.constant(ran, policy.knobs.max_batch), now))


def _selector(arguments: argparse.Namespace, names: Iterable[str]) -> str:
    if arguments.pod_regex:
        try:
            re.compile(arguments.pod_regex)
        except re.error as problem:
            raise UsageError(f"--pod-regex {arguments.pod_regex!r}: {problem}", "write a regular expression") from None
    return history.selector_of(names, arguments.namespace, arguments.pod_regex, arguments.selector)
