"""vLLM behind `engines.base.Engine`. Chosen by `registry`."""

from __future__ import annotations

from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import DeploymentSpec, Target
from speculative_operator.domain.table import Actuator, KnobSpace, KTable
from speculative_operator.engines import images
from speculative_operator.engines.base import Engine, EngineContainer
from speculative_operator.engines.matrix.rows import Variant
from speculative_operator.engines.shared.container import serving_container, startup_seconds
from speculative_operator.engines.vllm import checks, reading
from speculative_operator.engines.vllm.arguments import SHUTDOWN_SECONDS, arguments, environment, has_own_weights
from speculative_operator.engines.vllm.graphs import capture_sizes, raised_ceiling
from speculative_operator.engines.vllm.plan import (
    BLOCK_METHODS,
    SHUTDOWN_TIMEOUT_SINCE,
    Runner,
    can_skip,
    follows_k,
    plan,
    skips,
)

_START_SECONDS_RAISED = 120
"""Seconds added to the startup budget for graphs above the engine's own ceiling."""


def knobs(spec: DeploymentSpec) -> KnobSpace:
    """Every table that the tuner may choose for `spec`."""
    planned, speculator = plan(spec), spec.speculator
    if speculator is None or not planned.speculates:
        return KnobSpace(actuator=Actuator.NONE, ks=(0,), max_batch=planned.max_batch, passes_at_zero=0.0)
    sizes = capture_sizes(spec, planned)
    cell, follows = planned.cell if planned.has_schedule else None, follows_k(spec, planned)
    at_zero = 0.0 if cell is None or skips(spec, planned) else cell.passes_at_zero
    return KnobSpace(
        actuator=planned.actuator,
        ks=planned.ks,
        max_batch=planned.max_batch,
        capture_ceiling_tokens=sizes[-1] if sizes else None,
        capture_sizes=sizes,
        draft_passes_follow_k=follows,
        passes_at_zero=at_zero if follows or speculator.method in BLOCK_METHODS else float(planned.max_k),
        drafts_blocks=speculator.method in BLOCK_METHODS or planned.variant is Variant.PARALLEL,
        draft_free=speculator.method.draft_free,
        can_skip=can_skip(spec, planned),
        full_graphs=planned.runner is Runner.V2,
    )


def container(spec: ResolvedSpec, table: KTable) -> EngineContainer:
    """The container that serves `spec`; it holds `table` unless pods re-read the table from a file."""
    planned = plan(spec)
    graphs = _START_SECONDS_RAISED if raised_ceiling(spec, planned) is not None else 0
    startup = startup_seconds(spec, planned, graphs + images.needs_of(spec).compile_seconds)
    verifier = spec.verifier
    ranks = verifier.tensor_parallel_size * verifier.pipeline_parallel_size * verifier.data_parallel_size
    return serving_container(
        spec,
        with_speculator=planned.drafts(table) and has_own_weights(spec),
        args=arguments(spec, planned, table),
        command=images.command_of(spec),
        env=environment(spec, planned, startup),
        # OpenShift AI's dashboard gives every runtime its /dev/shm (getshmVolume of odh-dashboard).
        shared_memory=images.needs_of(spec).shared_memory or ranks > 1 or spec.target is Target.INFERENCE_SERVICE,
        startup_seconds=startup,
        shutdown_seconds=SHUTDOWN_SECONDS if planned.version >= SHUTDOWN_TIMEOUT_SINCE else 0,
        payload=planned.actuator is Actuator.LIVE,
    )


ENGINE = Engine(
    reading.METRIC_NAMES,
    checks.refusals,
    checks.notices,
    knobs,
    container,
    reading.read,
    needed=reading.READER.need.required,
)
