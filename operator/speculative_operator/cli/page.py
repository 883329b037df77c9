"""The page of `report`: figures of a course, four plots as SVG, decisions. Pure; the template is report.html.j2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from speculative_operator import __version__
from speculative_operator.cli import commands
from speculative_operator.cli.beliefs import outlook_of
from speculative_operator.cli.history import Span
from speculative_operator.cli.subject import Subject
from speculative_operator.domain.decision import Interval
from speculative_operator.domain.observation import PodWindow
from speculative_operator.domain.table import KTable
from speculative_operator.replay.exposition import SeriesKey
from speculative_operator.replay.ring import Ring
from speculative_operator.tuner.outlook import Outlook, outlook
from speculative_operator.tuner.report import estimate
from speculative_operator.tuner.traffic import pool

Scrape = tuple[float, Mapping[str, Mapping[SeriesKey, float]]]


@dataclass(frozen=True, slots=True)
class Point:
    """One window over all pods; a figure that is not known is None."""

    time: float
    seconds: float
    pods: int
    load: float
    """Requests scheduled in a step of one pod."""
    k: float | None
    tpot_ms: float | None
    off_ms: float | None
    """Time per token that the tuner believes pods without a speculator would take at that load."""
    gain: Interval | None
    acceptance: float | None
    """Share of draft tokens that the verifier accepted."""
    tokens_per_second: float
    cost: float | None
    """Cost of a thousand output tokens."""


def course_of(found: Subject, body: Mapping[str, Any], scrapes: Iterable[Scrape], step: int) -> list[Point]:
    """A point for each instant at which some pod served; `step` seconds lie between two scrapes."""
    view = outlook_of(body) or outlook(found.policy)
    rings: dict[str, Ring] = {}
    points = []
    for moment, pods in scrapes:
        rings = {pod: rings.get(pod) or Ring(pod) for pod in pods}
        for pod, values in pods.items():
            rings[pod].add(moment, values)
        since = {pod: ring.since for pod, ring in rings.items() if ring.since is not None}
        series = [track for ring in rings.values() for track in ring.series()]
        results = found.engine.read(series, list(rings), since, moment, 2.0 * step)
        for pod, result in results.items():
            rings[pod].settle(result)
        windows = [one for one in results.values() if isinstance(one, PodWindow)]
        if any(one.decode_request_steps > 0 and one.steps > 0 for one in windows):
            points.append(_point(moment, windows, view))
    return points


def _point(moment: float, windows: list[PodWindow], view: Outlook) -> Point:
    look = pool(windows)
    k = look.mean_k if look.mean_k is not None else 0.0
    nearest = min(view.ks, key=lambda one: abs(one - k))
    told = estimate(view, look, KTable.constant(nearest, view.policy.knobs.max_batch))
    return Point(
        time=moment,
        seconds=max(one.seconds for one in windows),
        pods=len(windows),
        load=look.scheduled,
        k=look.mean_k,
        tpot_ms=1e3 * look.tpot if look.tpot is not None else None,
        off_ms=1e3 * told.tpot_off_seconds if told.tpot_off_seconds is not None else None,
        gain=told.gain_percent if look.mean_k is not None else None,
        acceptance=look.acceptance_rate,
        tokens_per_second=look.tokens_per_second,
        cost=told.cost_per_thousand_tokens,
    )


WIDTH, HEIGHT, LEFT = 720, 170, 56
"""Size of one plot, and the width of its scale. The page scales plots to its width, down to that of a phone."""
_TICKS = 6
Values = Sequence[tuple[float, float | None]]


def page(body: Mapping[str, Any], points: Sequence[Point], span: Span, command: str) -> str:
    """The whole HTML page."""
    environment = Environment(
        loader=PackageLoader("speculative_operator.cli"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    status = body.get("status") or {}
    shown = [one for one in status.get("decisions") or () if _within(one, span)]
    marks = [commands.seconds_of(str(one["time"])) for one in shown]
    return environment.get_template("report.html.j2").render(
        name=body["metadata"]["name"],
        namespace=body["metadata"].get("namespace"),
        pair=status.get("pair") or {},
        table=(status.get("speculation") or {}).get("tableText", ""),
        since=commands.format_time(span.start),
        until=commands.format_time(span.end),
        figures=list(figures(points)),
        plots=list(plots(points, span, marks)),
        decisions=shown,
        kept=len(status.get("decisions") or ()),
        command=command,
        version=__version__,
    )


def figures(points: Sequence[Point]) -> Iterator[tuple[str, str]]:
    """Yield the figures for the whole time: (label, figure)."""
    tokens = sum(one.tokens_per_second * one.seconds for one in points)
    yield "output tokens", f"{tokens:,.0f}"
    yield "requests in a step of one pod", f"{_mean(points, 'load', 'seconds'):.1f}"
    k = [one for one in points if one.k is not None]
    if k:
        yield "K", f"{_mean(k, 'k', 'tokens_per_second'):.2f}"
    timed = [one for one in points if one.tpot_ms is not None and one.off_ms is not None]
    if timed:
        yield "time per output token", f"{_mean(timed, 'tpot_ms', 'tokens_per_second'):.2f} ms"
        yield "without a speculator (believed)", f"{_mean(timed, 'off_ms', 'tokens_per_second'):.2f} ms"
    gained = [one for one in points if one.gain is not None]
    if gained:
        low, mid, high = (_mean_gain(gained, side) for side in ("low", "mid", "high"))
        yield "gain in tokens per second", f"{mid:+.1f} % ({low:+.0f} to {high:+.0f})"
    accepted = [one for one in points if one.acceptance is not None]
    if accepted:
        yield "draft tokens accepted", f"{_mean(accepted, 'acceptance', 'tokens_per_second'):.1%}"
    priced = [one for one in gained if one.cost is not None]
    if priced:
        spent = sum((one.cost or 0.0) * one.tokens_per_second * one.seconds / 1000.0 for one in priced)
        more = sum(
            (one.cost or 0.0) * one.tokens_per_second * one.seconds / 1000.0 * one.gain.mid / 100.0
            for one in priced
            if one.gain is not None
        )
        yield "cost while it served", f"{spent:,.2f}"
        yield "the same tokens without a speculator would have cost more (believed)", f"{more:+,.2f}"


def plots(points: Sequence[Point], span: Span, marks: Sequence[float]) -> Iterator[tuple[str, str]]:
    """Yield (title, SVG) of each plot."""
    rows: tuple[tuple[str, tuple[Values, ...]], ...] = (
        ("Requests in a step of one pod", (_line(points, "load"),)),
        ("K, the tokens drafted per request and step", (_line(points, "k"),)),
        ("Time per output token in ms; grey: without a speculator, as the tuner believes",
         (_line(points, "tpot_ms"), _line(points, "off_ms"))),
        ("Gain in tokens per second, %", ([(one.time, one.gain.mid if one.gain else None) for one in points],)),
        ("Draft tokens accepted, %",
         ([(one.time, None if one.acceptance is None else 100.0 * one.acceptance) for one in points],)),
    )  # fmt: skip
    for title, lines in rows:
        if any(value is not None for _, value in lines[0]):
            yield title, plot(lines, span, marks)


def plot(lines: Sequence[Values], span: Span, marks: Sequence[float]) -> str:
    """The SVG of one plot over the span; a gap where a value is not known or windows are missing. Dotted lines:
    decisions."""
    values = [value for line in lines for _, value in line if value is not None]
    low, high = min(0.0, *values), max(1e-9, *values)
    scale = (HEIGHT - 30) / ((high - low) or 1.0)

    def x(time: float) -> float:
        return LEFT + (WIDTH - LEFT - 8) * (time - span.start) / max(span.end - span.start, 1)

    def y(value: float) -> float:
        return HEIGHT - 20 - (value - low) * scale

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    for value in dict.fromkeys((low, (low + high) / 2, high)):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 8}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    for tick in range(_TICKS + 1):
        at = span.start + (span.end - span.start) * tick / _TICKS
        anchor = "start" if tick == 0 else "end" if tick == _TICKS else "middle"
        between = ' class="between"' if tick % 2 else ""
        told = commands.format_time(at)[5:16]
        parts.append(f'<text{between} x="{x(at):.1f}" y="{HEIGHT - 4}" text-anchor="{anchor}">{told}</text>')
    parts += [f'<line class="mark" x1="{x(one):.1f}" x2="{x(one):.1f}" y1="8" y2="{HEIGHT - 20}"/>' for one in marks]
    for number, line in enumerate(lines):
        for piece in _pieces(line, 4.0 * span.step):
            drawn = " ".join(f"{x(time):.1f},{y(value):.1f}" for time, value in piece)
            parts.append(f'<polyline class="line{number}" points="{drawn}"/>')
    return "".join([*parts, "</svg>"])


def _pieces(line: Values, longest: float) -> Iterator[list[tuple[float, float]]]:
    """Yield runs of known values without a gap longer than `longest` seconds."""
    piece: list[tuple[float, float]] = []
    for time, value in line:
        if piece and (value is None or time - piece[-1][0] > longest):
            yield piece
            piece = []
        if value is not None:
            piece.append((time, value))
    if piece:
        yield piece


def _line(points: Sequence[Point], name: str) -> Values:
    return [(one.time, getattr(one, name)) for one in points]


def _mean(points: Sequence[Point], name: str, weight: str) -> float:
    weights = [float(getattr(one, weight)) for one in points]
    values = [float(getattr(one, name)) for one in points]
    total = sum(weights)
    return sum(value * share for value, share in zip(values, weights, strict=True)) / total if total > 0 else 0.0


def _mean_gain(points: Sequence[Point], side: str) -> float:
    """Mean of one side (`low`, `mid` or `high`) of the gains, weighted by tokens."""
    tokens = [one.tokens_per_second * one.seconds for one in points]
    ends = [float(getattr(one.gain, side)) for one in points]
    return sum(end * share for end, share in zip(ends, tokens, strict=True)) / (sum(tokens) or 1.0)


def _within(found: Mapping[str, Any], span: Span) -> bool:
    try:
        return span.start <= commands.seconds_of(str(found.get("time"))) <= span.end
    except ValueError:
        return False
