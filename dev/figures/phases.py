"""Draws docs/images/demo.svg of a run of the demo: `python -m figures.phases` after `make demo`.

Its figures stand in docs/measured.md too, as `--table` prints them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from demo.scene import AUTO, BEST, BEST_K, OFF, STATIC, STATIC_K

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "docs" / "images" / "demo.svg"
BARS = {
    AUTO: ("tuned by the operator", "#15803d"),
    STATIC: (f"constant K = {STATIC_K}", "#c2410c"),
    BEST: (f"constant K = {BEST_K}, the best one in hindsight", "#7c3aed"),
    OFF: ("no speculation", "#8c959f"),
}
LOADS = {"low": "low load", "peak": "peak", "after": "low load again"}
FLOOR, HIGHEST, WIDE, APART = 330, 220.0, 58, 280


def draw(phases: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the picture. `phases`: of the demo's summary.json."""
    yield '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 420" font-family="Helvetica, Arial, sans-serif">'
    yield "<title>Mean time per output token: tuned, two constant K and no speculation, at low and peak load</title>"
    yield '<rect x="0.5" y="0.5" width="879" height="419" rx="10" fill="white" stroke="#d0d7de"/>'
    yield _text(30, 36, "Mean time per output token in milliseconds: less is better", 16, weight="bold")
    told = "make demo: copies of one model serve the same requests on an emulated engine; each load to its own scale"
    yield _text(30, 58, told, 13, colour="#57606a")
    for group, (name, title) in enumerate(LOADS.items()):
        known = phases[name]["tpot_ms"]
        scale = HIGHEST / max(known[role] for role in BARS)
        left = 44 + APART * group
        for number, (role, (_, colour)) in enumerate(BARS.items()):
            height, x = known[role] * scale, left + (WIDE + 2) * number
            yield f'<rect x="{x}" y="{FLOOR - height:.1f}" width="{WIDE}" height="{height:.1f}" fill="{colour}"/>'
            yield _text(x + WIDE / 2, FLOOR - height - 7, f"{known[role]:.1f}", 14, weight="bold", anchor="middle")
        yield _text(left + 2 * WIDE + 3, FLOOR + 24, title, 14, anchor="middle")
    yield f'<rect x="30" y="{FLOOR}" width="820" height="2" fill="#57606a"/>'
    for number, (title, colour) in enumerate(BARS.values()):
        x, y = 150 + 320 * (number % 2), 372 + 22 * (number // 2)
        yield f'<rect x="{x}" y="{y}" width="14" height="14" fill="{colour}"/>'
        yield _text(x + 20, y + 12, title, 13)
    yield "</svg>"


def table(phases: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the table of docs/measured.md."""
    yield f"| | {' | '.join(LOADS.values())} |"
    yield "| --- | --- | --- | --- |"
    for role, (title, _) in BARS.items():
        cells = " | ".join(f"{phases[name]['tpot_ms'][role]:.1f}" for name in LOADS)
        yield f"| {title} | {cells} |"


def _text(x: float, y: float, text: str, size: int, **more: str) -> str:
    anchor, weight, colour = more.get("anchor", "start"), more.get("weight", "normal"), more.get("colour", "#24292f")
    style = f'fill="{colour}" text-anchor="{anchor}" font-weight="{weight}" font-size="{size}"'
    return f'<text x="{x:g}" y="{y:.1f}" {style}>{text}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(prog="figures.phases", description=__doc__)
    parser.add_argument("summary", type=Path, nargs="?", default=ROOT / "build" / "demo" / "summary.json")
    parser.add_argument("--table", action="store_true", help="print the table alone")
    options = parser.parse_args()
    phases = json.loads(options.summary.read_text())["phases"]
    if options.table:
        print("\n".join(table(phases)))
    else:
        TARGET.write_text("\n".join(draw(phases)) + "\n")


if __name__ == "__main__":
    main()
