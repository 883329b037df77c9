"""Draws the charts of docs/images, of physics and of the tuner: `PYTHONPATH=dev .venv/bin/python -m figures.charts`.

Plain SVG, written here so that the charts need no plotting library and differ only where numbers do (ADR 0010).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from figures.surface import ACCEPTANCE, surface
from speculative_lab.cases.prediction import predict
from speculative_lab.cases.relation import CAPS, PUBLISHED, curves
from speculative_operator.cli.subject import subject

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
CASES = ROOT / "dev" / "data" / "published" / "cases.csv"
INK, PALE = "#57606a", "#d0d7de"
COLOURS = BLUE, ORANGE, GREEN, VIOLET = "#1f6feb", "#c2410c", "#15803d", "#7c3aed"
SHADES = ("#f6f8fa", "#dbeafe", "#bfdbfe", "#93c5fd", "#60a5fa", "#3b82f6", "#2563eb", "#1d4ed8", "#1e3a8a")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 420, 60, 370, 30, 620
PAIR = {
    "verifier": {"model": "hf://Qwen/Qwen3-8B"},
    "speculator": {"method": "draft_model", "model": "hf://Qwen/Qwen3-0.6B"},
    "accelerator": {"product": "H100-SXM"},
}
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` onto pixels from `start` to `end`; logarithmic where told."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Chart:
    """A frame with axes that collects SVG parts; positions are values on its two scales."""

    x: Scale
    y: Scale
    parts: list[str] = field(default_factory=list)

    def grid(self, xs: Sequence[float], ys: Sequence[float], x_name: str, y_name: str) -> None:
        for value in xs:
            self.path([(value, self.y.low), (value, self.y.high)], PALE, 1)
            self.write(self.x(value), self.y.start + 18, f"{value:g}", "middle")
        for value in ys:
            self.path([(self.x.low, value), (self.x.high, value)], PALE, 1)
            self.write(self.x.start - 8, self.y(value) + 4, f"{value:g}", "end")
        self.write((self.x.start + self.x.end) / 2, self.y.start + 40, x_name, "middle")
        self.write(self.x.start - 45, self.y.end - 12, y_name, "start")

    def path(self, points: Iterable[Point], colour: str, width: float) -> None:
        places = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>')

    def box(self, low: Point, high: Point, colour: str) -> None:
        """A filled rectangle between two corners."""
        left, right = sorted((self.x(low[0]), self.x(high[0])))
        top, bottom = sorted((self.y(low[1]), self.y(high[1])))
        self.parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" '
            f'fill="{colour}"/>'
        )

    def dot(self, x: float, y: float, colour: str, size: float) -> None:
        self.parts.append(
            f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{size:g}" fill="{colour}" fill-opacity="0.6"/>'
        )

    def write(self, left: float, height: float, words: str, anchor: str, colour: str = INK) -> None:
        """Text at pixels."""
        self.parts.append(
            f'<text x="{left:.1f}" y="{height:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'
        )

    def legend(self, names: Iterable[str]) -> None:
        for place, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
            self.write(LEFT + 15, TOP + 20 + 18 * place, f"&#9679; {name}", "start", colour)

    def svg(self) -> str:
        """The whole drawing."""
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            f'font-size="13">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
        )


def relation() -> str:
    """Throughput end to end by acceptance, under the three caps, with the published points."""
    chart = Chart(Scale(0.0, 1.0, LEFT, RIGHT), Scale(0.7, 1.9, BOTTOM, TOP))
    names = "acceptance", "throughput with / without drafts"
    chart.grid([0, 0.25, 0.5, 0.75, 1], [0.8, 1.0, 1.2, 1.4, 1.6, 1.8], *names)
    found = curves()
    acceptance = found.pop("acceptance")
    for colour, values in zip(COLOURS, found.values(), strict=False):
        chart.path(zip(acceptance, values, strict=True), colour, 2)
    for x, y in PUBLISHED:
        chart.dot(x, y, VIOLET, 5)
    capped = (f"{name}, decoding gains at most {CAPS[name]:g} times" for name in found)
    chart.legend([*capped, "published (a vendor's simulation)"])
    return chart.svg()


def cases() -> str:
    """Predicted speed-up by published one: measured rows, simulated ones, and losses."""
    low, high = 0.3, 6.0
    chart = Chart(Scale(low, high, LEFT, RIGHT, log=True), Scale(low, high, BOTTOM, TOP, log=True))
    ticks = [0.4, 0.6, 0.8, 1, 1.5, 2, 3, 4, 6]
    chart.grid(ticks, ticks, "published speed-up", "predicted speed-up")
    for line in ([(low, low), (high, high)], [(1.0, low), (1.0, high)], [(low, 1.0), (high, 1.0)]):
        chart.path(line, INK, 1)
    with CASES.open(encoding="utf-8", newline="") as lines:
        found = [predict(row) for row in csv.DictReader(lines)]
    for one in found:
        published = one.case.speedup
        if published is None or one.case.evidence == "unverified":
            continue
        kind = 2 if one.sign_right is not None and published < 1.0 else 0 if one.measured else 1
        chart.dot(published, one.predicted, COLOURS[kind], 5 if kind == 2 else 3)
    chart.legend(["measured", "simulated by the source", "losses beyond their tolerance"])
    return chart.svg()


def decision_surface() -> str:
    """Best K by concurrency and acceptance of the first draft, on priors alone."""
    found = surface(subject(PAIR).policy)
    chart = Chart(Scale(1, 256, LEFT, RIGHT - 60, log=True), Scale(0.0, 1.0, BOTTOM, TOP))
    half = (ACCEPTANCE[1] - ACCEPTANCE[0]) / 2
    lasts = [(low * high) ** 0.5 for low, high in pairwise(found.concurrency)] + [256.0]
    firsts = [1.0, *lasts[:-1]]
    for share, ks in zip(found.acceptance, found.ks, strict=True):
        for first, last, k in zip(firsts, lasts, ks, strict=True):
            chart.box((first, share - half), (last, share + half), SHADES[min(int(k), len(SHADES) - 1)])
    names = "decoding requests of one replica", "chance that the first draft is accepted"
    chart.grid([1, 2, 4, 8, 16, 32, 64, 128, 256], [0, 0.25, 0.5, 0.75, 1], *names)
    chart.path([(1, found.believed), (256, found.believed)], ORANGE, 1.5)
    chart.write(64, chart.y(found.believed) - 5, "prior of mixed work", "start", ORANGE)
    for k, shade in enumerate(SHADES):
        height = 60 + 24 * k
        chart.parts.append(f'<rect x="575" y="{height - 12}" width="16" height="16" fill="{shade}" stroke="{PALE}"/>')
        chart.write(598, height + 1, f"K {k}", "start")
    return chart.svg()


DRAWINGS = {"relation": relation, "cases": cases, "tuning-surface": decision_surface}


def main() -> None:
    for name, draw in DRAWINGS.items():
        (IMAGES / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
