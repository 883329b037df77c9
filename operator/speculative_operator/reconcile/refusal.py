"""Specs that cannot be served: said in conditions and an event, while whatever runs is left alone.

`refusals` and `without_unknown_method` are called by `tick`; `invalid` by the shell, for an object that does not even
become a DeploymentSpec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.conditions import Condition, Truth
from speculative_operator.domain.reading import mapping, mappings, text, whole
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import DEFAULT_VERSIONS, DeploymentSpec, Scheme
from speculative_operator.engines.base import Engine, Notice
from speculative_operator.engines.matrix.refusing import METHOD
from speculative_operator.engines.registry import engine_for
from speculative_operator.reconcile.conditions import stamp
from speculative_operator.reconcile.events import events
from speculative_operator.reconcile.tables import label_of
from speculative_operator.reconcile.world import Event, Outcome, World

_UNSEEN = "the operator refused the object before it could check this"


def refusals(spec: DeploymentSpec, engine: Engine, *, jobs: bool = True) -> tuple[Condition, ...]:
    """Why `spec` cannot be served, the first reason first; empty when it can. `jobs`: whether Jobs can fetch
    weights."""
    found = [
        Condition(ConditionType.READY, Truth.FALSE, refused.reason, _sentence(refused.field, refused.message))
        for refused in engine.refusals(spec)
    ]
    found += [] if jobs or found else _refuse_sources(spec)
    return tuple(found)


def _refuse_sources(spec: DeploymentSpec) -> list[Condition]:
    """The refusals of weights that only the operator's image could fetch, where the operator does not know it."""
    cache = spec.weights.cache
    if cache is not None and cache.in_pods:
        kind = f"nodePath {cache.node_path}" if cache.node_path else "emptyDir"
        message = (
            f"spec.weights.cache.{kind} needs an init container with the operator's image, which the operator does not "
            "know; set its setting SPECULATIVE_JOB_IMAGE, or remove weights.cache"
        )
        return [Condition(ConditionType.READY, Truth.FALSE, Reason.UNSUPPORTED_SOURCE, message)]
    sources = (spec.verifier.source, spec.speculator.source if spec.speculator is not None else None)
    uris = [source.uri for source in sources if source is not None and source.scheme is Scheme.S3]
    message = (
        "must be fetched by a Job with the operator's image, which the operator does not know; set its setting "
        "SPECULATIVE_JOB_IMAGE"
    )
    return [Condition(ConditionType.READY, Truth.FALSE, Reason.UNSUPPORTED_SOURCE, f"{uri} {message}") for uri in uris]


def without_unknown_method(world: World, spec: ResolvedSpec) -> tuple[ResolvedSpec, tuple[Notice, ...]]:
    """`spec` with mode Disabled and a notice, where the engine's release is older than the method, as in the images of
    a platform; else `spec` as it is. Also as it is where pods speculate: they stay until the spec can be served."""
    if not spec.speculates:
        return spec, ()
    engine, without = engine_for(spec), spec.without_speculator()
    refused = engine.refusals(spec)
    newer = replace(spec, engine=replace(spec.engine, version=DEFAULT_VERSIONS[spec.engine.type]))
    only_older = {one.field for one in refused} == {METHOD} and not _refuses_method(engine, newer)
    if not only_older or engine.refusals(without):
        return spec, ()
    label = text(world.deployment, "spec", "template", "metadata", "labels", names.LABEL_PAIR)
    if world.deployment is not None and label != label_of(without):
        return spec, ()
    message = f"pods serve without a speculator: {refused[0].message}"
    return without, (Notice(refused[0].reason, message),)


def _refuses_method(engine: Engine, spec: DeploymentSpec) -> bool:
    return any(one.field == METHOD for one in engine.refusals(spec))


def invalid(owner: Mapping[str, Any], message: str, now: float) -> Outcome:
    """The outcome for an object that `api.to_domain` refuses: no action, SpecInvalid, everything else as it was.

    `owner` is the object as the API server has it, `message` names field, value and remedy.
    """
    old = mapping(owner, "status")
    generation = whole(owner, "metadata", "generation")
    before = {text(one, "type"): one for one in mappings(old, "conditions")}
    conditions = [_condition(kind, before.get(kind, {}), message) for kind in ConditionType]
    status: dict[str, Any] = {key: value for key, value in old.items() if key != "conditions"}
    status.setdefault("ready", f"{whole(old, 'readyReplicas')}/{max(whole(owner, 'spec', 'replicas'), 0)}")
    status |= {"conditions": stamp(conditions, old, generation, now), "observedGeneration": generation}
    told: tuple[Event, ...] = events(old, status, ())
    return Outcome((), status, told, None)


def _condition(kind: ConditionType, before: Mapping[str, Any], message: str) -> Condition:
    if kind in (ConditionType.READY, ConditionType.PROGRESSING):
        return Condition(kind, Truth.FALSE, Reason.SPEC_INVALID, message)
    try:
        return Condition(kind, Truth(text(before, "status")), Reason(text(before, "reason")), text(before, "message"))
    except ValueError:
        return Condition(kind, Truth.UNKNOWN, Reason.SPEC_INVALID, _UNSEEN)


def _sentence(field: str, message: str) -> str:
    return message if field.removeprefix("spec.") in message else f"{field}: {message}"
