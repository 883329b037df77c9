"""One spec resolved against an engine's rows of the capability matrix. Used by every module of the adapters.

vLLM's plan adds the model runners, which its rows are asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from speculative_operator.domain.spec import DeploymentSpec, EngineType, Mode, OffPolicy
from speculative_operator.domain.table import Actuator, KnobSpace, KTable
from speculative_operator.engines.matrix.refusing import question_of
from speculative_operator.engines.matrix.rows import Cell, Version, find, parse_version


@dataclass(frozen=True, slots=True)
class Offer:
    """What one engine offers, as far as planning and the common checks need it."""

    engine: EngineType
    oldest: Version
    """First release that the adapter serves."""
    why_oldest: str
    default_batch: int
    """Requests at once where the spec leaves it open: always written out, because a table needs a number."""
    table_ks: frozenset[int] = frozenset()
    """K worth having in a table beside the largest and the start K; empty: all."""
    zero_in_table: bool = False
    """True when a table may say K = 0."""
    falling: bool = False
    """True when tables may only fall."""
    fixed_k_reason: Callable[[DeploymentSpec], str] = lambda _: ""
    """Why the spec keeps one K although its row offers a table; empty: it does not."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an adapter will do for a spec. `cell` is None without a speculator, or where the matrix is silent."""

    actuator: Actuator
    version: Version
    max_batch: int
    """Requests that the engine is told to run at once at most."""
    ks: tuple[int, ...]
    """K that may occur, ascending."""
    cell: Cell | None = None

    @property
    def speculates(self) -> bool:
        """True when the pods are to run with a speculator at all."""
        return self.actuator is not Actuator.NONE

    def drafts(self, table: KTable) -> bool:
        """False when the pod is to run without a speculator: the spec has none, or K = 0 where K is fixed at start."""
        return self.speculates and not (self.actuator is Actuator.RESTART and table.max_k == 0)


def plan(spec: DeploymentSpec, offer: Offer) -> Plan:
    """The plan of `spec`. For a version that cannot be read it assumes the oldest (the checks refuse that spec)."""
    version = parse_version(spec.engine.version) or offer.oldest
    batch = spec.verifier.max_num_seqs or offer.default_batch
    if spec.speculator is None or not spec.speculates:
        return Plan(Actuator.NONE, version, batch, (0,))
    cell = find(question_of(spec, version))
    actuator = _actuator(spec, cell, offer)
    top = spec.speculation.max_speculative_tokens
    in_table = offer.table_ks | {top} if offer.table_ks else range(1, top + 1)
    fixed = actuator is Actuator.RESTART
    ks = choose_ks(spec, batch, None if fixed else in_table, zero_in_table=offer.zero_in_table)
    return Plan(actuator, version, batch, ks, cell)


def knobs(spec: DeploymentSpec, offer: Offer) -> KnobSpace:
    """Every table that the tuner may choose for `spec`."""
    planned = plan(spec, offer)
    if planned.cell is None or spec.speculator is None:
        return KnobSpace(actuator=Actuator.NONE, ks=(0,), max_batch=planned.max_batch, passes_at_zero=0.0)
    table = planned.actuator is Actuator.TABLE
    return KnobSpace(
        actuator=planned.actuator,
        ks=planned.ks,
        max_batch=planned.max_batch,
        passes_at_zero=planned.cell.passes_at_zero if table else 0.0,
        drafts_blocks=planned.cell.drafts_blocks,
        draft_free=spec.speculator.method.draft_free,
        full_graphs=True,
        falling=offer.falling and table,
    )


def _actuator(spec: DeploymentSpec, cell: Cell | None, offer: Offer) -> Actuator:
    if cell is None or cell.actuator is not Actuator.TABLE:
        return Actuator.RESTART
    one_k = spec.speculation.mode is Mode.STATIC and spec.speculation.schedule is None
    return Actuator.RESTART if one_k or offer.fixed_k_reason(spec) else Actuator.TABLE


def choose_ks(
    spec: DeploymentSpec, batch: int, in_table: Collection[int] | None, *, zero_in_table: bool
) -> tuple[int, ...]:
    """Every K that may occur, ascending. `in_table`: each K worth having in a table; None: K is fixed at start."""
    speculation = spec.speculation
    if speculation.mode is Mode.STATIC:
        if speculation.schedule is not None:
            return tuple(sorted(speculation.schedule.resize(batch).ks))
        return (speculation.num_speculative_tokens or speculation.max_speculative_tokens,)
    start, policy = speculation.num_speculative_tokens, speculation.off_policy
    every = set(range(1, speculation.max_speculative_tokens + 1))
    ks = every if in_table is None else every.intersection(in_table)
    ks |= {start} & every if start is not None else set()
    if policy is OffPolicy.REMOVE if in_table is None else zero_in_table and policy is not OffPolicy.NEVER:
        ks.add(0)
    return tuple(sorted(ks))
