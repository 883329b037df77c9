"""What the demo shows of each phase of the load, and whether it holds. Pure; called by `run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from demo.figures import Phases, mean_k, mean_tpot_ms, within
from demo.scene import AUTO, OFF, STATIC
from demo.watch import Sight

GAIN = 1.10
"""Where drafts pay, no speculation must take at least so many times the tuned model's TPOT."""
SLACK = 1.05
"""Nowhere may the tuned model take more than this times the TPOT of another variant: what two runs differ by."""
DECISION_SECONDS = 30.0
"""From the first request to the first decision."""
ADOPTION_SECONDS = 10.0
"""From a decision to the engine's word that the table is in force."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of the load: mean TPOT of each variant in milliseconds, and the tuned model's mean K."""

    tpot_ms: Mapping[str, float | None]
    k: float | None


def phases_of(sights: Mapping[str, Sequence[Sight]], phases: Phases) -> dict[str, Phase]:
    """The figures of each phase, by its name."""
    return {
        name: Phase(
            {role: mean_tpot_ms(within(seen, span)) for role, seen in sights.items()},
            mean_k(within(sights.get(AUTO, ()), span)),
        )
        for name, span in phases.named().items()
    }


def checks_of_phases(phases: Mapping[str, Phase]) -> dict[str, bool]:
    """What must hold of the comparison, in words."""
    low, peak, after = phases["low"], phases["peak"], phases["after"]
    return {
        "low load: 10 % faster than no speculation or more": _at_least(low, OFF, GAIN),
        "low load: not slower than Static K=5": _at_least(low, STATIC, 1 / SLACK),
        "peak: not slower than no speculation": _at_least(peak, OFF, 1 / SLACK),
        "peak: not slower than Static K=5": _at_least(peak, STATIC, 1 / SLACK),
        "low load again: 10 % faster than no speculation or more": _at_least(after, OFF, GAIN),
        "low load again: not slower than Static K=5": _at_least(after, STATIC, 1 / SLACK),
    }


def checks_of_k(phases: Mapping[str, Phase]) -> dict[str, bool]:
    """What must hold of K."""
    low, peak, after = (phases[name].k for name in ("low", "peak", "after"))
    return {
        "speculates at low load": bool(low),
        "drafts less at the peak": low is not None and peak is not None and peak < low,
        "drafts more again after": after is not None and peak is not None and after > peak,
    }


def _at_least(phase: Phase, over: str, ratio: float) -> bool:
    ours, theirs = phase.tpot_ms.get(AUTO), phase.tpot_ms.get(over)
    return ours is not None and theirs is not None and theirs >= ratio * ours
