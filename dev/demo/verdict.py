"""What the demo shows of each phase of the load, and whether it holds. Pure; called by `run`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from demo.figures import Phases, mean_k, mean_tpot_ms, mean_ttft_ms, slowdowns, within
from demo.scene import AGAIN, AUTO, OFF, STATIC, STATICS
from demo.watch import Sight

GAIN = 1.15
"""Where drafts pay, no speculation must take at least so many times the tuned model's TPOT."""
OFF_K = 0.2
"""Mean K below which speculation is off: a small share of the steps tries whether drafts pay again."""
MOST_SLOWDOWN = 2.0
"""Per cent by which the tuned model's TPOT may exceed that of no speculation at the peak. Part of it is physics: pods
that can draft have no full graphs."""
CHANCE = 4.0
"""Times the standard deviation between two copies without speculation by which ten seconds may exceed that."""
SLACK = 1.05
"""Nowhere may the tuned model take more than this times the TPOT of constant K."""
DECISION_SECONDS = 90.0
"""From the first request to the first decision: at low load three requests come in a second."""
ADOPTION_SECONDS = 10.0
"""From a decision to the engine's word that the table is in force."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of the load: mean TPOT and TTFT of each variant in milliseconds, and the tuned model's mean K."""

    tpot_ms: Mapping[str, float | None]
    k: float | None
    ttft_ms: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def slowdown(self) -> float | None:
        """Per cent by which the tuned model's TPOT exceeds that of the copies without speculation."""
        ours, theirs = self.tpot_ms.get(AUTO), [found for role in (OFF, AGAIN) if (found := self.tpot_ms.get(role))]
        return 100.0 * (ours / fmean(theirs) - 1.0) if ours and theirs else None

    def cell(self, role: str) -> str:
        """TPOT of a variant, and what it gains over no speculation, as the report tells it."""
        tpot, off = self.tpot_ms.get(role), self.tpot_ms.get(OFF)
        if not tpot:
            return "–"
        return f"{tpot:.1f} ms" + (f" ({100 * (off / tpot - 1):+.0f} %)" if off and role not in (OFF, AGAIN) else "")


@dataclass(frozen=True, slots=True)
class Stretches:
    """Every ten seconds of the peak, in per cent of TPOT."""

    tuned: Sequence[float]
    """How much slower the tuned model is than both copies without speculation."""
    chance: Sequence[float]
    """How much slower the second of these is than the first. Other work on this machine makes it more: requests come
    late."""

    @classmethod
    def of(cls, sights: Mapping[str, Sequence[Sight]], span: tuple[float, float]) -> Stretches:
        """The stretches of `span`."""
        tuned, off, again = (sights.get(role, ()) for role in (AUTO, OFF, AGAIN))
        return cls(slowdowns(tuned, [*off, *again], span), slowdowns(again, off, span))

    @property
    def deviation(self) -> float | None:
        """Standard deviation of `chance`; None where nothing was seen."""
        return math.sqrt(fmean(one * one for one in self.chance)) if self.chance and self.tuned else None

    @property
    def limit(self) -> float:
        """What no stretch may exceed."""
        return -math.inf if self.deviation is None else MOST_SLOWDOWN + CHANCE * self.deviation

    @property
    def mean_limit(self) -> float:
        """What the mean of the peak may not exceed: a standard error more."""
        return -math.inf if self.deviation is None else MOST_SLOWDOWN + self.deviation / math.sqrt(len(self.chance))

    def summary(self) -> dict[str, float] | None:
        """Median and worst stretch, the worst by chance, and the limits."""
        if self.deviation is None:
            return None
        found = {
            "median": median(self.tuned),
            "worst": max(self.tuned),
            "chance": max(map(abs, self.chance)),
            "limit": self.limit,
            "mean_limit": self.mean_limit,
        }
        return {name: round(value, 1) for name, value in found.items()}


def phases_of(sights: Mapping[str, Sequence[Sight]], phases: Phases) -> dict[str, Phase]:
    """The figures of each phase, by its name."""
    return {
        name: Phase(
            {role: mean_tpot_ms(seen, span) for role, seen in sights.items()},
            mean_k(within(sights.get(AUTO, ()), span)),
            {role: mean_ttft_ms(within(seen, span)) for role, seen in sights.items()},
        )
        for name, span in phases.named().items()
    }


def checks_of_phases(phases: Mapping[str, Phase], stretches: Stretches) -> dict[str, bool]:
    """What must hold of the comparison, in words."""
    low, peak, after = phases["low"], phases["peak"], phases["after"]
    mean = peak.slowdown
    return {
        "low load: 15 % faster than no speculation or more": _at_least(low, OFF, GAIN),
        "low load: not slower than Static K=5": _at_least(low, STATIC, 1 / SLACK),
        f"peak: slower than no speculation by at most {MOST_SLOWDOWN:g} % and chance": mean is not None
        and mean <= stretches.mean_limit,
        "peak: so in every ten seconds": max(stretches.tuned, default=math.inf) <= stretches.limit,
        **{f"peak: not slower than Static K={k}": _at_least(peak, role, 1 / SLACK) for role, k in STATICS.items()},
        "low load again: 15 % faster than no speculation or more": _at_least(after, OFF, GAIN),
        "low load again: not slower than Static K=5": _at_least(after, STATIC, 1 / SLACK),
    }


def checks_of_k(phases: Mapping[str, Phase]) -> dict[str, bool]:
    """What must hold of K."""
    low, peak, after = (phases[name].k for name in ("low", "peak", "after"))
    return {
        "speculates at low load": bool(low),
        "is off at the peak": peak is not None and peak < OFF_K,
        "speculates again after": after is not None and peak is not None and after > peak + OFF_K,
    }


def _at_least(phase: Phase, over: str, ratio: float) -> bool:
    ours, theirs = phase.tpot_ms.get(AUTO), phase.tpot_ms.get(over)
    return ours is not None and theirs is not None and theirs >= ratio * ours
