"""The mechanisms of the tuner's law, each with the patch that takes it out.

Patches name what they replace by its path under `speculative_operator.tuner`, are set in a worker process around a run,
and fail where the name no longer exists. The product has no switches for this.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from speculative_operator import tuner
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.table import KnobSpace
from speculative_operator.physics.step_costs import StepCosts, roofline
from speculative_operator.tuner.outlook import Outlook, outlook
from speculative_operator.tuner.prior import Array
from speculative_operator.tuner.traffic import Traffic

WHOLE = "whole"
TINY = 1e-4
WIDE = (1.5,) * 5
MISLED = 0.3


@dataclass(frozen=True, slots=True)
class Variant:
    """`patches`: path under the tuner's package -> what stands there instead. `against`: what it is compared with."""

    name: str
    about: str
    patches: Mapping[str, Any]
    against: str = WHOLE


@contextmanager
def applied(variant: Variant) -> Iterator[None]:
    """The tuner without the mechanism, in this process, and restored afterwards. AttributeError: a path is stale."""
    places = [(*owner_of(path), value) for path, value in variant.patches.items()]
    before = [getattr(owner, name) for owner, name, _ in places]
    try:
        for owner, name, value in places:
            setattr(owner, name, value)
        _forget()
        yield
    finally:
        for (owner, name, _), value in zip(places, before, strict=True):
            setattr(owner, name, value)
        _forget()


def _forget() -> None:
    """Empties every cache of the tuner: what it holds may rest on what is patched."""
    for found in pkgutil.iter_modules(tuner.__path__):
        module = importlib.import_module(f"speculative_operator.tuner.{found.name}")
        for held in vars(module).values():
            if callable(clear := getattr(held, "cache_clear", None)):
                clear()


def owner_of(path: str) -> tuple[Any, str]:
    """The object that holds what `path` names, and the attribute there."""
    module, *inner, name = path.split(".")
    owner: Any = importlib.import_module(f"speculative_operator.tuner.{module}")
    for part in inner:
        owner = getattr(owner, part)
    getattr(owner, name)
    return owner, name


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _never(*_: Any, **__: Any) -> bool:
    return False


def _all(batch: Array) -> Array:
    return np.ones_like(np.asarray(batch, dtype=float))


def _same(first: Any, *_: Any) -> Any:
    return first


def _no_prompts(view: Outlook, *_: Any) -> Array:
    return np.zeros_like(view.log_seconds)


def _plain_length(mean: Array, *_: Any) -> Array:
    return np.ones(len(mean) + 1)


def _without_prefill(policy: Any, costs: Any, drafts: Any, traffic: Traffic, *rest: Any, **named: Any) -> Outlook:
    return outlook(policy, costs, drafts, replace(traffic, prompt_ratio=0.0), *rest, **named)


def _mistaken(facts: PairFacts, knobs: KnobSpace) -> StepCosts | None:
    """A roofline that takes tokens and drafts to cost a third of what it should say."""
    found = roofline(facts, knobs)
    if found is None:
        return None
    return replace(
        found,
        per_token=MISLED * found.per_token,
        draft_fixed=MISLED * found.draft_fixed,
        draft_per_token=MISLED * found.draft_per_token,
        draft_per_kv_token=MISLED * found.draft_per_kv_token,
    )


_ROOFLINE_ONLY = {"prior.published_costs": _nothing}
_MISTAKEN = {**_ROOFLINE_ONLY, "prior.estimated_costs": _mistaken}

