"""Tables that an engine can take, and how: told by its adapter, used by tuner, render and reconcile."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Actuator(StrEnum):
    """How a new table reaches the engine."""

    LIVE = "Live"
    """The engine re-reads a mounted file: nothing restarts."""
    TABLE = "Table"
    """The engine has its own per-batch-size table, fixed at start: a rollout changes it."""
    RESTART = "Restart"
    """One constant K, fixed at start: a rollout changes it."""
    NONE = "None"
    """No table can be changed: there is no speculator."""


@dataclass(frozen=True, slots=True)
class KnobSpace:
    """Every table the tuner may choose."""

    actuator: Actuator
    ks: tuple[int, ...]
    """K that may occur in a table, ascending; 0 is among them when soft off works."""
    max_batch: int
    """Requests that the engine schedules at once at most (vLLM `max_num_seqs`)."""
    capture_ceiling_tokens: int | None = None
    """Tokens per step above which no CUDA graph serves; None when unknown or not applicable."""
    capture_sizes: tuple[int, ...] = ()
    """Sizes in tokens of the captured CUDA graphs, ascending: a step is padded to the next one. Empty: unknown."""
    draft_passes_follow_k: bool = True
    """False when the speculator always drafts the largest K and only verification shrinks."""
    passes_at_zero: float = 1.0
    """Draft passes still run per step at K = 0 (they keep the speculator's KV in step); 0 for draft-free methods."""
    drafts_blocks: bool = False
    """True when one draft pass yields all K tokens (dflash, dspark)."""
    draft_free: bool = False
    per_request: bool = False
    """True when the pods can withhold the drafts of single requests, should the table file say so."""
    rests: bool = False
    """True when pods can leave the speculator out while K = 0 lasts, without a restart."""
    rests_with: str = ""
    """Entry of `spec.engine.env` that would let pods leave the speculator out; empty where none helps."""
    falling: bool = False
    """True when K may only stay or fall as more requests are scheduled (TensorRT-LLM's `draft_len_schedule`)."""
