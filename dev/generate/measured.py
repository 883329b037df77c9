"""The tables of docs/tuning.md that are measured: rivals and ablations. Called by `python -m generate`.

`python -m bench.tuner --keep` and `python -m bench.tuner.ablations --keep` write what they are made of into
dev/data/bench. A table without rows is refused, so that none stands empty in the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.tuner.variants import BY_NAME, WHOLE
from speculative_lab.plant.law import COUNTERS, PLUG_IN
from speculative_lab.plant.rivals import ADAPTIVE, SMART, TIMED

KEPT = Path(__file__).resolve().parents[1] / "data" / "bench"
LAWS = {
    PLUG_IN: "this operator",
    COUNTERS: "this operator without the plug-in",
    SMART: "SmartSpec",
    TIMED: "a table of timed steps",
    ADAPTIVE: "vLLM's adaptive verification",
    "constant": "best constant K in hindsight",
    "off": "K = 0",
}


def tuning(page: str) -> str:
    """The page with both tables. Raises ValueError where a table has no rows or no place."""
    for name, table in (("rivals", rivals), ("ablations", ablations)):
        path = KEPT / f"{'tuner' if name == 'rivals' else name}.json"
        page = filled(page, name, _read(path, table))
    return page


def rivals(found: Mapping[str, Any]) -> list[str]:
    """A row for each law."""
    laws = found["laws"]
    rows = [
        f"| {LAWS[name]} | {one['lost']:.1f} | {one['median']:.1f} | {one['p95']:.0f} | {one['worst']:.0f} | "
        f"{one['unsafe_percent']:.1f} |"
        for name, one in sorted(laws.items(), key=lambda item: item[1]["lost"])
    ]
    head = "| speed lost, % | mean | median | 95th percentile | worst | windows slower than K = 0, % |"
    return [_worlds(found), "", head, "|---|---|---|---|---|---|", *rows]


def ablations(found: Mapping[str, Any]) -> list[str]:
    """What it costs to take a mechanism out, a line for each variant that still exists."""
    rows = []
    for one in found["variants"]:
        variant = BY_NAME.get(one["variant"])
        if variant is None or variant.name == WHOLE or one["cost_error"] is None:
            continue
        beside = "" if variant.against == WHOLE else f" (against `{variant.against}`)"
        rows.append(f"- {one['cost']:+.2f} ± {one['cost_error']:.2f}{beside}: `{variant.name}`, {variant.about}")
    return [_worlds(found), "", *rows]


def _worlds(found: Mapping[str, Any]) -> str:
    return f"{found['worlds']} random worlds of {found['minutes']:g} minutes, seed {found['seed']}:"


def _read(path: Path, table: Callable[[Mapping[str, Any]], list[str]]) -> list[str]:
    if not path.is_file():
        raise ValueError(f"{path} is missing: run the bench that writes it, with --keep")
    lines = table(json.loads(path.read_text(encoding="utf-8")))
    if not lines[-1] or lines[-1].startswith("|---"):
        raise ValueError(f"{path} gives a table without rows: run the bench that writes it, with --keep")
    return lines


def filled(page: str, name: str, lines: list[str]) -> str:
    """The page with the table between its marks replaced. Raises ValueError where the marks are missing."""
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    pattern = re.compile(f"{re.escape(opening)}.*?{re.escape(closing)}", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"no place for the table {name}: write {opening} and {closing}")
    return pattern.sub(lambda _: "\n".join([opening, "", *lines, "", closing]), page)