VARIANTS: tuple[Variant, ...] = (
    Variant(WHOLE, "the law as it is", {}),
    # Groups of what follows, and more.
    Variant("acceptance_plain", "no renewal, no change detection, forgotten by drafts alone", {
        "acceptance._across": _plain_length, "acceptance.FITTED_FROM": math.inf, "acceptance.ALARM": math.inf,
        "acceptance.FORGET_SECONDS": 1e-9,
    }),
    Variant("costs_plain", "all windows count alike in step costs, for ever, with all their prompts", {
        "costs.OUTLIER": math.inf, "costs.prefill_overlap": _all, "learning.FILL": 0.0,
        "costs.FORGET_SECONDS": math.inf, "costs.FORGET_FORM_SECONDS": math.inf,
    }),
    Variant("no_regression", "step times are not learned from", {
        "learning.learn_costs": _same, "prior.K_SD": TINY, "prior.KNOT_SD": TINY,
    }),
    Variant(
        "decoding_alone", "time before the first token is neglected",
        {"request_time.TimeShares.after": _same, "outlook.Outlook._prompts": _no_prompts},
    ),
    # What is believed beforehand.
    Variant("no_facts", "hardware and models unknown", {**_ROOFLINE_ONLY, "prior.estimated_costs": _nothing}),
    Variant(
        "wide_prior", "prior with no opinion on size (log sd 1.5 each)",
        {"prior.ROOFLINE_SD": WIDE, "prior.CALIBRATED_SD": WIDE},
    ),
    # What is learned.
    Variant("no_k_correction", "no correction v_K of single K", {"prior.K_SD": TINY}),
    Variant("no_local_form", "no correction u(n) by size", {"prior.KNOT_SD": TINY}),
    Variant("no_huber", "outliers count whole", {"costs.OUTLIER": math.inf}),
    Variant("all_prompts_meet", "every prompt is thought to delay somebody", {"costs.prefill_overlap": _all}),
    Variant("no_fill", "windows with lumps of prompts count whole", {"learning.FILL": 0.0}),
    Variant(
        "costs_for_ever", "step costs are never forgotten",
        {"costs.FORGET_SECONDS": math.inf, "costs.FORGET_FORM_SECONDS": math.inf},
    ),
    Variant("no_renewal", "survival at one K taken for that at another", {"acceptance._across": _plain_length}),
    Variant(
        "deflation_1", "each draft counts as independent",
        {"acceptance.DEFLATION": 1.0, "decide.DEFLATION": 1.0},
    ),
    Variant("no_change_detection", "no CUSUM of accepted drafts", {"acceptance.ALARM": math.inf}),
    Variant(
        "drafts_for_ever", "acceptance is never forgotten but on change",
        {"acceptance.FORGET_DRAFTS": math.inf, "acceptance.FORGET_SECONDS": math.inf},
    ),
    Variant("no_least_minute", "20,000 drafts forget, be it in seconds", {"acceptance.FORGET_SECONDS": 1e-9}),
    # What is chosen.
    Variant("no_prefill", "candidates priced without prompts", {"decide.outlook": _without_prefill}),
    Variant("no_margin", "a change need bring nothing", {"decide.MARGIN": 0.0, "decide.MEASURED_MARGIN": 0.0}),
    Variant("wide_margin", "a change must bring 2 %", {"decide.MARGIN": 0.02, "decide.MEASURED_MARGIN": 0.02}),
    Variant("no_confidence", "the mean decides alone", {"decide.CONFIDENCE": 0.0, "judge.MEASURED_FIRST": 0.0}),
    Variant("far_loads_count", "a gain at any load counts whole", {"judge.FAR_WEIGHT": 1.0}),
    # When it is done.
    Variant("no_budget", "writes without limit", {"pace.Pace.spend": _same}),
    Variant("no_dwell", "changes follow at once", {"pace.URGENT_DWELL": 0.0, "pace.LIVE_DWELL": 0.0}),
    Variant("no_urgency", "large gains wait as long as small ones", {"pace.URGENT": math.inf}),
    # What is tried.
    Variant("no_tries", "no K is ever tried", {"decide.may_try": _never}),
    Variant("tries_cost_nothing", "as much is tried whatever it costs", {"trials.MOST_COST": 1.0}),
    # Safety.
    Variant("no_guard", "no cut after two slow windows", {"guards.GUARD_WINDOWS": 10**9}),
    Variant("misled", "prior: tokens and drafts cost 0.3 of the truth", _MISTAKEN),
    Variant("misled_no_guard", "the same, no guard", {**_MISTAKEN, "guards.GUARD_WINDOWS": 10**9}, against="misled"),
)  # fmt: skip

BY_NAME = {variant.name: variant for variant in VARIANTS}
