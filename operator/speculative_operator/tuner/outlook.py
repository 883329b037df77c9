"""Predicts tokens per second of every K at every batch size, with standard deviations, from the present evidence.

Called by judging (at the start before anything ran) and reporting. Speed of one request at K in a batch of b:

    AL(K) / T(b, K, c, p)        p = b AL(K) r, r prompt tokens per output token

so that every candidate, no speculation included, carries its own share of prefill: faster decoding admits more prompts.
`against` ranks K side by side, as the engine's blocks compare them, by the whole time of a request, the time before its
first token included.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.spec import Method
from speculative_operator.domain.table import KnobSpace, KTable
from speculative_operator.physics.step_costs import method_of
from speculative_operator.physics.step_time import host_parts
from speculative_operator.tuner.acceptance import AcceptanceEvidence, AcceptanceModel, acceptance
from speculative_operator.tuner.allowed import candidates
from speculative_operator.tuner.comparisons import (
    SECONDS_OFF,
    SECONDS_STEP,
    TOKENS_STEP,
    Cell,
    CellQuery,
    Difference,
    band_of,
    update,
)
from speculative_operator.tuner.costs import (
    PREDICTION_NOISE,
    CostEvidence,
    CostModel,
    StepSample,
    off_terms,
    posterior,
    step_terms,
)
from speculative_operator.tuner.grid import choices, edges, grid, nearest
from speculative_operator.tuner.plain_pods import host_deviation, span
from speculative_operator.tuner.prior import TERMS, Array, acceptance_prior, basis_of, cost_prior
from speculative_operator.tuner.request_time import whole_time
from speculative_operator.tuner.traffic import Traffic

INFEASIBLE = -1e3
"""Log speed of a K whose verification leaves the captured graphs: below any real speed, yet finite in sums."""
BEYOND, BEYOND_ERRS = 0.2, 0.4
"""Extra log seconds of a step beyond captured graphs, and their standard deviation: wide, so that a trial must show it
before the tuner relies on it."""
FURTHEST = 7.0
"""Largest log ratio of the speeds of two K: a factor of a thousand."""
QUANTILE = 1.2816
"""Half width of an 80 % interval in standard deviations."""
MOST_TAKEN = 0.9
"""Largest share of a second that prompts are assumed to take."""
MEASURED_BLOCKS = 3.0
"""Blocks near a load that compare K = 0 with another K, from which the gain there is measured."""
NEAR_BANDS = 2
"""Half octaves of load within which comparisons are near."""
SAME_K = 0.5
"""A mean K within this distance of a whole K counts as that K."""


@dataclass(frozen=True)
class Outlook:
    """Posteriors of step costs and acceptance, ready to predict the speed of any K at any load of one policy."""

    policy: Policy
    ks: tuple[int, ...]
    costs: CostModel
    drafts: AcceptanceModel
    traffic: Traffic
    last: tuple[StepSample, ...] = field(repr=False)
    """Equations of step costs from the last observation."""
    columns: NDArray[np.int64] = field(repr=False)
    """`ks` as whole numbers, for indexing."""
    cells: tuple[Cell, ...] = field(default=(), repr=False)
    """Comparisons that the engine has made, pooled."""
    compares: bool = False
    """True where the engine can compare K: the model's own error then counts, since comparisons can reveal it."""

    @cached_property
    def points(self) -> Array:
        """Batch sizes of the grid."""
        return np.array(grid(self.policy.knobs.max_batch), dtype=float)

    @cached_property
    def speed(self) -> Array:
        """Log tokens per second and request, [point, K]; INFEASIBLE beyond captured graphs, unless the engine compares
        K and so measures what leaving the graphs costs."""
        speed = np.log(self.lengths())[None, :] - self.log_seconds
        return np.asarray(np.where(self.beyond, INFEASIBLE, speed)) if not self.compares else speed

    @cached_property
    def beyond(self) -> NDArray[np.bool_]:
        """True where verification leaves the captured graphs, [point, K]; False for the smallest K."""
        largest = np.array([last for _, last in edges(self.policy.knobs.max_batch)])  # a cell is filled as a whole
        tokens = largest[:, None] * (self.columns[None, :] + 1)
        ceiling = self.policy.knobs.capture_ceiling_tokens
        return np.asarray((tokens > (math.inf if ceiling is None else ceiling)) & (self.columns != self.ks[0]))

    @cached_property
    def log_seconds(self) -> Array:
        """Log seconds of a step by the model, [point, K]."""
        return self.costs.log_seconds(*self._on)

    @cached_property
    def off_speed(self) -> Array:
        """Log tokens per second and request of a pod without speculator, [point]."""
        return -self.costs.log_seconds(*self._off)

    @cached_property
    def gradients(self) -> Array:
        """Derivatives of log step seconds, [point, K, coordinate]."""
        return self.costs.gradient(*self._on)

    @cached_property
    def off_gradients(self) -> Array:
        """Derivatives of log step seconds of a pod without a speculator, [point, coordinate]."""
        return self.costs.gradient(*self._off)

    @cached_property
    def _on(self) -> tuple[Array, Array]:
        """Prior seconds of each term, [point, K, term], and the columns after TERMS."""
        return self._with(self.points[:, None] * self.lengths()[None, :] * self.traffic.prompt_ratio)

    def _with(self, prefill: Array) -> tuple[Array, Array]:
        """`_on` with `prefill` prompt tokens per step, [point, K] or [point, 1]."""
        drafted = self.columns[None, :].astype(float) * self.traffic.draft_share
        costs, context = self.costs.prior.costs, np.asarray(self.traffic.context)
        terms = step_terms(costs, self.policy.knobs, self.points[:, None], drafted, context, prefill)
        return terms, _columns(self.policy.knobs, self.ks, self.traffic.draft_share)

    @cached_property
    def _off(self) -> tuple[Array, Array]:
        """`_on` of a pod without a speculator, [point, ...]."""
        prefill = self.points * self.traffic.prompt_ratio
        terms = off_terms(self.costs.prior.costs, self.points, np.asarray(self.traffic.context), prefill)
        return terms, _off_columns(self.policy.knobs)

    @cached_property
    def prompts_without(self) -> Array:
        """Seconds of a prompt in a pod without a speculator over those beside each K, [point, K]: 1 at most.

        Speculators that need hidden states pass over prompts at K = 0 too.
        """
        facts = self.policy.facts
        ratio = self._off[0][..., -1:] / np.maximum(self._on[0][..., -1] / self.lengths(), 1e-30)
        if self.ks[0] == 0 and (facts.method or method_of(facts, self.policy.knobs)) is not Method.DRAFT_MODEL:
            ratio[:, 0] = ratio[:, min(1, len(self.ks) - 1)]
        return np.asarray(np.minimum(ratio, 1.0))

    @property
    def baseline(self) -> bool:
        """True where blocks at K = 0 serve as pods without a speculator do, and engines can compare them."""
        return self.compares and self.policy.skips and self.ks[0] == 0

    def near(self, load: float) -> list[Cell]:
        """Comparisons at loads near `load`."""
        return [cell for cell in self.cells if cell.blocks >= 1.0 and abs(cell.band - band_of(load)) <= NEAR_BANDS]

    def blocks_without(self, load: float) -> float:
        """Blocks near `load` in which K = 0 was compared with another K."""
        return math.fsum(cell.blocks for cell in self.near(load) if 0 in (cell.k, cell.against))

    def at(self, batch: float, k: int | None) -> float:
        """Log speed of K = `k` (None: of a pod without a speculator) at any batch size, interpolated on the grid."""
        speed = self.off_speed if k is None else self.speed[:, self.ks.index(k)]
        points = grid(self.policy.knobs.max_batch)
        above = min(max(bisect_left(points, batch), 1), len(points) - 1)
        low, high = points[max(above - 1, 0)], points[above]
        if not low < batch <= high:
            return float(speed[0 if batch <= low else above])
        share = math.log(batch / low) / math.log(high / low)
        return float(speed[above - 1] + share * (speed[above] - speed[above - 1]))

    def prompt_share(self, batch: float, k: int) -> float:
        """Share of the time of a step with K = `k` that prompts take, at the nearest batch size of the grid."""
        row, column = nearest(batch, self.policy.knobs.max_batch), self.ks.index(k)
        seconds = self._on[0][row, column] * np.exp(self.costs.mean[: len(TERMS)])
        return float(seconds[TERMS.index("prefill")] / seconds.sum())

    def surprise(self, k: int) -> float:
        """Log seconds by which the last steps took longer than predicted: the steps at `k`, or all where none is known
        to have run `k`."""
        if k not in self._surprises:
            same = tuple(sample for sample in self.last if sample.k is not None and abs(sample.k - k) < SAME_K)
            self._surprises[k] = self.costs.surprise(same or self.last)
        return self._surprises[k]

    @cached_property
    def _surprises(self) -> dict[int, float]:
        """Results of `surprise` so far, by K."""
        return {}

    def lengths(self) -> Array:
        """Acceptance length of each of `ks`."""
        return np.asarray(self.drafts.length[self.columns])

    def against(self, incumbent: NDArray[np.int64]) -> Difference:
        """Log speed of every K over that of the active K; `incumbent[point]` is the active K's column."""
        key = incumbent.tobytes()
        if key not in self._differences:
            self._differences[key] = self._against(incumbent)
        return self._differences[key]

    @cached_property
    def _differences(self) -> dict[bytes, Difference]:
        """Results of `against` so far, by the bytes of `incumbent`."""
        return {}

    def _against(self, incumbent: NDArray[np.int64]) -> Difference:
        rows, costs = np.arange(len(self.points)), self.costs
        model, gradients = self._alongside(incumbent)
        apart = gradients - gradients[rows, incumbent][:, None, :]
        earned = self.drafts.gradient[self.columns][None] - self.drafts.gradient[self.columns[incumbent]][:, None]
        richer = np.log(self.lengths())[None, :] - np.log(self.lengths()[incumbent])[:, None]
        prompts = self._prompts(incumbent)
        stretched = prompts - prompts[rows, incumbent][:, None]
        longer = model - model[rows, incumbent][:, None]
        seconds = np.sum((apart @ costs.covariance) * apart, axis=-1) + PREDICTION_NOISE**2
        tokens = np.sum(earned**2 * self.drafts.variance, axis=-1)
        if not self.compares:
            return self._difference((richer, tokens), (longer, seconds), stretched, incumbent)
        ks = self.columns.astype(float)
        asked = CellQuery(self.points, ks, ks[incumbent], self.cells, self.policy.knobs.max_batch)
        errs, across, own = asked.misfit(SECONDS_STEP, SECONDS_OFF)
        graphs = self.beyond.astype(float)
        left = graphs - graphs[rows, incumbent][:, None]
        leaving = graphs[asked.places, asked.trial_columns] - graphs[asked.places, asked.beside_columns]
        errs, across, own = (
            errs + (BEYOND_ERRS * left) ** 2,
            across + BEYOND_ERRS**2 * left[:, :, None] * leaving,
            own + BEYOND_ERRS**2 * np.outer(leaving, leaving),
        )
        longer, model = longer + BEYOND * left, model + BEYOND * graphs
        measured = gradients[asked.places, asked.trial_columns] - gradients[asked.places, asked.beside_columns]
        predicted = model[asked.places, asked.trial_columns] - model[asked.places, asked.beside_columns]
        news = np.array([cell.seconds for cell in self.cells]) - predicted
        more, seconds = update(
            seconds + errs,
            across + apart @ costs.covariance @ measured.T,
            own + measured @ costs.covariance @ measured.T,
            [cell.seconds_variance for cell in self.cells],
            news,
        )
        errs, across, own = asked.misfit(TOKENS_STEP, TOKENS_STEP)
        earned_more, tokens = update(
            tokens + errs,
            across,
            own,
            [cell.tokens_variance for cell in self.cells],
            np.array([cell.tokens for cell in self.cells]),
        )
        return self._difference((richer + earned_more, tokens), (longer + more, seconds), stretched, incumbent)

    def _alongside(self, incumbent: NDArray[np.int64]) -> tuple[Array, Array]:
        """Log seconds of a step at every K and their derivatives, for blocks side by side. Where few requests await
        their first token, blocks meet the same prompts per second, which do not change the order of K; where most do,
        they meet the same prompts per step."""
        emitted = self.points * self.lengths()[incumbent]
        on = self._with(self.traffic.shares.before_first * emitted[:, None] * self.traffic.prompt_ratio)
        return self.costs.log_seconds(*on), self.costs.gradient(*on)

    def _prompts(self, incumbent: NDArray[np.int64]) -> Array:
        """Log seconds by which prompts that arrive at a rate per second stretch the steps of each K.

        Prompts leave each K the rest of the second, which is less where the speculator passes over every prompt too.
        No comparison of blocks shows this, since comparisons use steps without prompts.
        """
        tokens = (self.points * self.lengths()[incumbent])[:, None] * self.traffic.prompt_ratio
        whole, local = self._with(tokens)
        rest, _ = self._with(self.traffic.shares.before_first * tokens)
        filling = np.exp(self.costs.log_seconds(whole, 0.0 * local)) - np.exp(self.costs.log_seconds(rest, 0.0 * local))
        step = np.exp(self.costs.log_seconds(whole, local))[np.arange(len(self.points)), incumbent]
        return np.asarray(-np.log1p(-np.clip(filling / step[:, None], 0.0, MOST_TAKEN)))

    def _difference(
        self,
        richer: tuple[Array, Array],
        longer: tuple[Array, Array],
        stretched: Array,
        incumbent: NDArray[np.int64],
    ) -> Difference:
        """The difference of steps with log `richer` more tokens that take log `longer` without prompts, each with its
        variance, and by log `stretched` more where prompts arrive at a rate per second."""
        bounds = -FURTHEST, FURTHEST
        more, plain = np.clip(richer[0], *bounds), np.clip(self._floored(longer[0]), *bounds)
        time = whole_time(self.traffic.shares, more, np.clip(self._floored(longer[0] + stretched), *bounds))
        mean = np.where(self.speed > INFEASIBLE / 2, -time.longer, INFEASIBLE)
        mean[np.arange(len(self.points)), incumbent] = 0.0
        deviation = np.sqrt(longer[1] * time.by_seconds**2 + richer[1] * time.by_tokens**2)
        return Difference(mean, deviation, more, richer[1], plain, longer[1])

    def _floored(self, longer: Array) -> Array:
        """Log `longer` time of steps, where no measurement makes drafts shorten a step: a step without the speculator
        is part of each step with it."""
        if self.ks[0] != 0 or not self.policy.skips:
            return longer
        least = np.minimum(longer[:, :1], 0.0)
        return np.concatenate((least, np.maximum(longer[:, 1:], least)), axis=1)

    def deviation_from_off(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Array:
        """Log standard deviation of the speed at points `rows`, K `columns`, over no speculator."""
        apart = self.gradients[rows, columns] - self.off_gradients[rows]
        earned = self.drafts.deviation(self.columns[columns], np.array(0))
        return np.asarray(np.hypot(self.costs.deviation(apart), earned))

    def span_from_off(self, row: int, column: int) -> tuple[float, float]:
        """How far below and above its middle the 80 % interval of the log speed at point `row`, K `column`, over no
        speculator ends."""
        knobs, model = self.policy.knobs, self.costs
        seconds = self._on[0][row, column] * np.exp(model.mean[: len(TERMS)])
        drafted = float(self.columns[column]) * self.traffic.draft_share
        parts = host_parts(model.prior.costs, knobs, float(self.points[row]), drafted)
        host = np.array(parts) @ np.exp(model.mean[[TERMS.index("fixed"), TERMS.index("drafting")]])
        return span(
            QUANTILE * float(self.deviation_from_off(np.array([row]), np.array([column]))[0]),
            float(host / seconds.sum()),
            QUANTILE * host_deviation(model, self.policy.facts, knobs),
        )


def incumbent_of(view: Outlook, table: KTable) -> NDArray[np.int64]:
    """Column of the active K at each grid point; a K outside the candidates counts as the nearest candidate."""
    held = np.array(choices(table, view.policy.knobs.max_batch))
    return np.asarray(np.argmin(np.abs(view.columns[None, :] - held[:, None]), axis=1))


@lru_cache(maxsize=256)
def _columns(knobs: KnobSpace, ks: tuple[int, ...], share: float) -> Array:
    """Columns after TERMS over the grid, [point, K, knots + ks]; constant unless drafts are looked up."""
    tokens = np.array(grid(knobs.max_batch), dtype=float)[:, None] * (1.0 + share * np.array(ks, dtype=float)[None, :])
    return basis_of(knobs).local(tokens, np.broadcast_to(np.array(ks, dtype=float), tokens.shape))


@lru_cache(maxsize=256)
def _off_columns(knobs: KnobSpace) -> Array:
    return basis_of(knobs).local(np.array(grid(knobs.max_batch), dtype=float), None)


def outlook(
    policy: Policy,
    costs: CostEvidence | None = None,
    drafts: AcceptanceEvidence | None = None,
    traffic: Traffic | None = None,
    last: tuple[StepSample, ...] = (),
    cells: tuple[Cell, ...] = (),
    *,
    compares: bool = False,
) -> Outlook:
    """The outlook from evidence; from priors alone where none is given."""
    prior = cost_prior(policy.facts, policy.knobs)
    expected = acceptance_prior(policy.facts, policy.knobs, policy.workload)
    ks = candidates(policy)
    return Outlook(
        policy=policy,
        ks=ks,
        costs=posterior(costs or CostEvidence(), prior, policy.knobs),
        drafts=acceptance(drafts or AcceptanceEvidence(), expected),
        traffic=traffic or Traffic(),
        last=last,
        columns=np.array(ks),
        cells=tuple(cell for cell in cells if {cell.k, cell.against} <= set(ks)),
        compares=compares,
    )
