"""Predictions for published speed-ups, and how far off they are.

Called by `speculative cases FILE`, by dev/figures and by the tests. A prediction is a ratio of output speeds of
two arms that serve the same requests: with drafts, and without (or with the fixed K that the row compares with). Costs
come from the accelerator, the shapes and the kind of drafter (`roofline`), acceptance from the row or from the profile
of the kind of drafter on that class of text. There are no constants for single rows, models or sources.

End to end: every request brings its prompt once, so that a step that yields g tokens a request also prefills
b g prompt / output tokens: the faster arm prefills more in each step. Where memory holds fewer requests than the load,
fewer run at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

import numpy as np
from numpy.typing import NDArray

from speculative_lab.cases.relation import end_to_end_gain
from speculative_lab.cases.rows import Case, Drafting, Kind, read_case
from speculative_lab.cases.workloads import survival_of
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Method
from speculative_operator.domain.table import Actuator, KnobSpace
from speculative_operator.physics.draft_costs import LOOKUP_SHARE, kv_tokens
from speculative_operator.physics.step_costs import StepCosts, roofline
from speculative_operator.physics.step_time import plain_seconds, step_seconds

ADAPTIVE_GAIN = 1.03
"""An in-engine policy that chooses K for each step over the best static K: +3.0 % (sglang#23336)."""
CAPTURE_CEILING = 512
"""Largest captured size of vLLM's defaults in tokens."""
OCCUPANCY = 0.75
"""Requests that run at once over those that a closed benchmark keeps open: an assumption; runs end with fewer."""
LOOKUP_PRECISION = 0.37
"""Share of first tokens that are right when a draft was found in the text, by which S_1 tells how many request-steps
carry one. 0.32-0.39 in the n-gram curves of arXiv 2601.11580 Fig. 10."""
WIDENING = 0.4
"""How a draft tree raises conditional acceptance: 1 - (1 - a) ** (1 + WIDENING * ln(tokens a level)). A chain has an
acceptance length of 2.25, 21 tokens in 3 levels 2.92 (specdecode-bench.github.io, Qwen3-8B), 64 tokens in 5 levels 4.68
(sglang#4247): together 0.4."""
TREE_SECONDS = 2.5e-3
"""Seconds that a step with a draft tree spends on building and masking it: steps of 12.9 and 14.2 ms at 5 and 8 levels
(sglang#4247) where 6.3 ms are plain decoding."""
_SIMULATED_HOST = 1.20683946e-3
_SIMULATOR = StepCosts(5.88590713e-3 + _SIMULATED_HOST, 2.10103129e-5, 3.92645679e-8, 2.13526175e-3, 0.0, 0.0, 0.0, 0.0)
"""Published parameters of the simulator behind arXiv 2601.11580 Fig. 10 (SpecDecode-Bench predictor.py @32fdccb): one
draft term whatever K is; host time in both arms."""
_ANCHOR = ("2601.11580", "llama", "h100")


@dataclass(frozen=True, slots=True)
class CasePrediction:
    """One row's prediction. `log_error` is ln(predicted / published); None where the row publishes no speed-up."""

    case: Case
    predicted: float
    accept_length: float
    batch: float
    """Requests that run at once in the arm with drafts."""

    @property
    def log_error(self) -> float | None:
        published = self.case.speedup
        return math.log(self.predicted / published) if published and published > 0 else None

    @property
    def sign_right(self) -> bool | None:
        """Whether gain or loss is predicted; None where the published effect is within the row's tolerance."""
        published = self.case.speedup
        if published is None or abs(published - 1.0) <= self.case.tolerance:
            return None
        return (self.predicted - 1.0) * (published - 1.0) > 0.0

    @property
    def measured(self) -> bool:
        """False for simulators' results and for figures recalled without their table: those judge nothing."""
        return not self.case.simulated and self.case.evidence != "unverified"


def predict(row: Mapping[str, str]) -> CasePrediction:
    """The prediction for one row of a file with the columns of `cases.csv`; never refuses a row."""
    case = read_case(row)
    if case.acceptance_percent is not None:
        return CasePrediction(case, end_to_end_gain(case.acceptance_percent / 100.0), math.nan, 1.0)
    arm = _best_arm(case)
    base = _plain(case) if case.baseline is None else _arm(case, case.baseline)
    gain = ADAPTIVE_GAIN if case.drafting.kind is Kind.BEST else 1.0
    return CasePrediction(case, gain * arm.speed / base.speed, arm.accept_length, arm.batch)


_Seconds = Callable[[float, float, float], float]
"""(requests, prompt tokens in the step, context) -> seconds of a step."""


@dataclass(frozen=True, slots=True)
class _Arm:
    speed: float
    """Output tokens a second of all requests; per request where the load is open."""
    accept_length: float
    batch: float


def _best_arm(case: Case) -> _Arm:
    drafting = case.drafting
    if drafting.kind is not Kind.BEST:
        return _arm(case, drafting)
    choices = (replace(drafting, kind=Kind.STATIC, k=k) for k in range(max(drafting.least, 1), drafting.k + 1))
    return max((_arm(case, choice) for choice in choices), key=lambda arm: arm.speed)


def _plain(case: Case) -> _Arm:
    knobs = knobs_of(case, Drafting(Kind.OFF, 0))
    facts = PairFacts(case.plain, None, case.accelerator, case.accelerators)
    costs = _simulator(case) if case.simulated else _roofline(facts, knobs)
    room = kv_tokens(facts, with_speculator=False)

    def seconds(batch: float, prefill: float, context: float) -> float:
        return float(plain_seconds(costs, batch, context, prefill, knobs))

    return _settled(case, seconds, 1.0, room, case.rate[0] if case.rate else None)


def _arm(case: Case, drafting: Drafting) -> _Arm:
    knobs = knobs_of(case, drafting)
    facts = PairFacts(case.verifier, case.speculator, case.accelerator, case.accelerators, method=case.method)
    costs = _simulator(case) if case.simulated else _roofline(facts, knobs)
    length, verified = _acceptance(case, drafting)
    room = kv_tokens(facts, with_speculator=True)

    def seconds(batch: float, prefill: float, context: float) -> float:
        step = float(step_seconds(costs, knobs, batch, drafting.k, context, prefill))
        return (
            step + costs.per_token * batch * (verified - drafting.k) + (TREE_SECONDS if drafting.tree_tokens else 0.0)
        )

    return _settled(case, seconds, length, room, case.rate[1] if case.rate else None)


def _simulator(case: Case) -> StepCosts:
    if not case.method.draft_free:
        return _SIMULATOR
    verify = LOOKUP_SHARE * (_SIMULATOR.fixed - _SIMULATED_HOST)
    return replace(_SIMULATOR, draft_fixed=verify, draft_per_token=LOOKUP_SHARE * _SIMULATOR.per_token)


def _settled(case: Case, seconds: _Seconds, length: float, room: int | None, rate: float | None) -> _Arm:
    """The arm's speed at the requests that run at once: the load, what memory holds, or what an open load leads to."""
    text = case.text
    context = text.prompt + text.output / 2.0
    filled = text.prompt * (1.0 - text.shared)
    share = 0.0 if case.decode_only else filled / text.output
    most = max(room / (filled + text.output), 1.0) if room else math.inf
    batch = min(case.load if case.simulated else max(case.load * OCCUPANCY, 1.0), most)
    if rate is not None:
        for _ in range(40):
            busy = rate * text.output * seconds(batch, batch * length * filled / text.output, context) / length
            batch = math.sqrt(batch * min(max(busy, 1e-3), most, 1024.0))
    step = seconds(batch, batch * length * share, context)
    return _Arm(length / step if rate is not None else batch * length / step, length, batch)


def _acceptance(case: Case, drafting: Drafting) -> tuple[float, float]:
    """(acceptance length, tokens verified a request beyond its own)."""
    if drafting.kind is Kind.OFF:
        return 1.0, 0.0
    survival = survival_of(case.family, case.text, drafting.k)
    if case.accept_rate:
        survival = case.accept_rate ** np.arange(1.0, drafting.k + 1.0)
    if drafting.tree_tokens:
        width = max(drafting.tree_tokens / drafting.k, 1.0)
        survival = _widened(survival, 1.0 + WIDENING * math.log(width))
    length = 1.0 + float(survival.sum())
    if case.accept_length and case.drafting.kind is not Kind.BEST and drafting is case.drafting:
        length = min(case.accept_length, drafting.k + 1.0)
    if drafting.kind is Kind.ORACLE:
        return length, length - 1.0
    if case.method.draft_free:
        return length, drafting.k * min(1.0, float(survival[0]) / LOOKUP_PRECISION)
    return length, float(drafting.tree_tokens or drafting.k)


def _widened(survival: NDArray[np.float64], branches: float) -> NDArray[np.float64]:
    """Survival along a tree that offers `branches` candidates at each depth."""
    before = np.concatenate([[1.0], survival[:-1]])
    conditional = np.divide(survival, before, out=np.zeros_like(survival), where=before > 0.0)
    return np.asarray(np.cumprod(1.0 - (1.0 - conditional) ** branches))


def knobs_of(case: Case, drafting: Drafting) -> KnobSpace:
    """The knob space of an engine that runs one arm of a row."""
    block = case.method in (Method.DFLASH, Method.DSPARK, Method.MEDUSA) or case.simulated
    return KnobSpace(
        actuator=Actuator.LIVE if drafting.dynamic else Actuator.RESTART,
        ks=tuple(range(max(drafting.k, 1) + 1)),
        max_batch=1024,
        capture_ceiling_tokens=None if case.simulated else CAPTURE_CEILING,
        drafts_blocks=block,
        draft_free=case.method.draft_free,
        passes_at_zero=0.0 if case.method.draft_free else 1.0,
    )


@lru_cache(maxsize=512)
def _roofline(facts: PairFacts, knobs: KnobSpace) -> StepCosts:
    costs = roofline(facts, knobs)
    assert costs is not None
    return costs


@dataclass(frozen=True, slots=True)
class Summary:
    """Errors over all rows that publish a speed-up; signs over those whose effect exceeds the row's tolerance."""

    rows: int
    assumed_rows: int
    """Rows of which something had to be assumed: accelerator, model, K, lengths, load."""
    gains: tuple[int, int]
    """(right, all) of rows that gain."""
    losses: tuple[int, int]
    balanced_sign_percent: float | None
    median_abs_log_error: float | None
    median_abs_log_error_anchor: float | None
    by_source: Mapping[str, float]
    measured_sources: tuple[str, ...]
    """Sources with measured rows: `by_source` also holds simulators and unverified ones."""
    median_of_measured_sources: float | None
    worst: tuple[CasePrediction, ...]


def summarise(predictions: Iterable[CasePrediction], worst: int = 20) -> Summary:
    """Figures over all predictions; `unverified` rows enter none but that of a source that has no other row."""
    every = list(predictions)
    judged = [one for one in every if one.log_error is not None and one.case.evidence != "unverified"]
    gains, losses = _signs(judged, +1), _signs(judged, -1)
    shares = [right / whole for right, whole in (gains, losses) if whole]
    medians = {**_by_source(every), **_by_source(judged)}
    measured = _by_source([one for one in judged if one.measured])
    ranked = sorted(judged, key=lambda one: -abs(one.log_error or 0.0))
    return Summary(
        rows=len(every),
        assumed_rows=sum(1 for one in every if one.case.assumed),
        gains=gains,
        losses=losses,
        balanced_sign_percent=100.0 * sum(shares) / len(shares) if shares else None,
        median_abs_log_error=_median([abs(one.log_error or 0.0) for one in judged]),
        median_abs_log_error_anchor=_median([abs(one.log_error or 0.0) for one in judged if is_anchor(one.case)]),
        by_source=medians,
        measured_sources=tuple(measured),
        median_of_measured_sources=_median(list(measured.values())),
        worst=tuple(ranked[:worst]),
    )


def is_anchor(case: Case) -> bool:
    """True for the measured rows of Llama-3.1-8B on H100 in arXiv 2601.11580."""
    told = f"{case.source} {case.verifier.name} {case.accelerator.name}".lower()
    return not case.simulated and all(part in told for part in _ANCHOR)


def _by_source(predictions: list[CasePrediction]) -> dict[str, float]:
    """Median |log error| of each source, in the order of the file."""
    errors: dict[str, list[float]] = {}
    for one in predictions:
        if one.log_error is not None:
            errors.setdefault(one.case.source or "not stated", []).append(abs(one.log_error))
    return {source: float(median(values)) for source, values in errors.items()}


def _signs(judged: list[CasePrediction], side: int) -> tuple[int, int]:
    verdicts = [one.sign_right for one in judged if one.case.speedup and side * (one.case.speedup - 1.0) > 0.0]
    told = [right for right in verdicts if right is not None]
    return sum(told), len(told)


def _median(values: list[float]) -> float | None:
    return float(median(values)) if values else None
