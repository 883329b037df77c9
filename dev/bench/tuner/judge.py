"""Runs -> figures: one row for each scenario, and the summary that the bench prints. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, nan
from statistics import fmean, median
from typing import Any

from bench.tuner.work import NEVER, OURS, Outcome
from speculative_lab.sim import score
from speculative_lab.sim.catalogue import BY_NAME
from speculative_lab.sim.score import Run

RESTART_SECONDS = 300.0
"""From a removal until a replica has come back and its queue is served."""
ORACLE, OFF, BEST = "oracle", "off", "best_static"


@dataclass(frozen=True, slots=True)
class Row:
    """The tuner on one scenario with one seed. Percent, but for counts, minutes and seconds."""

    scenario: str
    seed: int
    shaken: bool
    regret: float
    over_best_static: float
    """How much slower than the best static K in hindsight; negative: faster; NaN where no constant ran."""
    best_static: str
    unsafe: int
    """Windows slower than no drafts, but for those that touch the restart of a removal that was right."""
    unsafe_in_restarts: int
    """Those: unloading a drafter stops a replica for minutes, whoever decides it."""
    windows: int
    worst_window: float
    """Slowest window against no drafts, minus 100."""
    writes_per_hour: float
    exploring_cost: float
    """How much slower than the same tables at the same times with nothing tried; 0 where nothing was tried."""
    exploring_cost_at_rest: float | None
    """The same of the second half, where the load does not move."""
    adapt_seconds: tuple[float, ...]
    removal_right: bool
    dead_minutes: float | None
    """Until the drafter was unloaded, where that is right."""
    wrong_removal: bool
    shares: Mapping[int, float]
    decide_ms_p99: float


def runs_of(outcomes: Iterable[Outcome]) -> dict[tuple[str, int, bool], dict[str, Outcome]]:
    """(scenario, seed, shaken) -> policy -> outcome."""
    found: dict[tuple[str, int, bool], dict[str, Outcome]] = {}
    for outcome in outcomes:
        task = outcome.task
        found.setdefault((task.scenario, task.seed, task.shaken), {})[task.policy] = outcome
    return found


def best_static(runs: Mapping[str, Run]) -> str:
    """Name of the fastest constant K, `off` among them."""
    names = [name for name in runs if name == OFF or name.startswith("static_")]
    return max(names, key=lambda name: score.speed(runs[name]))


def best_statics(outcomes: Mapping[str, Outcome], count: int) -> list[str]:
    """Names of the fastest constants above 0, best first."""
    names = [name for name in outcomes if name.startswith("static_")]
    return sorted(names, key=lambda name: -score.speed(outcomes[name].run))[:count]


def _has_statics(runs: Mapping[str, Run]) -> bool:
    return any(name.startswith("static_") for name in runs)


def row_of(outcomes: Mapping[str, Outcome]) -> Row:
    """Needs the runs of the tuner, the oracle, `off` and the statics, and `never`."""
    runs = {name: outcome.run for name, outcome in outcomes.items()}
    ours, oracle, off, tuned = runs[OURS], runs[ORACLE], runs[OFF], outcomes[OURS]
    scenario = BY_NAME[tuned.task.scenario]
    best = best_static(runs)
    dead_since = scenario.dead_since * tuned.seconds
    right = score.is_dead_weight(runs[NEVER], oracle, dead_since)
    pauses = [(at, at + RESTART_SECONDS * scenario.replicas) for at in ours.removals] if right else []
    unsafe, windows = score.unsafe_windows(ours, off, pauses)
    share = sum(ours.shares.values()) or 1.0
    return Row(
        scenario=scenario.name,
        seed=tuned.task.seed,
        shaken=tuned.task.shaken,
        regret=100.0 * score.regret(ours, oracle),
        over_best_static=100.0 * score.regret(ours, runs[best]) if best != OFF or _has_statics(runs) else nan,
        best_static=best,
        unsafe=unsafe,
        unsafe_in_restarts=score.unsafe_windows(ours, off)[0] - unsafe,
        windows=windows,
        worst_window=100.0 * (score.worst_window(ours, off) - 1.0),
        writes_per_hour=score.writes_per_hour(ours),
        exploring_cost=_exploring_cost(tuned),
        exploring_cost_at_rest=None if scenario.moving else _exploring_cost(tuned, tuned.seconds / 2.0),
        adapt_seconds=tuple(
            score.adaptation_seconds(ours, oracle, [step * tuned.seconds for step in scenario.load_steps])
        ),
        removal_right=right,
        dead_minutes=score.dead_drafter_minutes(ours, dead_since) if right else None,
        wrong_removal=bool(ours.removals) and not right,
        shares={k: round(steps / share, 3) for k, steps in sorted(ours.shares.items())},
        decide_ms_p99=percentile(tuned.decide_ms, 0.99),
    )


def _exploring_cost(tuned: Outcome, since: float = score.WARM_UP) -> float:
    if tuned.untried is None:
        return 0.0
    return 100.0 * (1.0 - score.speed(tuned.run, since) / score.speed(tuned.untried, since))


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def medians(rows: Sequence[Row], figure: str) -> dict[str, float]:
    """Scenario -> median of a figure over its seeds; those that are not finite are left out.

    A regret below 0 counts as 0: where a removal beats every table, or luck the oracle, that must not make up for
    what is lost elsewhere.
    """
    found: dict[str, list[float]] = {}
    for row in rows:
        value = getattr(row, figure)
        if value is not None and isfinite(value):
            found.setdefault(row.scenario, []).append(max(float(value), 0.0) if figure == "regret" else float(value))
    return {name: median(values) for name, values in found.items()}


def adaptations(rows: Sequence[Row]) -> dict[tuple[str, int], float]:
    """(scenario, number of the load's step) -> median seconds over seeds."""
    found: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        for number, seconds in enumerate(row.adapt_seconds):
            found.setdefault((row.scenario, number), []).append(seconds)
    return {key: median(values) for key, values in found.items()}


def policy_means(outcomes: Sequence[Outcome], *, shaken: bool = False) -> dict[str, float]:
    """Policy -> mean over scenarios of its median regret in percent; only policies that every scenario has."""
    groups = {key: group for key, group in runs_of(outcomes).items() if ORACLE in group and key[2] == shaken}
    found: dict[str, dict[str, list[float]]] = {}
    for (scenario, _, _), group in groups.items():
        runs = {name: outcome.run for name, outcome in group.items()}
        if OFF in runs:
            runs[BEST] = runs[best_static(runs)]
        for name, one in runs.items():
            regret = max(0.0, 100.0 * score.regret(one, runs[ORACLE]))
            found.setdefault(name, {}).setdefault(scenario, []).append(regret)
    scenarios = {scenario for scenario, _, _ in groups}
    return {
        name: round(fmean(median(values) for values in by_scenario.values()), 3)
        for name, by_scenario in found.items()
        if set(by_scenario) == scenarios and name != ORACLE
    }


def summary(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The figures of the tuner and the mean regret of every policy; None where nothing was measured."""
    plain, shaken = [row for row in rows if not row.shaken], [row for row in rows if row.shaken]
    regrets, shaken_regrets = medians(plain, "regret"), medians(shaken, "regret")
    moving = {name: value for name, value in medians(plain, "writes_per_hour").items() if BY_NAME[name].moving}
    still = {name: value for name, value in medians(plain, "writes_per_hour").items() if not BY_NAME[name].moving}
    adapted = adaptations(plain)
    dead = medians(rows, "dead_minutes")
    return {
        "regret_percent": {
            "mean": _mean(regrets), "max": _most(regrets),
            "perturbed_mean": _mean(shaken_regrets), "perturbed_max": _most(shaken_regrets),
        },
        "over_best_static_percent": {"max": _most(medians(plain, "over_best_static"))},
        "unsafe_windows_percent": _unsafe(plain),
        "unsafe_windows_perturbed_percent": _unsafe(shaken),
        "unsafe_windows_in_restarts": sum(row.unsafe_in_restarts for row in rows),
        "dead_drafter_minutes": _most(dead),
        "wrong_removals": sum(row.wrong_removal for row in rows),
        "policies": policy_means(outcomes),
        "policies_perturbed": policy_means(outcomes, shaken=True),
        "adapt_seconds": max(adapted.values(), default=None),
        "writes_per_hour": _most(moving),
        "writes_per_hour_stationary": _most(still),
        "exploring_cost_percent": {
            "mean": _mean(medians(rows, "exploring_cost")), "at_rest": _mean(medians(rows, "exploring_cost_at_rest")),
        },
        "decide_ms_p99": round(percentile([ms for one in outcomes for ms in one.decide_ms], 0.99), 3),
    }  # fmt: skip


def as_json(row: Row) -> dict[str, Any]:
    """A row for the file of all rows; figures that are not finite become None."""
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value for name, value in asdict(row).items()
    }


def _unsafe(rows: Sequence[Row]) -> float | None:
    windows = sum(row.windows for row in rows)
    return round(100.0 * sum(row.unsafe for row in rows) / windows, 3) if windows else None


def _mean(values: Mapping[str, float]) -> float | None:
    return round(fmean(values.values()), 3) if values else None


def _most(values: Mapping[str, float]) -> float | None:
    return round(max(values.values()), 3) if values else None
