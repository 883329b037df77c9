"""Runs of one variant, and the figures that they are compared by. Called by the bench's command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from bench.ablations.variants import BY_NAME, WHOLE, applied
from bench.tuner import judge
from bench.tuner.judge import Row
from bench.tuner.work import OURS, Outcome, Task, perform

Case = tuple[str, int, bool]
"""Scenario, seed, perturbed."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run: of a variant, or of a reference where `variant` is empty."""

    variant: str
    task: Task


@dataclass(frozen=True, slots=True)
class Figures:
    """A variant over all cases. Regrets in percent; below 0 they count as 0, as in the bench of the tuner."""

    variant: str
    nominal: float | None
    perturbed: float | None
    worst: float
    worst_case: str
    cost: float
    """Mean regret more than that of what it is compared with."""
    cost_error: float
    """Standard error of that mean over cases."""
    dearest: str
    """The case that costs most, with what it costs."""
    writes_per_hour: float
    unsafe_percent: float
    wrong_removals: int


def work(job: Job) -> tuple[Job, Outcome]:
    """One run in a worker process."""
    if job.task.policy != OURS:
        return job, perform(job.task)
    with applied(BY_NAME[job.variant]):
        return job, perform(job.task)


def rows_of(done: Sequence[tuple[Job, Outcome]]) -> dict[str, dict[Case, Row]]:
    """Variant -> case -> figures of that run."""
    references: dict[Case, dict[str, Outcome]] = {}
    for job, outcome in done:
        if not job.variant:
            references.setdefault(_case(job.task), {})[job.task.policy] = outcome
    found: dict[str, dict[Case, Row]] = {}
    for job, outcome in done:
        if job.variant:
            case = _case(job.task)
            found.setdefault(job.variant, {})[case] = judge.row_of({**references[case], OURS: outcome})
    return found


def figures(variant: str, rows: Mapping[str, Mapping[Case, Row]]) -> Figures:
    """`variant` beside what it is compared with; both must have run on the same cases."""
    own, base = rows[variant], rows.get(BY_NAME[variant].against, rows[WHOLE])
    regrets = {case: max(row.regret, 0.0) for case, row in own.items()}
    apart = {case: regret - max(base[case].regret, 0.0) for case, regret in regrets.items()}
    worst, dearest = max(regrets, key=regrets.__getitem__), max(apart, key=apart.__getitem__)
    windows = sum(row.windows for row in own.values())
    return Figures(
        variant=variant,
        nominal=_mean([regret for case, regret in regrets.items() if not case[2]]),
        perturbed=_mean([regret for case, regret in regrets.items() if case[2]]),
        worst=regrets[worst],
        worst_case=name_of(worst),
        cost=fmean(apart.values()),
        cost_error=stdev(apart.values()) / len(apart) ** 0.5 if len(apart) > 1 else 0.0,
        dearest=f"{name_of(dearest)} {apart[dearest]:+.1f}",
        writes_per_hour=fmean(row.writes_per_hour for row in own.values()),
        unsafe_percent=100.0 * sum(row.unsafe for row in own.values()) / windows if windows else 0.0,
        wrong_removals=sum(row.wrong_removal for row in own.values()),
    )


def name_of(case: Case) -> str:
    """`*`: perturbed."""
    return f"{case[0]}{'*' if case[2] else ''}"


def _case(task: Task) -> Case:
    return task.scenario, task.seed, task.shaken


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
