"""What the demo shows of each phase of the load, and whether it holds. Pure; called by `run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from demo.figures import Phases, mean_k, mean_tpot_ms, within
from demo.scene import AUTO, OFF, STATIC
from demo.watch import Sight

GAIN = 1.15
"""Where drafts pay, no speculation must take at least so many times the tuned model's TPOT."""
OFF_K = 0.2
"""Mean K below which speculation is off: a small share of the steps tries whether drafts pay again."""
SLACK = 1.05
"""Nowhere may the tuned model take more than this times the TPOT of another variant: what two runs differ by."""
UNDER_LOAD = 1.10
"""The same of no speculation at the peak: requests wait for one another there, so that a step that takes 1 % longer
makes a token take several per cent longer."""
DECISION_SECONDS = 90.0
"""From the first request to the first decision: at low load three requests come in a second."""
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
        "low load: 15 % faster than no speculation or more": _at_least(low, OFF, GAIN),
        "low load: not slower than Static K=5": _at_least(low, STATIC, 1 / SLACK),
        "peak: not slower than no speculation": _at_least(peak, OFF, 1 / UNDER_LOAD),
        "peak: not slower than Static K=5": _at_least(peak, STATIC, 1 / SLACK),
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
