"""The page of `report`: figures of a course, four plots as SVG, decisions. Pure; the template is report.html.j2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from speculative_operator import __version__
from speculative_operator.cli import moments
from speculative_operator.cli.course import Point
from speculative_operator.cli.history import Span

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
    marks = [moments.seconds_of(str(one["time"])) for one in shown]
    return environment.get_template("report.html.j2").render(
        name=body["metadata"]["name"],
        namespace=body["metadata"].get("namespace"),
        pair=status.get("pair") or {},
        table=(status.get("speculation") or {}).get("tableText", ""),
        since=moments.format_time(span.start),
        until=moments.format_time(span.end),
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
        told = moments.format_time(at)[5:16]
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
        return span.start <= moments.seconds_of(str(found.get("time"))) <= span.end
    except ValueError:
        return False
