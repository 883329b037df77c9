"""Draws docs/images/relation.svg and docs/images/cases.svg: `PYTHONPATH=dev .venv/bin/python -m figures.physics`.

Plain SVG, written here so that the figures need no plotting library and differ only where numbers do.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from speculative_lab.cases.prediction import predict
from speculative_lab.cases.relation import CAPS, PUBLISHED, curves

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
CASES = ROOT / "dev" / "data" / "published" / "cases.csv"
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 420, 60, 370, 30, 620
COLOURS = ("#1f6feb", "#c2410c", "#15803d", "#7c3aed")
INK = "#57606a"


class Axes:
    """A frame with ticks; positions from values, logarithmic where told."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], *, log: bool = False) -> None:
        self._log = log
        self._x, self._y = (tuple(map(self._scale, limits)) for limits in (x, y))
        self.parts: list[str] = []

    def place(self, x: float, y: float) -> tuple[float, float]:
        across = (self._scale(x) - self._x[0]) / (self._x[1] - self._x[0])
        along = (self._scale(y) - self._y[0]) / (self._y[1] - self._y[0])
        return LEFT + across * (RIGHT - LEFT), BOTTOM - along * (BOTTOM - TOP)

    def frame(self, xs: Sequence[float], ys: Sequence[float], x_name: str, y_name: str) -> None:
        for value in xs:
            left, _ = self.place(value, 10 ** self._y[0] if self._log else self._y[0])
            self.line([(left, TOP), (left, BOTTOM)], "#d0d7de", 1)
            self.text(left, BOTTOM + 18, f"{value:g}", "middle")
        for value in ys:
            _, height = self.place(10 ** self._x[0] if self._log else self._x[0], value)
            self.line([(LEFT, height), (RIGHT, height)], "#d0d7de", 1)
            self.text(LEFT - 8, height + 4, f"{value:g}", "end")
        self.text((LEFT + RIGHT) / 2, BOTTOM + 40, x_name, "middle")
        self.text(LEFT - 45, TOP - 12, y_name, "start")

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')

    def dot(self, x: float, y: float, colour: str, size: float) -> None:
        left, height = self.place(x, y)
        self.parts.append(f'<circle cx="{left:.1f}" cy="{height:.1f}" r="{size}" fill="{colour}" fill-opacity="0.6"/>')

    def text(self, x: float, y: float, words: str, anchor: str, colour: str = INK) -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>')

    def legend(self, names: Sequence[str]) -> None:
        for place, name in enumerate(names):
            self.text(LEFT + 15, TOP + 20 + 18 * place, f"&#9679; {name}", "start", COLOURS[place])

    def svg(self) -> str:
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            f'font-size="13">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
        )

    def _scale(self, value: float) -> float:
        return math.log10(value) if self._log else value


def relation() -> str:
    """Throughput end to end by acceptance, under the three caps, with the published points."""
    axes = Axes((0.0, 1.0), (0.7, 1.9))
    axes.frame(
        [0, 0.25, 0.5, 0.75, 1], [0.8, 1.0, 1.2, 1.4, 1.6, 1.8], "acceptance", "throughput with / without drafts"
    )
    found = curves()
    acceptance = found.pop("acceptance")
    for colour, values in zip(COLOURS, found.values(), strict=False):
        points = [axes.place(float(x), float(y)) for x, y in zip(acceptance, values, strict=True)]
        axes.line(points, colour, 2)
    for x, y in PUBLISHED:
        axes.dot(x, y, COLOURS[3], 5)
    axes.legend(
        [
            *(f"{name}, decoding gains at most {CAPS[name]:g} times" for name in found),
            "published (a vendor's simulation)",
        ]
    )
    return axes.svg()


def cases() -> str:
    """Predicted speed-up by published one: measured rows, simulated ones, and losses."""
    axes = Axes((0.3, 6.0), (0.3, 6.0), log=True)
    ticks = [0.4, 0.6, 0.8, 1, 1.5, 2, 3, 4, 6]
    axes.frame(ticks, ticks, "published speed-up", "predicted speed-up")
    axes.line([axes.place(0.3, 0.3), axes.place(6.0, 6.0)], INK, 1)
    axes.line([axes.place(1.0, 0.3), axes.place(1.0, 6.0)], INK, 1)
    axes.line([axes.place(0.3, 1.0), axes.place(6.0, 1.0)], INK, 1)
    with CASES.open(encoding="utf-8", newline="") as lines:
        found = [predict(row) for row in csv.DictReader(lines)]
    for one in found:
        published = one.case.speedup
        if published is None or one.case.evidence == "unverified":
            continue
        kind = 2 if one.sign_right is not None and published < 1.0 else 0 if one.measured else 1
        axes.dot(published, one.predicted, COLOURS[kind], 5 if kind == 2 else 3)
    axes.legend(["measured", "simulated by the source", "losses beyond their tolerance"])
    return axes.svg()


def main() -> None:
    (IMAGES / "relation.svg").write_text(relation(), encoding="utf-8")
    if CASES.is_file():
        (IMAGES / "cases.svg").write_text(cases(), encoding="utf-8")


if __name__ == "__main__":
    main()
