"""The history of serving pods as a Prometheus server has it, scrape by scrape. Used by `replay` and `report`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from speculative_operator.cli import commands
from speculative_operator.cli.commands import CommandError, UsageError

if TYPE_CHECKING:
    from speculative_operator.replay.exposition import SeriesKey
    from speculative_operator.shell.prometheus import Prometheus

POINTS = 100
"""Most instants of one query: 100 pods of 80 series then answer 25 MB."""
LONGEST_STEP = 900.0

Scrape = tuple[float, dict[str, dict["SeriesKey", float]]]


@dataclass(frozen=True, slots=True)
class Span:
    """Instants from `start` to `end`, both included, every `step`; whole unix seconds."""

    start: int
    end: int
    step: int

    def pieces(self) -> Iterator[Span]:
        """Yield the same instants in pieces of at most POINTS."""
        first = self.start
        while first <= self.end:
            last = min(first + (POINTS - 1) * self.step, self.end)
            yield Span(first, last, self.step)
            first += POINTS * self.step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments by which a command names its Prometheus."""
    add = parser.add_argument
    add("--prometheus", metavar="URL", required=True, help="Prometheus, or anything with its query API")
    add("--token-file", metavar="FILE", default="", help="bearer token for Prometheus")
    add("--ca-file", metavar="FILE", default="", help="CA bundle that signed Prometheus' certificate")
    add("--timeout", metavar="TIME", default="30s", help="limit for one query; default 30s")


def span_of(first: str, last: str, every: str, now: float) -> Span:
    """The span that --start, --end and --step name. Raises UsageError."""
    start = round(commands.parse_moment(first, "--start", now))
    end = round(commands.parse_moment(last, "--end", now))
    step = commands.parse_duration(every, "--step")
    if end <= start:
        problem = f"--end {commands.format_time(end)} is not after --start {commands.format_time(start)}"
        raise UsageError(problem, "give a later --end or an earlier --start")
    if not 1 <= step <= LONGEST_STEP or step != round(step):
        raise UsageError(f"--step is {every!r}", "write whole seconds from 1s to 15m")
    return Span(start, end, round(step))


def client_of(arguments: argparse.Namespace) -> Prometheus:
    """The client of the Prometheus that the options name. Raises UsageError."""
    from speculative_operator.domain.reasons import without_credentials
    from speculative_operator.settings import Settings
    from speculative_operator.shell.prometheus import Prometheus

    timeout = min(commands.parse_duration(arguments.timeout, "--timeout"), 290.0)
    if not arguments.prometheus.startswith(("http://", "https://")):
        raise UsageError(f"--prometheus is {arguments.prometheus!r}", "write http://HOST:PORT or https://HOST")
    try:
        settings = Settings(
            prometheus_url=arguments.prometheus,
            prometheus_token_file=arguments.token_file,
            prometheus_ca_file=arguments.ca_file,
            prometheus_timeout_seconds=timeout,
            tick_seconds=300.0,
        )
    except ValueError as problem:
        said = without_credentials(" ".join(str(problem).split()))[:300]
        raise UsageError(said, "correct the option, or the variable of that name") from None
    return Prometheus(settings)


def selector_of(names: Iterable[str], namespace: str, pods: str = "", more: str = "") -> str:
    """The selector of all series called `names` in a namespace: of pods by the regular expression `pods`, or with
    `more`."""
    from speculative_operator.domain.promql import quote

    matchers = [f'__name__=~"{"|".join(sorted(names))}"', f'namespace="{quote(namespace)}"']
    if pods:
        matchers.append(f'pod=~"{quote(pods)}"')
    given = more.strip()
    if given.startswith("{") and given.endswith("}"):
        given = given[1:-1]
    return "{" + ",".join([*matchers, *([given] if given else [])]) + "}"


def scrapes(client: Prometheus, selector: str, namespace: str, span: Span) -> Iterator[Scrape]:
    """Yield every instant that has any samples, oldest first. Raises CommandError when the server does not answer."""
    from speculative_operator.domain.observation import Gap
    from speculative_operator.replay.exposition import SeriesKey

    for piece in span.pieces():
        found = client.history(selector, namespace, piece.start, piece.end, piece.step)
        if isinstance(found, Gap):
            raise CommandError(found.message, "check --prometheus, --token-file and --ca-file")
        instants: dict[float, dict[str, dict[SeriesKey, float]]] = {}
        for series in found:
            labels = dict(series.labels)
            pod = labels.pop("pod", "")
            key = SeriesKey(series.name, tuple(sorted(labels.items())))
            for moment, value in series.samples:
                instants.setdefault(moment, {}).setdefault(pod, {})[key] = value
        for moment in sorted(instants):
            yield moment, {pod: values for pod, values in instants[moment].items() if pod}
