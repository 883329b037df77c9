"""From the object as the API server has it to `DeploymentSpec`. Called by shell for every object it hears of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from speculative_operator.api import cel
from speculative_operator.api import v1alpha1 as wire
from speculative_operator.api.cel import seconds
from speculative_operator.api.crd import schema
from speculative_operator.api.rules import ALL_RULES
from speculative_operator.api.targets import TARGET_STAYS, Canary, InferenceService, Route
from speculative_operator.api.weights import Cache, Weights
from speculative_operator.api.wire import VALIDATIONS, RuleError, SpecError, Wire
from speculative_operator.domain import names, spec
from speculative_operator.domain.platform import Analysis, InferenceServiceSettings, Measuring
from speculative_operator.domain.platform import Canary as CanaryTold
from speculative_operator.domain.platform import Route as RouteTold
from speculative_operator.domain.table import KTable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["SpecError", "to_domain"]

Inner = TypeVar("Inner", bound="DataclassInstance")

_LONGEST_REPIN = 256
"""Characters of the annotation that count: it is kept in status."""
_DEEPEST = 64
"""Levels that a pod template or an option may nest; those of Kubernetes nest some ten."""
_NAMED = 3
"""Levels by which a value that nests too deep is named."""
_TOO_DEEP = f"a value of more than {_DEEPEST} levels"


def to_domain(body: Mapping[str, Any]) -> spec.DeploymentSpec:
    """The object that `body` describes, defaults filled in. Raises SpecError for the first thing that cannot be
    served."""
    metadata = body.get("metadata") or {}
    name = str(metadata.get("name") or "")
    _check_depth(body.get("spec"))
    try:
        wanted = wire.Spec.model_validate(body.get("spec"))
    except ValidationError as error:
        found = error.errors(include_url=False)
        # A misspelt field is often why another one is missing.
        raise _explain(next((one for one in found if one["type"] == "extra_forbidden"), found[0])) from None
    _check_rules({"metadata": {"name": name}, "spec": _plain(wanted)})
    annotations = metadata.get("annotations") or {}
    return spec.DeploymentSpec(
        name=name,
        namespace=str(metadata.get("namespace") or "default"),
        uid=str(metadata.get("uid") or ""),
        generation=int(metadata.get("generation") or 0),
        verifier=_verifier(wanted.verifier, name),
        speculator=_speculator(wanted.speculator),
        speculation=_speculation(wanted.speculation),
        engine=_engine(wanted.engine),
        accelerator=_accelerator(wanted),
        replicas=wanted.replicas,
        weights=_weights(wanted.weights or Weights(), str(annotations.get(names.ANNOTATION_REPIN) or "")),
        rollout_strategy=wanted.rollout.strategy,
        rollout_tuning=wanted.rollout.tuning or spec.Tuning.KEEP_CAPACITY,
        rollout_window=_window(wanted.rollout.window),
        target=wanted.target,
        nodes=wanted.nodes or 1,
        inference_service=_inference_service(wanted.inference_service, wanted.target),
        route=_route(wanted.route) if wanted.route else None,
        template=_plain(wanted.template),
        paused=annotations.get(names.ANNOTATION_PAUSED) == "true",
        adopt=str(annotations.get(names.ANNOTATION_ADOPT) or ""),
        accept=str(annotations.get(names.ANNOTATION_ACCEPT) or ""),
        suspend=str(annotations.get(names.ANNOTATION_SUSPEND) or ""),
        verified=str(annotations.get(names.ANNOTATION_VERIFIED) or ""),
        auto_speculator=wanted.speculator is not None and bool(wanted.speculator.auto),
        measure=_measure(wanted.speculator),
        candidate_of=_candidate_of(metadata, name),
    )


def _measure(given: wire.Speculator | None) -> Measuring | None:
    return _as(Measuring, given.measure) if given is not None and given.measure is not None else None


def _candidate_of(metadata: Mapping[str, Any], name: str) -> str:
    """Name of the object whose candidate this is; empty where its name or its controller says otherwise."""
    for one in metadata.get("ownerReferences") or ():
        if one.get("kind") == names.KIND and one.get("controller") is True:
            owner = str(one.get("name") or "")
            return owner if name == names.candidate(owner) else ""
    return ""


_RULES = {rule.cel: rule for rule in ALL_RULES if rule is not TARGET_STAYS}


def _check_rules(value: Any, node: Mapping[str, Any] | None = None, path: str = "") -> None:
    """Raises RuleError for the first rule of the definition that the value breaks."""
    node = node or _definition()
    for entry in node.get(VALIDATIONS) or ():
        rule = _RULES.get(entry["rule"])  # forms of scalars are checked by their types
        if rule is not None and not cel.evaluate(rule.cel, self=value):
            first = cel.evaluate(rule.among, self=value)[0] if rule.among else None
            raise RuleError(path, rule.field, value, cel.render(rule.text, self=value, r=first))
    if isinstance(value, list):
        _check_keys(value, node.get("x-kubernetes-list-map-keys") or (), path)
        for index, one in enumerate(value):
            _check_rules(one, node["items"], f"{path}[{index}]")
    elif isinstance(value, Mapping):
        for name, inner in (node.get("properties") or {}).items():
            if name in value:
                _check_rules(value[name], inner, f"{path}.{name}" if path else name)


def _check_keys(items: list[Any], keys: Iterable[str], path: str) -> None:
    """Raises SpecError where two items of a list have the same value of a key that tells them apart."""
    for key in keys:
        seen: set[Any] = set()
        for index, item in enumerate(items):
            if item[key] in seen:
                raise SpecError(f"{path}[{index}].{key}", item[key], "set each once")
            seen.add(item[key])


@cache
def _definition() -> Mapping[str, Any]:
    """The schema of an object."""
    return schema()


def _check_depth(given: Any) -> None:
    """Raises SpecError where a part nests without end in which the definition takes any field, at any depth."""
    for parts in (("template",), ("speculator", "options")):
        root, value = "spec", given
        for part in parts:
            root, value = f"{root}.{part}", value.get(part) if isinstance(value, Mapping) else None
        below: list[tuple[str, Any]] = [(root, value)]
        for level in range(_DEEPEST + 1):
            below = [(_path_to(path, name, level), inner) for path, one in below for name, inner in _inner(one)]
        if below:
            raise SpecError(below[0][0], _TOO_DEEP, f"use at most {_DEEPEST} levels in {root}")


def _inner(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return ((f".{name}", inner) for name, inner in value.items())
    return ((f"[{index}]", inner) for index, inner in enumerate(value)) if isinstance(value, list) else ()


def _path_to(path: str, name: str, level: int) -> str:
    """The path of a value that lies `level` levels deep; of what lies deep the first steps are enough to find it."""
    return path + name if level < _NAMED else path


def _source(uri: str, revision: str | None) -> spec.ModelSource:
    scheme, _, location = uri.partition("://")
    return spec.ModelSource(spec.Scheme(scheme), location.rstrip("/"), revision or "")


def _window(text: str | None) -> spec.DailyWindow | None:
    if text is None:
        return None
    begin, end = (int(time[:2]) * 60 + int(time[3:]) for time in text.split("-"))
    return spec.DailyWindow(begin, end)


def _as(kind: type[Inner], given: Wire, **others: Any) -> Inner:
    """Make a `kind` of the fields that both name alike and of `others`; what is not given has the default of `kind`."""
    alike = {one.name: getattr(given, one.name, None) for one in fields(kind)}
    return kind(**{**{name: value for name, value in alike.items() if value is not None}, **others})


def _verifier(given: wire.Verifier, name: str) -> spec.Verifier:
    return _as(
        spec.Verifier,
        given,
        source=_source(given.model, given.revision),
        served_name=given.served_name or name,
        lora=_as(spec.LoraLimits, given.lora) if given.lora else None,
    )


def _speculator(given: wire.Speculator | None) -> spec.Speculator | None:
    if given is None or given.method is None:
        return None
    lookup = given.prompt_lookup or wire.PromptLookup()
    source = _source(given.model, given.revision) if given.model else None
    # As vLLM spells keys, for which it takes a dash too, and in one order, whatever order a file has.
    spelled = {key.replace("-", "_"): value for key, value in (given.options or {}).items()}
    options = json.loads(json.dumps(spelled, sort_keys=True))
    return _as(
        spec.Speculator,
        given,
        source=source,
        prompt_lookup_min=lookup.min,
        prompt_lookup_max=lookup.max,
        options=options,
    )


def _speculation(given: wire.Speculation) -> spec.Speculation:
    objective = given.objective
    return _as(
        spec.Speculation,
        given,
        mode=given.mode,
        schedule=KTable.from_rows(given.schedule) if given.schedule else None,
        objective=spec.Objective(
            goal=objective.goal,
            tpot_p99_seconds=seconds(objective.tpot_p99) if objective.tpot_p99 else None,
            ttft_p99_seconds=seconds(objective.ttft_p99) if objective.ttft_p99 else None,
        ),
    )


def _engine(given: wire.Engine) -> spec.EngineSettings:
    return _as(
        spec.EngineSettings,
        given,
        version=given.version or spec.DEFAULT_VERSIONS[given.type],
        version_named=bool(given.version),
        env=tuple(_plain(variable) for variable in given.env or ()),
    )


def _accelerator(wanted: wire.Spec) -> spec.AcceleratorRequest:
    given, sizes = wanted.accelerator, wanted.verifier
    product = sizes.tensor_parallel_size * sizes.pipeline_parallel_size * sizes.data_parallel_size
    return _as(
        spec.AcceleratorRequest,
        given,
        per_replica=product if given.per_replica is None else given.per_replica,
        hourly_cost=float(given.hourly_cost) if given.hourly_cost else None,
    )


def _inference_service(given: InferenceService | None, target: spec.Target) -> InferenceServiceSettings:
    if given is None:
        return InferenceServiceSettings()
    profile = given.hardware_profile
    return _as(
        InferenceServiceSettings,
        given,
        anonymous=given.authenticated is False and target is spec.Target.LLM_INFERENCE_SERVICE,
        hardware_profile=profile.name if profile else "",
        hardware_profile_namespace=(profile.namespace or "") if profile else "",
    )


def _route(given: Route) -> RouteTold:
    gateway, canary = given.gateway, given.canary
    return RouteTold(
        gateway.name, gateway.namespace or "", gateway.listener or "", given.hostnames or (), given.path,
        _canary(canary) if canary is not None else None,
    )  # fmt: skip


def _canary(given: Canary) -> CanaryTold:
    analysis = _as(Analysis, given.analysis) if given.analysis is not None else None
    return CanaryTold(given.name, given.weight or 0, analysis)


def _weights(given: Weights, repin: str) -> spec.Weights:
    return _as(
        spec.Weights,
        given,
        check=given.check or spec.Check.AUTO,
        cache=_cache(given.cache) if given.cache else None,
        env=tuple(_plain(variable) for variable in given.env or ()),
        repin=repin[:_LONGEST_REPIN],
    )


def _cache(given: Cache) -> spec.Cache:
    if given.node_path is not None:
        return _as(spec.Cache, given, node_path=given.node_path.rstrip("/"))
    if given.empty_dir is not None:
        return spec.Cache(empty_dir=_as(spec.EmptyDir, given.empty_dir))
    claim = given.claim_name or names.CACHE_CLAIM
    return _as(spec.Cache, given, claim=claim, storage_class=given.storage_class_name or "")


def _plain(given: Wire | None) -> dict[str, Any]:
    """As it was written."""
    return given.model_dump(mode="json", by_alias=True, exclude_none=True) if given is not None else {}


_REMEDIES = {
    "missing": "it is required: set it",
    "enum": "use one of {expected}",
    "greater_than_equal": "use {ge} or more",
    "less_than_equal": "use {le} or less",
    "too_long": "use at most {max_length} items, not {actual_length}",
    "too_short": "use at least {min_length} items, not {actual_length}",
    "int_type": "use a whole number",
    "bool_type": "use true or false",
    "string_type": "use a string",
    "dict_type": "use an object with named fields",
    "model_type": "use an object with named fields",
    "model_attributes_type": "use an object with named fields",
}


def _explain(problem: ErrorDetails) -> SpecError:
    """What pydantic says, in the words of this project."""
    context = problem.get("ctx") or {}
    remedy = _misspelt(problem["loc"]) if problem["type"] == "extra_forbidden" else _REMEDIES.get(problem["type"])
    text = remedy.format(**context) if remedy else problem["msg"]
    value = None if problem["type"] == "missing" else problem["input"]
    return SpecError(_path(problem["loc"]), value, text)


def _misspelt(location: tuple[int | str, ...]) -> str:
    """The remedy for a field that the definition does not have."""
    node = _definition()["properties"]["spec"]
    for part in location[:-1]:
        node = node["items"] if isinstance(part, int) else node["properties"][part]
    near = get_close_matches(str(location[-1]), node["properties"], n=1)
    return f"the field does not exist: {f'write {near[0]}' if near else 'remove it'} (kubectl explain specdep.spec)"


def _path(location: tuple[int | str, ...]) -> str:
    path = "spec"
    for part in location:
        if part == "[key]":
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path
