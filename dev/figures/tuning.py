"""Draws docs/images/tuning-*.svg: `PYTHONPATH=dev .venv/bin/python -m figures.tuning`.

The surface comes from the tuner's priors, the course from a run made here, regrets from build/bench/tuner.json, which
`make bench-tuner` writes; where that has no rivals, its figure is left as it is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.tuner.judge import ORACLE
from bench.tuner.work import OURS, Outcome, Task, perform
from figures.frame import Frame, Scale, svg
from speculative_lab.sim.pairs import PAIRS
from speculative_lab.sim.surface import ACCEPTANCE, surface

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
BENCH = ROOT / "build" / "bench" / "tuner.json"
SHADES = ("#f6f8fa", "#dbeafe", "#bfdbfe", "#93c5fd", "#60a5fa", "#3b82f6", "#2563eb", "#1d4ed8", "#1e3a8a")
BLUE, ORANGE, GREEN, VIOLET, GREY = "#1f6feb", "#c2410c", "#15803d", "#7c3aed", "#8c959f"
PAIR = "draft_h100"
RUN = "mispriced_k"
SLICES = 3
"""Slices of 5 s that a point of the course is the mean of."""
RIVALS = {
    "static": ("best constant K", GREEN),
    "smartspec": ("SmartSpec-like argmax", VIOLET),
    "sglang_adaptive": ("SGLang adaptive", ORANGE),
    "cutoff32": ("K = 3 below 32 requests", "#a16207"),
    "off": ("no drafts", GREY),
}
MOST = 60.0
"""Percent at which the axis of regrets ends; larger ones are drawn there."""


def decision_surface() -> str:
    """Best K by concurrency and acceptance of the first draft, on priors alone."""
    pair = PAIRS[PAIR]
    found = surface(pair.policy(pair.plant()))
    frame = Frame(Scale(1, 256, 60, 560, log=True), Scale(0.0, 1.0, 370, 30))
    half = (ACCEPTANCE[1] - ACCEPTANCE[0]) / 2
    lasts = [(low * high) ** 0.5 for low, high in pairwise(found.concurrency)] + [256.0]
    firsts = [1.0, *lasts[:-1]]
    for share, ks in zip(found.acceptance, found.ks, strict=True):
        for first, last, k in zip(firsts, lasts, ks, strict=True):
            frame.box((first, share - half), (last, share + half), SHADES[min(int(k), len(SHADES) - 1)])
    names = "decoding requests of one replica", "chance that the first draft is accepted"
    frame.grid([1, 2, 4, 8, 16, 32, 64, 128, 256], [0, 0.25, 0.5, 0.75, 1], *names)
    frame.path([(1, found.believed), (256, found.believed)], ORANGE, 1.5)
    frame.write(64, frame.y(found.believed) - 5, "prior of mixed work", "start", ORANGE)
    for k in range(len(SHADES)):
        height = 60 + 24 * k
        frame.parts.append(
            f'<rect x="575" y="{height - 12}" width="16" height="16" fill="{SHADES[k]}" stroke="#d0d7de"/>'
        )
        frame.write(598, height + 1, f"K {k}", "start")
    return svg([frame], 640, 420)


def course() -> str:
    """Tokens per second of a request, the tuner beside the oracle, and the K in force."""
    ours, oracle = (perform(Task(RUN, 1, False, policy)) for policy in (OURS, ORACLE))
    minutes = ours.seconds / 60.0
    upper = Frame(Scale(0, minutes, 60, 620), Scale(40, 200, 230, 40))
    lower = Frame(Scale(0, minutes, 60, 620), Scale(-0.4, 7.4, 385, 275))
    marks = list(range(0, int(minutes) + 1, 4))
    upper.grid([], [50, 100, 150, 200], "", "tokens per second of one request")
    lower.grid(marks, [0, 1, 3, 7], "minutes", "K at the load")
    upper.path(speeds(oracle), GREY, 2)
    upper.path(speeds(ours), BLUE, 1.5)
    lower.path(active_k(ours), BLUE, 1.5)
    for place, (name, colour) in enumerate((("oracle", GREY), ("tuner", BLUE))):
        upper.write(250 + 130 * place, 30, f"&#9679; {name}", "start", colour)
    return svg([upper, lower], 640, 430)


def speeds(outcome: Outcome) -> list[tuple[float, float]]:
    """(minutes, tokens per request-second), means of a few slices."""
    run = outcome.run
    whole = len(run.ends) // SLICES * SLICES
    tokens, held = (part[:whole].reshape(-1, SLICES).sum(axis=1) for part in (run.tokens, run.request_seconds))
    ends = run.ends[:whole].reshape(-1, SLICES)[:, -1]
    return [
        (float(end) / 60, float(np.clip(count / max(time, 1e-9), 40, 200)))
        for end, count, time in zip(ends, tokens, held, strict=True)
    ]


def active_k(outcome: Outcome) -> list[tuple[float, float]]:
    """(minutes, K) as a staircase."""
    points: list[tuple[float, float]] = []
    slice_seconds = float(outcome.run.ends[0])
    for end, held in zip(outcome.run.ends, outcome.run.request_seconds, strict=True):
        tables = [answer.table for at, answer in outcome.decisions if at < end]
        k = float(tables[-1].k_at(max(1.0, float(held) / slice_seconds)))
        if points and points[-1][1] != k:
            points.append(((float(end) - slice_seconds) / 60, points[-1][1]))
            points.append(((float(end) - slice_seconds) / 60, k))
        points.append((float(end) / 60, k))
    return points


def regrets(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Scenario -> policy -> median regret of the physics as given; `static`: the best constant of each seed."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        if row["perturbed"]:
            continue
        by_policy = found.setdefault(row["scenario"], {})
        names = [row["policy"]]
        if row["policy"].startswith("static_") or row["policy"] == "off":
            names.append("static")
        for name in names:
            seeds = by_policy.setdefault(name, {})
            seeds[row["seed"]] = min(row["regret_percent"], seeds.get(row["seed"], float("inf")))
    return {
        scenario: {policy: median(seeds.values()) for policy, seeds in by_policy.items()}
        for scenario, by_policy in found.items()
    }


def by_scenario(found: Mapping[str, Mapping[str, float]]) -> str:
    """A row of dots for each scenario. The axis is the square root of per cent, so that small regrets can be told."""
    names = sorted(found, key=lambda name: found[name][OURS])
    height = 18 * len(names)
    frame = Frame(Scale(0.0, MOST**0.5, 150, 620), Scale(-0.5, len(names) - 0.5, 60 + height, 60))
    for value in (0, 1, 4, 10, 20, 40, 60):
        frame.path([(value**0.5, -0.5), (value**0.5, len(names) - 0.5)], "#d0d7de", 1)
        frame.write(frame.x(value**0.5), 78 + height, f"{value}", "middle")
    frame.write(385, 98 + height, "regret against the oracle, per cent (axis: square root)", "middle")
    for place, name in enumerate(names):
        frame.write(142, frame.y(place) + 4, name, "end")
        for policy, (_, colour) in RIVALS.items():
            if policy in found[name]:
                frame.dot(min(max(found[name][policy], 0.0), MOST) ** 0.5, place, colour, 3.5)
        frame.dot(max(found[name][OURS], 0.0) ** 0.5, place, BLUE, 5)
    for place, (words, colour) in enumerate((("the tuner", BLUE), *RIVALS.values())):
        frame.write(20 + 210 * (place % 3), 20 + 18 * (place // 3), f"&#9679; {words}", "start", colour)
    return svg([frame], 640, height + 110)


def main() -> int:
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / "tuning-surface.svg").write_text(decision_surface(), encoding="utf-8")
    (IMAGES / "tuning-course.svg").write_text(course(), encoding="utf-8")
    found = regrets(json.loads(BENCH.read_text(encoding="utf-8"))["regrets"]) if BENCH.is_file() else {}
    if not any("smartspec" in policies for policies in found.values()):
        print(f"{BENCH} has no rivals: run `make bench-tuner` for tuning-regret.svg", file=sys.stderr)
        return 1
    (IMAGES / "tuning-regret.svg").write_text(by_scenario(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
