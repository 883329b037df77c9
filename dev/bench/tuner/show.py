"""Tables for the terminal: a line for each scenario and seed, and the mean regret of every policy."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from bench.tuner.judge import Row
from bench.tuner.work import Outcome

HEAD = (
    f"{'scenario':17s} {'seed':>4s} {'regret':>7s} {'vs best':>8s} {'static':>8s} {'worst 5m':>8s} {'unsafe':>7s} "
    f"{'writes/h':>8s} {'tries':>6s} {'adapt s':>9s} {'removal':>14s}  K shares"
)


def line(row: Row) -> str:
    """One row; percent unless the head says otherwise. `*` behind the seed: physics perturbed."""
    adapt = "/".join(f"{seconds:.0f}" for seconds in row.adapt_seconds) or "-"
    shares = " ".join(f"{k}:{100 * share:.0f}" for k, share in row.shares.items() if share >= 0.005)
    seed = f"{row.seed}{'*' if row.shaken else ''}"
    return (
        f"{row.scenario:17s} {seed:>4s} {row.regret:7.2f} {_versus_best(row)} "
        f"{row.worst_window:8.1f} {row.unsafe:3d}/{row.windows:<3d} {row.writes_per_hour:8.1f} "
        f"{row.exploring_cost:6.2f} {adapt:>9s} {_removal(row):>14s}  {shares}"
    )


def decisions(outcome: Outcome) -> str:
    """Every answer of the tuner that differs from the one before it."""
    return "\n".join(
        f"  {at:6.0f} s  {one.state:8s} {one.reason:18s} {str(one.table)[:60]:60s} {one.message[:150]}"
        for at, one in outcome.decisions
    )


def policies(means: Mapping[str, float]) -> str:
    """Mean regret, best first."""
    width = max((len(name) for name in means), default=0)
    rows = sorted(means.items(), key=lambda item: item[1])
    return "\n".join(f"{name:{width}s} {regret:8.2f} %" for name, regret in rows)


def _versus_best(row: Row) -> str:
    known = isfinite(row.over_best_static)
    return f"{row.over_best_static:8.2f} {row.best_static:>8s}" if known else f"{'-':>8s} {'-':>8s}"


def _removal(row: Row) -> str:
    if row.wrong_removal:
        return "WRONG"
    if not row.removal_right:
        return "-"
    return f"right {row.dead_minutes:.0f} min"
