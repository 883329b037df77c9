"""The judge's rows as a page: what each law lost, where it was unsafe, what exploring cost, and one JSON line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

Row = dict[str, Any]
LONG = 10.0
"""Prompts this many times as long as their answers are long."""
SLOWER = 2.0
"""Percent by which a 5-minute window may be slower than K = 0."""


def spread(values: Iterable[float]) -> tuple[float, float, float]:
    """Mean, 95th percentile and worst; zeros of nothing."""
    found = [value for value in values if value is not None]
    if not found:
        return 0.0, 0.0, 0.0
    return float(np.mean(found)), float(np.quantile(found, 0.95)), float(max(found))


def windows(rows: list[Row], law: str) -> tuple[float, float, int]:
    """Percent of 5-minute windows more than 2 % slower than K = 0, the worst in percent, and their number."""
    found = [value for row in rows for value in row["laws"][law]["unsafe"]]
    if not found:
        return 0.0, 0.0, 0
    return 100.0 * float(np.mean(np.array(found) > SLOWER)), float(max(found)), len(found)


def summary(rows: list[Row], law: str) -> dict[str, Any]:
    """One law's figures over all worlds."""
    mean, high, worst = spread(row["laws"][law]["regret"] for row in rows)
    share, slowest, count = windows(rows, law)
    mine = [row["laws"][law] for row in rows]
    met = [item["met"] for item in mine if "met" in item]
    settle = [item["settle"] for item in mine if item.get("settle") is not None]
    return {
        "worlds": len(rows),
        "mean": round(mean, 2),
        "lost": round(float(np.mean([max(item["regret"], 0.0) for item in mine])), 2),
        "median": round(float(np.median([item["regret"] for item in mine])), 2),
        "p95": round(high, 2),
        "worst": round(worst, 2),
        "unsafe_percent": round(share, 2),
        "unsafe_worst": round(slowest, 2),
        "windows": count,
        "cost": round(spread(item["cost"] for item in mine)[0], 3),
        "rest_cost": round(spread(item["rest_cost"] for item in mine)[0], 3),
        "writes_per_hour": round(spread(item["writes"] for item in mine)[0], 1),
        "table_changes_per_hour": round(spread(item["changes"] for item in mine)[0], 1),
        "targets_met": f"{sum(met)}/{len(met)}",
        "settle_median": float(np.median(settle)) if settle else None,
        "settle_p90": float(np.quantile(settle, 0.9)) if settle else None,
        "decide_ms": round(float(np.median([item["decide_ms"] for item in mine])), 2),
    }


def page(rows: list[Row], laws: tuple[str, ...], seed: int | None, worst: int = 12) -> str:
    """The whole report."""
    lines = [f"{len(rows)} worlds, " + ("fixed" if seed is None else f"random, seed {seed}"), ""]
    lines.append(f"{'law':<14}{'mean':>8}{'median':>8}{'p95':>8}{'worst':>8}{'unsafe %':>10}{'worst':>8}{'cost':>8}")
    for law in laws:
        s = summary(rows, law)
        lines.append(
            f"{law:<14}{s['mean']:>8}{s['median']:>8}{s['p95']:>8}{s['worst']:>8}"
            f"{s['unsafe_percent']:>10}{s['unsafe_worst']:>8}{s['cost']:>8}"
        )
    for name, key in (("best constant", "constant"), ("K = 0", "off")):
        values = [row[key] for row in rows]
        mean, high, top = spread(values)
        lines.append(f"{name:<14}{mean:>8.2f}{np.median(values):>8.2f}{high:>8.2f}{top:>8.2f}")
    floor = [value for row in rows for value in row["oracle_unsafe"]]
    slower = 100 * float(np.mean(np.array(floor) > 2)) if floor else 0.0
    lines.append(f"{'oracle':<14}{'':>32}{slower:>10.2f}{max(floor, default=0.0):>8.2f}")
    for law in laws:
        lines += ["", f"{law}: {json.dumps(summary(rows, law))}", *_groups(rows, law)]
        lines += ["", f"{law}, {worst} worst worlds:", *_worst(rows, law, worst)]
    return "\n".join(lines)


def _groups(rows: list[Row], law: str) -> list[str]:
    """Mean and worst regret, and number of worlds, by what was drawn."""
    lines = []
    for name, of in GROUPS:
        parts = []
        for value in sorted({of(row) for row in rows}):
            regrets = [row["laws"][law]["regret"] for row in rows if of(row) == value]
            mean, _, worst = spread(regrets)
            parts.append(f"{value} {mean:.1f}/{worst:.1f} of {len(regrets)}")
        lines.append(f"  by {name} (mean/worst of worlds): " + ", ".join(parts))
    return lines


def recipe_of(row: Row) -> str:
    """What kind of load a world has: how it comes, and how much of it is prompts."""
    loop = {0.0: "closed", 1.0: "open"}.get(row["open"], "mixed")
    lumps = " lumps" if row["open"] > 0 and row["lump"] > 1 else ""
    return f"{loop}{lumps}, {'long' if row['prompt'] >= LONG * row['answer'] else 'short'} prompts"


GROUPS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("goal", lambda row: str(row["goal"])),
    ("wish", lambda row: str(row["wish"]).split()[0]),
    ("method", lambda row: str(row["method"])),
    ("shape", lambda row: str(row["shape"])),
    ("load", recipe_of),
    ("facts", lambda row: str(row["facts"])),
)


def _worst(rows: list[Row], law: str, count: int) -> list[str]:
    rank: Callable[[Row], float] = lambda row: -float(row["laws"][law]["regret"])  # noqa: E731
    return [line(row, law) for row in sorted(rows, key=rank)[:count]]


def line(row: Row, law: str) -> str:
    """One world in one line."""
    item = row["laws"][law]
    return (
        f"  {row['world']:<24} regret {item['regret']:>6.2f} (constant K {row['constant_k']} {row['constant']:>5.2f}, "
        f"off {row['off']:>6.2f}) unsafe {max(item['unsafe'], default=0.0):>6.2f} {row['method']} {row['model']} "
        f"{row['accelerator']} b {row['batch']} {row['shape']} open {row['open']} lump {row['lump']} "
        f"{row['prompt']}/{row['answer']} {row['goal']} {row['wish']} met {item.get('met')} [{item['table']}]"
    )


def verdict(rows: list[Row], laws: tuple[str, ...], seed: int | None, minutes: float) -> dict[str, Any]:
    """The last line: figures of each law, of the best constant and of K = 0."""
    figures = {law: summary(rows, law) for law in laws}
    figures |= {name: _fixed(rows, name) for name in ("constant", "off")}
    return {"seed": seed, "worlds": len(rows), "minutes": minutes, "laws": figures}


def _fixed(rows: list[Row], name: str) -> dict[str, float]:
    """Figures of a constant K."""
    values = [row[name] for row in rows]
    _, high, worst = spread(values)
    slow = [value > SLOWER for row in rows for value in row["constant_unsafe"]] if name == "constant" else [False]
    return {
        "lost": round(float(np.mean(np.maximum(values, 0.0))), 2),
        "median": round(float(np.median(values)), 2),
        "p95": round(high, 2),
        "worst": round(worst, 2),
        "unsafe_percent": round(100.0 * float(np.mean(slow)), 2) if slow else 0.0,
    }
