"""Decide K from scrapes on stdin, the way the operator does, without Kubernetes.

JSON lines in:  first {"spec": SpeculativeDeployment, "facts": {...}}, which has no answer when it is good,
                then one line a scrape: {"time": UNIX_SECONDS, "pods": {"POD": "TEXT EXPOSITION AS SCRAPED"}}
JSON lines out: one for each scrape, {"time", "state", "table": [[first, last, K], ...], "reason", "message", "valid",
                "changed", "tries", "speculatorRemoved", "estimate": {...}}; for a line that cannot be read,
                {"error": {"line", "message", "field"}}, and the next line is read.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NoReturn, TextIO

from speculative_operator.cli.commands import OK
from speculative_operator.domain.decision import Decision, Estimate, Interval
from speculative_operator.domain.table import BLOCK_STEPS, Trial

_DIGITS = 6


def answer(time: float, decision: Decision, trials: Sequence[Trial] = ()) -> dict[str, Any]:
    """The JSON object of a decision. Every field is always there; an unknown figure is null, and so is `tries` without
    a trial."""
    return {
        "time": time,
        "state": decision.state.value,
        "table": decision.table.rows(),
        "reason": decision.reason.value,
        "message": decision.message,
        "valid": decision.valid,
        "changed": decision.changed,
        "tries": _trials(trials),
        "speculatorRemoved": decision.removed,
        "estimate": _estimate(decision.estimate),
    }


def _trials(trials: Sequence[Trial]) -> dict[str, Any] | None:
    """The trials in the form of the key `try` of the table's file; None without a trial."""
    rows = [[one.first, one.last, list(one.ks), one.share] for one in trials]
    return {"steps": BLOCK_STEPS, "rows": rows} if rows else None


def _estimate(figures: Estimate) -> dict[str, Any]:
    return {
        "gainPercent": _interval(figures.gain_percent),
        "proposedGainPercent": _interval(figures.proposed_gain_percent),
        "removalGainPercent": _interval(figures.removal_gain_percent),
        "acceptanceLength": _figure(figures.acceptance_length),
        "acceptanceRate": _figure(figures.acceptance_rate),
        "concurrency": _figure(figures.concurrency),
        "k": _figure(figures.k),
        "tpotMs": _figure(figures.tpot_seconds, 1e3),
        "tpotOffMs": _figure(figures.tpot_off_seconds, 1e3),
        "tokensPerSecond": _figure(figures.tokens_per_second),
        "costPerThousandTokens": _figure(figures.cost_per_thousand_tokens),
    }


def _interval(interval: Interval | None) -> list[float | None] | None:
    return None if interval is None else [_figure(interval.low), _figure(interval.mid), _figure(interval.high)]


def _figure(value: float | None, unit: float = 1.0) -> float | None:
    """The figure in `unit` with six digits; None where it is unknown or not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{unit * value:.{_DIGITS}g}")


EPILOG = """examples:
  speculative tune < scrapes.jsonl
  scraper | speculative tune | jq -c '[.time, .state, .table]'

Ends with status 0 at the end of the input. docs/cli.md lists every field."""
_SHOWN = 60


class LineError(Exception):
    """A line that cannot be used; `field` is the faulty place in it."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments: all input comes on stdin."""


def run(_: argparse.Namespace) -> int:
    """Answer every line of stdin until it ends."""
    return converse(sys.stdin.buffer, sys.stdout, sys.stderr)


def converse(lines: BinaryIO, out: TextIO, hints: TextIO) -> int:
    """Write one answer to `out`, flushed, for each of `lines` that wants one; `hints` gets messages for people only."""
    for answer in _answers(lines, hints):
        out.write(json.dumps(answer, allow_nan=False) + "\n")
        out.flush()
    return OK


def _answers(lines: BinaryIO, hints: TextIO) -> Iterator[dict[str, Any]]:
    session = None
    for number, line in enumerate(lines, start=1):
        try:
            given = _object(line)
            if session is None:
                session = _begin(given, hints)
            else:
                yield _step(session, given)
        except LineError as problem:
            yield _error(number, problem)
        except Exception as problem:
            # A fault of this program must not cost its reader the session: it is told, and the next line is read.
            yield _error(number, LineError(f"internal error: {type(problem).__name__}: {problem}"))


def _error(number: int, problem: LineError) -> dict[str, Any]:
    place = {"field": problem.field} if problem.field else {}
    return {"error": {"line": number, "message": str(problem), **place}}


def _object(line: bytes) -> Mapping[str, Any]:
    if not line.strip():
        raise LineError("the line is empty; write a JSON object")
    try:
        found = json.loads(line, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise LineError("the line is not UTF-8") from None
    except json.JSONDecodeError as problem:
        raise LineError(f"the line is not JSON: {problem.msg} at character {problem.pos + 1}") from None
    except (ValueError, RecursionError) as problem:
        raise LineError(f"the line is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise LineError("the line is not a JSON object; write {...}")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _begin(given: Mapping[str, Any], hints: TextIO) -> Any:
    """A session for the first line. The imports wait for it, so that help and errors of usage need none of them. Raises
    LineError."""
    from speculative_operator.api.wire import SpecError
    from speculative_operator.cli.subject import subject

    if "spec" not in given:
        raise LineError('the first line has no spec; write {"spec": {...}, "facts": {...}}', "spec")
    try:
        found = subject(given["spec"], given.get("facts"))
    except SpecError as problem:
        raise LineError(str(problem), problem.field) from None
    for path in found.ignored:
        hints.write(f"warning: {path} is unknown and ignored\n")
    hints.flush()
    return found.session()


def _step(session: Any, given: Mapping[str, Any]) -> dict[str, Any]:

    time, pods = _time(given), _pods(given)
    decision = session.feed(time, pods)
    return answer(time, decision, session.trials)


def _time(given: Mapping[str, Any]) -> float:
    time = given.get("time")
    if time is None:
        raise LineError("time is not set: write unix seconds of the scrape", "time")
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time < 1e11:
        text = json.dumps(time)
        raise LineError(f"time is {text[:_SHOWN]}: write unix seconds, such as 1767225600.0", "time")
    return float(time)


def _pods(given: Mapping[str, Any]) -> Mapping[str, str | None]:
    pods = given.get("pods")
    if not isinstance(pods, dict):
        raise LineError('pods must be an object, {"POD": "TEXT EXPOSITION"}; {} when no pod is ready', "pods")
    for pod, text in pods.items():
        if text is not None and not isinstance(text, str):
            field = f"pods.{pod}"
            message = (
                f"{field} is {json.dumps(text)[:_SHOWN]}: write the exposition as text, null when the scrape failed"
            )
            raise LineError(message, field)
    return pods
