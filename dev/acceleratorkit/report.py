"""The section of docs/measured.md on a machine with an accelerator, from the file that the kit wrote there.

Called by `__main__`.
"""

from __future__ import annotations

import json
import re
import statistics
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from acceleratorkit.engines import RATES
from acceleratorkit.unpack import FORMAT

FAITHFUL = 0.1
"""Drafted tokens of a draft that a cell's K may be off by: at the ends of answers fewer are drafted."""
Cell = Mapping[str, Any]


class BadResultsError(ValueError):
    """A file that no page can be made of; the message says why."""


def read(path: Path) -> dict[str, Any]:
    """What the kit wrote. Raises BadResultsError."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadResultsError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise BadResultsError(f"{path} is no file of the accelerator kit of format {FORMAT}")
    if not good(found):
        why = "; ".join(f"{stage['name']}: {stage['why']}" for stage in found.get("stages", []) if stage["why"])
        raise BadResultsError(f"{path} has no figures. {found.get('failed', why)}")
    return found


def good(found: Mapping[str, Any]) -> list[Cell]:
    """Cells that were measured as they were meant: no request failed, and the K was the one that was forced (adaptive
    verification verifies fewer)."""
    cells = [cell for cell in found.get("cells", []) if "broken" not in cell and not cell["failed"]]
    return [cell for cell in cells if "adaptive" in cell["arm"] or abs(cell["k"] - meant(cell["arm"])) <= FAITHFUL]


def meant(arm: str) -> float:
    """The K that an arm's name says; 0 of one without a speculator."""
    said = re.match(r"K = (\d+)", arm)
    return float(said[1]) if said else 0.0


def loads(cells: Iterable[Cell]) -> list[tuple[str, int]]:
    """Kinds and widths of loads, in the order in which they came."""
    return list(dict.fromkeys((cell["load"], cell["width"]) for cell in cells))


def figures(cells: Sequence[Cell], arm: str, load: tuple[str, int], key: str = "tokens_per_second") -> list[float]:
    """One figure of an arm at a load, by round."""
    return [cell[key] for cell in cells if cell["arm"] == arm and (cell["load"], cell["width"]) == load]


def over(cells: Sequence[Cell], arm: str, load: tuple[str, int]) -> list[float]:
    """Per cent by which an arm is faster than the first one, by round: those of one round are neighbours."""
    here = [cell for cell in cells if (cell["load"], cell["width"]) == load]
    plain = {cell["round"]: cell["tokens_per_second"] for cell in here if cell["arm"] == cells[0]["arm"]}
    return [
        100.0 * (cell["tokens_per_second"] / plain[cell["round"]] - 1.0)
        for cell in here if cell["arm"] == arm and cell["round"] in plain
    ]  # fmt: skip


def in_order(cells: Sequence[Cell]) -> list[Cell]:
    """Cells of a group by round and in the order of its arms, whatever the turn they were measured in."""
    rank = {"plain": 0}
    return sorted(cells, key=lambda cell: (rank.get(cell["arm"], 1), meant(cell["arm"]), cell["arm"], cell["round"]))


def table(cells: Sequence[Cell]) -> list[str]:
    """A row for each arm: tokens per second at each load, median and spread, and per cent over the first arm."""
    columns = loads(sorted(cells, key=lambda cell: (cell["load"] != "waves", cell["width"])))
    arms = list(dict.fromkeys(cell["arm"] for cell in cells))
    heads = [f"{width} requests, {load}" for load, width in columns]
    lines = [f"| | {' | '.join(heads)} |", f"| --- |{' --- |' * len(columns)}"]
    for arm in arms:
        told = []
        for load in columns:
            speeds, ratios = figures(cells, arm, load), over(cells, arm, load)
            if not speeds:
                told.append("not measured")
                continue
            spread = f"{statistics.median(speeds):,.0f} ({min(speeds):,.0f} to {max(speeds):,.0f})"
            told.append(spread if arm == arms[0] or not ratios else f"{spread}, {statistics.median(ratios):+.1f} %")
        lines.append(f"| {arm} | {' | '.join(told)} |")
    return lines


def launches(found: Mapping[str, Any]) -> list[str]:
    """Microseconds of a launch by kind."""
    measured = {name: of for name, of in found.get("launches", {}).items() if "failed" not in of}
    if not measured:
        return []
    rows = [f"| {name} | {of['host_us']:g} | {of['whole_us']:g} |" for name, of in measured.items()]
    return ["| One launch, microseconds | until it returns | with what it starts |", "| --- | --- | --- |", *rows, ""]


def left_out(cells: Sequence[Cell]) -> list[str]:
    """How often off was off, for each arm in which it ever was."""
    lines = []
    for arm in dict.fromkeys(cell["arm"] for cell in cells if cell["left_out"]):
        shares = {(load, width): figures(cells, arm, (load, width), "left_out") for load, width in loads(cells)}
        said = [
            f"{100 * statistics.median(of):.0f} % ({width} requests, {load})"
            for (load, width), of in shares.items() if of and None not in of
        ]  # fmt: skip
        lines += [f"Steps that left the speculator out at {arm}: {', '.join(said)}.", ""]
    return lines


def section(found: Mapping[str, Any]) -> str:
    """The part of docs/measured.md on one machine, in Markdown."""
    machine, cells = found.get("machine", {}), good(found)
    kind = "a virtual machine" if machine.get("virtual") else "a machine"
    rates = ", ".join(f"{rate:g}" for rate in RATES)
    told = (
        f"vLLM {found['kit']['vllm']} in {kind} with {machine.get('host_cores', '?')} processors, torch "
        f"{machine.get('torch', '?')}, by [the accelerator kit](development.md#on-an-accelerator): random weights in "
        f"the shapes of Qwen3-8B and its speculators, drafts accepted at {rates} by position. Tokens per second, "
        "median (least to most) of the rounds; per cent over the first row, of the same round. In waves requests "
        "begin and end together; steady ones follow each other, so that most steps have prompts."
    )
    name = machine.get("accelerator", "A machine whose facts were not read")
    lines = [f"### {name}", "", *textwrap.wrap(told, 120, break_on_hyphens=False), "", *launches(found)]
    for group in dict.fromkeys(cell["group"] for cell in cells):
        mine = in_order([cell for cell in cells if cell["group"] == group])
        lines += [f"**{group[0].upper()}{group[1:]}**", "", *table(mine), "", *left_out(mine)]
    unfinished = [stage for stage in found.get("stages", []) if stage["state"] != "done"]
    lines += [f"{stage['name']} was {stage['state']}: {stage['why'].splitlines()[0]}." for stage in unfinished]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
