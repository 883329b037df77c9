"""Specs that cannot be served: said in conditions and an event, while whatever runs is left alone.

`refusals` is called by `tick`; `invalid` by the shell, for an object that does not even become a DeploymentSpec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.domain.conditions import Condition, Truth
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.spec import DeploymentSpec, Scheme
from speculative_operator.engines.base import Engine
from speculative_operator.reconcile.conditions import stamp
from speculative_operator.reconcile.events import events
from speculative_operator.reconcile.reading import mapping, mappings, text, whole
from speculative_operator.reconcile.world import Event, Outcome

_UNSEEN = "the operator refused the object before it could check this"


def refusals(spec: DeploymentSpec, engine: Engine, *, jobs: bool = True) -> tuple[Condition, ...]:
    """Why `spec` cannot be served, the first reason first; empty when it can. `jobs`: they can fetch weights."""
    found = [
        Condition(ConditionType.READY, Truth.FALSE, refused.reason, _sentence(refused.field, refused.message))
        for refused in engine.refusals(spec)
    ]
    found += [] if jobs or found else _unfetched(spec)
    return tuple(found)


def _unfetched(spec: DeploymentSpec) -> list[Condition]:
    """What only the operator's image could bring, where the operator does not know it."""
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


def invalid(owner: Mapping[str, Any], message: str, now: float) -> Outcome:
    """The outcome for an object that `api.to_domain` refuses: no action, SpecInvalid, everything else as it was.

    `owner` is the object as the API server has it, `message` names field, value and remedy.
    """
    old = mapping(owner, "status")
    generation = whole(owner, "metadata", "generation")
    before = {text(one, "type"): one for one in mappings(old, "conditions")}
    conditions = [_condition(kind, before.get(kind, {}), message) for kind in ConditionType]
    status: dict[str, Any] = {key: value for key, value in old.items() if key != "conditions"}
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
