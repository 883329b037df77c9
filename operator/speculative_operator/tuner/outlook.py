"""Predictions: tokens per second of every K at every batch size, with what is believed now.

Called by start (before anything ran) and judging. Goodput of one request at K in a batch of b:

    AL(K) / T(b, K, c, p)        p = b AL(K) r, r prompt tokens per output token

so that every candidate, no speculation included, brings its own share of prefill: faster decoding admits more prompts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from speculative_operator.domain.decision import Policy
from speculative_operator.tuner.acceptance import AcceptanceEvidence, AcceptanceModel, acceptance
from speculative_operator.tuner.costs import CostEvidence, CostModel, off_terms, posterior, step_terms
from speculative_operator.tuner.prior import Array, acceptance_prior, candidates, cost_prior
from speculative_operator.tuner.traffic import Traffic

INFEASIBLE = -1e3
"""Log goodput of a K whose verification leaves the captured graphs: below anything, yet summable."""


@dataclass(frozen=True)
class Outlook:
    """What is believed, ready to price any load of one policy."""

    policy: Policy
    ks: tuple[int, ...]
    costs: CostModel
    drafts: AcceptanceModel
    traffic: Traffic

    def terms(self, batch: Array) -> Array:
        """Prior seconds of each term, [batch, K, term]."""
        b, ks = np.asarray(batch, dtype=float)[:, None], np.array(self.ks, dtype=float)[None, :]
        prefill = b * self.lengths()[None, :] * self.traffic.prompt_ratio
        drafted = ks * self.traffic.draft_share
        return step_terms(self.costs.prior.costs, self.policy.knobs, b, drafted, self.traffic.context, prefill)

    def lengths(self) -> Array:
        """Acceptance length of each K."""
        return np.asarray(self.drafts.length[np.array(self.ks)])

    def log_speed(self, batch: Array) -> Array:
        """Log tokens per second and request, [batch, K]; INFEASIBLE beyond the capture ceiling."""
        seconds = self.costs.log_seconds(self.terms(batch), np.array(self.ks)[None, :])
        speed = np.log(self.lengths())[None, :] - seconds
        ceiling = self.policy.knobs.capture_ceiling_tokens
        if ceiling is None:
            return np.asarray(speed)
        ks = np.array(self.ks)
        tokens = np.asarray(batch, dtype=float)[:, None] * (ks[None, :] + 1)
        return np.asarray(np.where((tokens <= ceiling) | (ks[None, :] == self.ks[0]), speed, INFEASIBLE))

    def off_terms(self, batch: Array) -> Array:
        """Prior seconds of each term of a pod without speculator, [batch, term]."""
        b = np.asarray(batch, dtype=float)
        return off_terms(self.costs.prior.costs, b, self.traffic.context, b * self.traffic.prompt_ratio)

    def off_log_speed(self, batch: Array) -> Array:
        """Log tokens per second and request of a pod without speculator, [batch]."""
        return -self.costs.log_seconds(self.off_terms(batch))

    def deviation(self, batch: float, k: int) -> float:
        """Log standard deviation of goodput at K over goodput of a pod without speculator."""
        at = np.array([batch])
        on = self.costs.shares(self.terms(at))[0, self.ks.index(k)]
        apart = float(self.costs.deviation(on - self.costs.shares(self.off_terms(at))[0]))
        return float(np.hypot(apart, self.drafts.deviation[k]))


def outlook(
    policy: Policy,
    costs: CostEvidence | None = None,
    drafts: AcceptanceEvidence | None = None,
    traffic: Traffic | None = None,
) -> Outlook:
    """The outlook on evidence; without any, on priors alone."""
    prior = cost_prior(policy.facts, policy.knobs)
    expected = acceptance_prior(policy.facts, policy.knobs, policy.workload)
    return Outlook(
        policy=policy,
        ks=candidates(policy),
        costs=posterior(costs or CostEvidence(), prior, policy.knobs),
        drafts=acceptance(drafts or AcceptanceEvidence(), expected),
        traffic=traffic or Traffic(),
    )
