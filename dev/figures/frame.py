"""A frame with axes in plain SVG, several of which may share a drawing. Used by `figures.tuning`.

Written here so that the figures need no plotting library and differ only where numbers do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

INK, PALE = "#57606a", "#d0d7de"
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
class Frame:
    """Collects SVG parts; positions are values on its two scales."""

    x: Scale
    y: Scale
    parts: list[str] = field(default_factory=list)

    def grid(self, xs: Sequence[float], ys: Sequence[float], x_name: str = "", y_name: str = "") -> None:
        for value in xs:
            self.path([(value, self.y.low), (value, self.y.high)], PALE, 1)
            self.write(self.x(value), self.y.start + 18, f"{value:g}", "middle")
        for value in ys:
            self.path([(self.x.low, value), (self.x.high, value)], PALE, 1)
            self.write(self.x.start - 8, self.y(value) + 4, f"{value:g}", "end")
        self.write((self.x.start + self.x.end) / 2, self.y.start + 38, x_name, "middle")
        self.write(self.x.start - 45, self.y.end - 10, y_name, "start")

    def path(self, points: Sequence[Point], colour: str, width: float) -> None:
        places = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>')

    def box(self, low: Point, high: Point, colour: str, opacity: float = 1.0) -> None:
        """A filled rectangle between two corners."""
        left, right = sorted((self.x(low[0]), self.x(high[0])))
        top, bottom = sorted((self.y(low[1]), self.y(high[1])))
        self.parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" '
            f'fill="{colour}" fill-opacity="{opacity:g}"/>'
        )

    def dot(self, x: float, y: float, colour: str, size: float) -> None:
        self.parts.append(f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{size:g}" fill="{colour}"/>')

    def write(self, left: float, height: float, words: str, anchor: str, colour: str = INK) -> None:
        """Text at pixels."""
        if words:
            self.parts.append(
                f'<text x="{left:.1f}" y="{height:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'
            )


def svg(frames: Sequence[Frame], width: int, height: int) -> str:
    """A whole drawing."""
    body = "\n".join(part for frame in frames for part in frame.parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="13">\n<rect width="{width}" height="{height}" fill="white"/>\n{body}\n</svg>\n'
    )
