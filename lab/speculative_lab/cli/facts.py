"""Facts that a user states of a deployment -> what physics and tuner know before anything was measured.

Used by `arena`. What is stated stands above the catalogue; what is left out comes from it; what neither knows stays
unknown. Errors are those of the API: field, value and remedy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from speculative_operator.api.wire import SpecError
from speculative_operator.cli.subject import Subject
from speculative_operator.domain.models import ModelShape, PairFacts
from speculative_operator.domain.spec import DeploymentSpec, Method
from speculative_operator.domain.table import KnobSpace

COUNTS = {
    "parameters": "parameters",
    "activeParameters": "active_parameters",
    "layers": "layers",
    "hiddenSize": "hidden_size",
    "kvHeads": "kv_heads",
    "headDim": "head_dim",
    "bytesPerParameter": "bytes_per_parameter",
    "experts": "experts",
    "expertsPerToken": "experts_per_token",
}
"""Name in the facts -> field of ModelShape."""
_NEEDED = ("parameters", "layers", "hidden_size", "kv_heads", "head_dim")
"""Without one of these a shape that the catalogue does not know says too little to price a step."""
_WHOLE = frozenset({"layers", "hidden_size", "kv_heads", "head_dim", "experts", "experts_per_token"})
_LEAST = {"parameters": 1000.0, "active_parameters": 1000.0, "bytes_per_parameter": 0.125}
_MOST = {"parameters": 1e15, "active_parameters": 1e15, "bytes_per_parameter": 8.0}
_MOST_ELSE = 1e7
_REMEDY = {
    "parameters": "write the number of parameters, such as 8.03e9",
    "active_parameters": "write the number of parameters that one token uses, such as 3.3e9",
    "bytes_per_parameter": "write 2 for 16-bit weights, 1 for 8-bit, 0.5 for 4-bit ones",
}
_SAME_SHARE = 0.05
"""Largest difference of a stated shape from the catalogue's at which both are one model, so that published measurements
of it apply."""


def with_facts(subject: Subject, facts: Any) -> Subject:
    """`subject` with the stated facts above the catalogue's in its policy. Raises SpecError."""
    if facts is None:
        return subject
    if not isinstance(facts, Mapping):
        raise SpecError("facts", facts, "use an object with named fields, or remove it")
    pair, knobs = facts_and_knobs(subject.spec, facts, subject.policy.knobs, subject.policy.facts)
    return replace(subject, policy=replace(subject.policy, facts=pair, knobs=knobs))


def facts_and_knobs(
    spec: DeploymentSpec, facts: Mapping[str, Any], knobs: KnobSpace, found: PairFacts
) -> tuple[PairFacts, KnobSpace]:
    """What is found of `spec` and its knobs, with `facts` above them. Raises SpecError."""
    speculator = _object(facts, "speculator")
    without = "kvCapacityTokens.withoutSpeculator"
    capacity = _object(facts, "kvCapacityTokens")
    held = _tokens(capacity.get("withSpeculator"), "facts.kvCapacityTokens.withSpeculator")
    whole = _tokens(capacity.get("withoutSpeculator"), f"facts.{without}")
    found = replace(
        found,
        verifier=_shape(_object(facts, "verifier"), "facts.verifier", found.verifier, _name(spec, drafts=False)),
        speculator=_shape(speculator, "facts.speculator", found.speculator, _name(spec, drafts=True)),
        method=_method(speculator.get("method")) or found.method,
        kv_capacity_tokens=held or found.kv_capacity_tokens,
        kv_capacity_tokens_without_speculator=whole or found.kv_capacity_tokens_without_speculator,
    )
    sizes = _sizes(facts.get("captureSizes"))
    if sizes is not None:
        knobs = replace(knobs, capture_sizes=sizes, capture_ceiling_tokens=max(sizes, default=None))
    return found, knobs


def _object(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    given = facts.get(name)
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise SpecError(f"facts.{name}", given, "use an object with named fields")
    return given


def _name(spec: DeploymentSpec, *, drafts: bool) -> str:
    if not drafts:
        return spec.verifier.source.location
    source = spec.speculator.source if spec.speculator is not None else None
    return source.location if source is not None else "speculator"


def _shape(given: Mapping[str, Any], path: str, base: ModelShape | None, name: str) -> ModelShape | None:
    """`base` with the stated counts in place of its own; None when neither says enough. Raises SpecError."""
    stated = {
        field: _count(given[key], field, f"{path}.{key}") for key, field in COUNTS.items() if given.get(key) is not None
    }
    if stated.get("active_parameters", 0.0) > stated.get("parameters", math.inf):
        value = given["activeParameters"]
        raise SpecError(f"{path}.activeParameters", value, f"write at most parameters, {given['parameters']}")
    if not stated:
        return base
    if "parameters" in stated and "active_parameters" not in stated:
        stated["active_parameters"] = _active(stated["parameters"], base)
    typed: dict[str, Any] = {field: int(value) if field in _WHOLE else value for field, value in stated.items()}
    if base is not None:
        return replace(base, **typed, name=base.name if _alike(typed, base) else f"{name} as stated")
    if any(field not in typed for field in _NEEDED):
        return None
    return ModelShape(name=f"{name} as stated", **typed)


def _active(parameters: float, base: ModelShape | None) -> float:
    """The number of active parameters by the catalogue's share; all of them for a model that it does not know."""
    share = base.active_parameters / base.parameters if base is not None else 1.0
    return parameters * share


def _alike(stated: Mapping[str, Any], base: ModelShape) -> bool:
    exact = all(stated[field] == getattr(base, field) for field in (*_WHOLE, "bytes_per_parameter") if field in stated)
    sizes = (field for field in ("parameters", "active_parameters") if field in stated)
    return exact and all(abs(stated[f] - getattr(base, f)) <= _SAME_SHARE * getattr(base, f) for f in sizes)


def _count(value: Any, field: str, path: str) -> float:
    whole = field in _WHOLE
    remedy = _REMEDY.get(field, "use a whole number of 1 or more")
    least = 0.0 if field.startswith("experts") else _LEAST.get(field, 1.0)
    number = _number(value)
    if number is None or not least <= number <= _MOST.get(field, _MOST_ELSE) or (whole and number != int(number)):
        raise SpecError(path, value, remedy)
    return number


def _number(value: Any) -> float | None:
    """A finite number; None for everything else, truth values included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _tokens(value: Any, path: str) -> int | None:
    if value is None:
        return None
    number = _number(value)
    if number is None or not 1 <= number <= 1e12:
        raise SpecError(path, value, "write how many tokens the KV cache of one replica holds, 1 or more")
    return int(number)


def _sizes(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    remedy = "write the sizes in tokens that CUDA graphs are captured for, such as [1, 2, 4, 8]"
    if not isinstance(value, list) or len(value) > 10_000:
        raise SpecError("facts.captureSizes", value, remedy)
    sizes = set()
    for place, entry in enumerate(value):
        number = _number(entry)
        if number is None or number != int(number) or not 1 <= number <= 1_000_000:
            raise SpecError(f"facts.captureSizes[{place}]", entry, remedy)
        sizes.add(int(number))
    return tuple(sorted(sizes))


def _method(value: Any) -> Method | None:
    if value is None:
        return None
    plain = _letters(value) if isinstance(value, str) else ""
    found = next((method for method in Method if _letters(method.value) == plain), None)
    if found is None:
        raise SpecError("facts.speculator.method", value, f"use one of {', '.join(Method)}")
    return found


def _letters(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())
