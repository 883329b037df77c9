"""The claim that keeps compiled code between pods, and what is said where it has no effect. Called by `tick`."""

from __future__ import annotations

from speculative_operator.domain.actions import Action, ApplyChild
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.world import World
from speculative_operator.render.jobs import cache_claim

KEEPING = frozenset({EngineType.VLLM, EngineType.SGLANG})
"""Engines that compile at their start, and keep it where another start finds it."""


def claim(world: World) -> tuple[Action, ...]:
    """What makes the claim, where it is to be made and is not there. Raises RenderError."""
    cache = world.spec.engine.compile_cache
    if (
        cache is None
        or not cache.size
        or cache.claim in world.claims | world.foreign_claims
        or notices(world.spec, world)
    ):
        return ()
    what = f"PersistentVolumeClaim {cache.claim}"
    return (ApplyChild(cache_claim(world.spec, cache), Reason.CREATED, f"{what} is missing"),)


def notices(spec: DeploymentSpec, world: World) -> tuple[Notice, ...]:
    """One notice where a cache is asked for in vain."""
    if spec.engine.compile_cache is None:
        return ()
    if spec.engine.type not in KEEPING:
        why = (
            f"{spec.engine.type} compiles nothing that a later start could reuse; remove compileCache, or use one of "
            f"{', '.join(sorted(KEEPING))}"
        )
    elif not world.capabilities.job_image:
        why = "the operator does not know its own image, which manages the cache; set its setting SPECULATIVE_JOB_IMAGE"
    else:
        return ()
    return (Notice(Reason.COMPILE_CACHE_UNUSED, f"engine.compileCache has no effect: {why}"),)
