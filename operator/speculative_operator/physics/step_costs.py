"""Coefficients of a step's time. Made by `roofline` and `calibration`, summed by `step_time`, corrected by the
tuner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Coefficients of the step-time sum, all in seconds."""

    fixed: float
    """One step of the verifier without any token: reading its dense weights, launches, scheduling."""
    per_token: float
    """One more verified or prefilled token: its arithmetic."""
    per_kv_token: float
    """One token of context read by the verifier's attention, per decoding request."""
    draft_fixed: float
    """One draft pass."""
    draft_per_token: float
    """One more token through the speculator: arithmetic."""
    draft_per_kv_token: float
    """One token of context read by the speculator's attention, per request and pass."""
    speculative_overhead: float
    """Extra time of a step that verifies drafts."""
    graph_tax: float
    """Extra time of every step while K is live and the runner has no full graphs for it."""
    expert_fixed: float = 0.0
    """Mixture of experts: reading all experts once; a step reads the share that its tokens reach."""
    expert_reach: float = 1.0
    """Share of the experts that one token reaches."""
    expert_spread: float = 1.0
    """Tokens reach experts like `tokens ** expert_spread` independent ones; 1: tokens choose independently."""
    eager_floor: float = 0.0
    """Least time of a step whose decoded tokens exceed the capture ceiling: launching its kernels one by one."""
