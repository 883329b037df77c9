"""Fills the measured tables of docs/tuning.md from build/bench: `PYTHONPATH=dev .venv/bin/python -m figures.tables`.

Reads tuner.json (`make bench-tuner`), ablations.json (`make bench-ablations`) and limits.json (`python -m
bench.ablations.limits`), and replaces what stands between `<!-- NAME -->` and `<!-- /NAME -->`. A table whose file is
missing, or has no rivals, stays as it is.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.ablations.variants import BY_NAME

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "tuning.md"
BENCH = ROOT / "build" / "bench"
TARGETS: tuple[tuple[str, str, str], ...] = (
    ("mean regret, physics as given", "regret_percent.mean", "<= 1.5 %"),
    ("worst scenario", "regret_percent.max", "<= 4 %"),
    ("mean regret, physics perturbed", "regret_percent.perturbed_mean", "<= 2.5 %"),
    ("worst scenario, perturbed", "regret_percent.perturbed_max", "<= 6 %"),
    ("behind the best constant K in hindsight, worst scenario", "over_best_static_percent.max", "<= 1 %"),
    ("unsafe windows", "unsafe_windows_percent", "<= 0.5 %"),
    ("unsafe windows, perturbed", "unsafe_windows_perturbed_percent", "<= 0.5 %"),
    ("minutes until a dead drafter is unloaded", "dead_drafter_minutes", "<= 30"),
    ("wrong removals", "wrong_removals", "0"),
    ("seconds to adapt, worst jump of load", "adapt_seconds", "<= 60"),
    ("writes an hour, worst scenario with a moving load", "writes_per_hour", "<= 20"),
    ("writes an hour, stationary", "writes_per_hour_stationary", "<= 4"),
    ("cost of exploring, mean", "exploring_cost_percent.mean", "<= 0.3 %"),
    ("cost of exploring at rest, mean", "exploring_cost_percent.at_rest", "<= 0.1 %"),
    ("processor time of a decision, p99", "decide_ms_p99", "<= 2 ms"),
)
WORST = 6


def found_at(summary: Mapping[str, Any], path: str) -> str:
    """The figure at a dotted path; `-` where it was not measured."""
    value: Any = summary
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return "-" if value is None else f"{value:g}"


def targets(bench: Mapping[str, Any]) -> str:
    rows = [f"| {words} | {found_at(bench['summary'], path)} | {goal} |" for words, path, goal in TARGETS]
    return "\n".join(["| figure | measured | target |", "|---|---|---|", *rows])


def rivals(bench: Mapping[str, Any]) -> str:
    means = sorted(bench["summary"]["policies"].items(), key=lambda item: item[1])
    return "\n".join(
        ["| policy | mean regret, % |", "|---|---|", *(f"| `{name}` | {mean:.2f} |" for name, mean in means)]
    )


def scenarios(bench: Mapping[str, Any]) -> str:
    """Medians over seeds, the worst first."""
    kinds = {"as given": False, "perturbed": True}
    lines = [
        "| scenario | physics | regret, % | writes/h | slowest 5 minutes against no drafts, % |",
        "|---|---|---|---|---|",
    ]
    for words, shaken in kinds.items():
        by_name: dict[str, list[Mapping[str, Any]]] = {}
        for row in bench["rows"]:
            if row["shaken"] == shaken:
                by_name.setdefault(row["scenario"], []).append(row)
        worst = sorted(by_name, key=lambda name: -_median(by_name[name], "regret"))[:WORST]
        lines += [
            f"| `{name}` | {words} | {_median(by_name[name], 'regret'):.1f} | "
            f"{_median(by_name[name], 'writes_per_hour'):.0f} | {_median(by_name[name], 'worst_window'):+.0f} |"
            for name in worst
        ]
    return "\n".join(lines)


def ablations(found: Mapping[str, Any]) -> str:
    lines = [
        "| taken out | mean, % | perturbed, % | worst, % | costs, % | most in | writes/h | unsafe, % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in found["variants"]:
        if one["variant"] not in BY_NAME:
            continue  # removed since it was measured
        about, against = BY_NAME[one["variant"]].about, BY_NAME[one["variant"]].against
        beside = "" if against == "whole" or one["variant"] == "whole" else f" (against `{against}`)"
        lines.append(
            f"| `{one['variant']}`: {about} | {one['nominal']:.2f} | {one['perturbed']:.2f} | "
            f"{one['worst']:.1f} {one['worst_case']} | {one['cost']:+.2f} ± {one['cost_error']:.2f}{beside} | "
            f"{one['dearest']} | {one['writes_per_hour']:.1f} | {one['unsafe_percent']:.2f} |"
        )
    return "\n".join(lines)


def limits(found: Mapping[str, Mapping[str, float]]) -> str:
    """Scenarios in which the limited oracle loses anything to speak of; the others in one row."""
    names = list(next(iter(found.values())))
    told = {name: losses for name, losses in found.items() if max(losses.values()) >= 0.1}
    lines = [f"| scenario | {' | '.join(f'{name}, %' for name in names)} |", f"|---|{'---|' * len(names)}"]
    ordered = sorted(told.items(), key=lambda item: -max(item[1].values()))
    lines += [f"| `{name}` | {' | '.join(f'{losses[one]:.2f}' for one in names)} |" for name, losses in ordered]
    means = {one: sum(max(losses[one], 0.0) for losses in found.values()) / len(found) for one in names}
    return "\n".join([*lines, f"| mean of {len(found)} | {' | '.join(f'{means[one]:.2f}' for one in names)} |"])


def filled(text: str, name: str, table: str) -> str:
    """`text` with the table between its marks replaced. Raises ValueError where the marks are missing."""
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    pattern = re.compile(f"{re.escape(opening)}.*?{re.escape(closing)}", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"no place for the table {name}")
    return pattern.sub(lambda _: f"{opening}\n{table}\n{closing}", text)


def _median(rows: Sequence[Mapping[str, Any]], figure: str) -> float:
    return median(float(row[figure]) for row in rows if row[figure] is not None)


def main() -> int:
    text = DOCUMENT.read_text(encoding="utf-8")
    tables: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
        ("targets", "tuner.json", targets),
        ("rivals", "tuner.json", rivals),
        ("scenarios", "tuner.json", scenarios),
        ("ablations", "ablations.json", ablations),
        ("limits", "limits.json", limits),
    )
    for name, file, make in tables:
        path = BENCH / file
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        if found is None or (file == "tuner.json" and "smartspec" not in found["summary"]["policies"]):
            print(f"{file} is missing or has no rivals: {name} stays as it is", file=sys.stderr)
            continue
        text = filled(text, name, make(found))
    DOCUMENT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
