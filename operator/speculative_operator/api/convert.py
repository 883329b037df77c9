"""From the object as the API server has it to `DeploymentSpec`. Called by shell for every object it hears of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from speculative_operator.api import v1alpha1 as wire
from speculative_operator.api.checks import accelerators_needed, check, check_canary, check_group_name, check_name
from speculative_operator.api.compiled import CompileCache
from speculative_operator.api.errors import SpecError
from speculative_operator.api.inference_service import InferenceService
from speculative_operator.api.route import Route
from speculative_operator.api.scalars import seconds
from speculative_operator.api.weights import Cache, Weights
from speculative_operator.api.wire import Wire
from speculative_operator.domain import names, spec
from speculative_operator.domain.inference_service import InferenceServiceSettings
from speculative_operator.domain.route import Canary as CanaryTold
from speculative_operator.domain.route import Route as RouteTold
from speculative_operator.domain.table import KTable

__all__ = ["SpecError", "to_domain"]

_LONGEST_REPIN = 256
"""Characters of the annotation that count: it is kept in status."""
_DEEPEST = 64
"""Levels that a pod template may nest; those of Kubernetes nest some ten."""
_NAMED = 3
"""Levels by which a value that nests too deep is named."""
_TOO_DEEP = f"a value of more than {_DEEPEST} levels"


def to_domain(body: Mapping[str, Any]) -> spec.DeploymentSpec:
    """The object that `body` describes, defaults filled in. Raises SpecError for the first thing that cannot be
    served."""
    metadata = body.get("metadata") or {}
    name = str(metadata.get("name") or "")
    check_name(name)
    _check_depth(body.get("spec"))
    try:
        wanted = wire.Spec.model_validate(body.get("spec"))
    except ValidationError as error:
        raise _explained(error.errors(include_url=False)[0]) from None
    check_group_name(name, wanted.target)
    check_canary(name, wanted.route)
    check(wanted)
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
        auto_speculator=wanted.speculator is not None and bool(wanted.speculator.auto),
    )


def _check_depth(given: Any) -> None:
    """Raises SpecError where the template nests without end: the definition takes any field there, at any depth."""
    template = given.get("template") if isinstance(given, Mapping) else None
    below: list[tuple[str, Any]] = [("spec.template", template)]
    for level in range(_DEEPEST + 1):
        below = [(_named(path, name, level), value) for path, one in below for name, value in _inner(one)]
        if not below:
            return
    raise SpecError(below[0][0], _TOO_DEEP, f"use at most {_DEEPEST} levels in spec.template")


def _inner(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return ((f".{name}", inner) for name, inner in value.items())
    return ((f"[{index}]", inner) for index, inner in enumerate(value)) if isinstance(value, list) else ()


def _named(path: str, name: str, level: int) -> str:
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


def _verifier(given: wire.Verifier, name: str) -> spec.Verifier:
    return spec.Verifier(
        source=_source(given.model, given.revision),
        served_name=given.served_name or name,
        tensor_parallel_size=given.tensor_parallel_size,
        pipeline_parallel_size=given.pipeline_parallel_size,
        data_parallel_size=given.data_parallel_size,
        max_model_len=given.max_model_len,
        max_num_seqs=given.max_num_seqs,
        dtype=given.dtype or "",
        quantization=given.quantization or "",
        kv_cache_dtype=given.kv_cache_dtype or "",
        gpu_memory_utilization_percent=given.gpu_memory_utilization_percent,
        max_num_batched_tokens=given.max_num_batched_tokens,
        expert_parallel=bool(given.expert_parallel),
        lora=spec.LoraLimits(given.lora.max_adapters, given.lora.max_rank) if given.lora else None,
    )


def _speculator(given: wire.Speculator | None) -> spec.Speculator | None:
    if given is None or given.method is None:
        return None
    lookup = given.prompt_lookup or wire.PromptLookup()
    return spec.Speculator(
        method=given.method,
        source=_source(given.model, given.revision) if given.model else None,
        tensor_parallel_size=given.tensor_parallel_size,
        quantization=given.quantization or "",
        parallel_drafting=bool(given.parallel_drafting),
        heterogeneous_vocabulary=bool(given.heterogeneous_vocabulary),
        prompt_lookup_min=lookup.min,
        prompt_lookup_max=lookup.max,
    )


def _speculation(given: wire.Speculation) -> spec.Speculation:
    objective = given.objective
    return spec.Speculation(
        mode=given.mode.current,
        num_speculative_tokens=given.num_speculative_tokens,
        max_speculative_tokens=given.max_speculative_tokens,
        schedule=KTable.from_rows(given.schedule) if given.schedule else None,
        off_policy=given.off_policy,
        per_request=given.per_request or spec.PerRequest.NEVER,
        workload=given.workload,
        objective=spec.Objective(
            goal=objective.goal,
            tpot_p99_seconds=seconds(objective.tpot_p99) if objective.tpot_p99 else None,
            ttft_p99_seconds=seconds(objective.ttft_p99) if objective.ttft_p99 else None,
        ),
    )


def _engine(given: wire.Engine) -> spec.EngineSettings:
    return spec.EngineSettings(
        type=given.type,
        version=given.version or spec.DEFAULT_VERSIONS[given.type],
        version_named=bool(given.version),
        image=given.image or "",
        args=given.args or (),
        env=tuple(_plain(variable) for variable in given.env or ()),
        compile_cache=_compile_cache(given.compile_cache) if given.compile_cache else None,
    )


def _compile_cache(given: CompileCache) -> spec.Cache:
    return spec.Cache(
        claim=given.claim_name or names.COMPILED_CLAIM,
        size=given.size or "",
        storage_class=given.storage_class_name or "",
        access_mode=given.access_mode or spec.AccessMode.READ_WRITE_MANY,
    )


def _accelerator(wanted: wire.Spec) -> spec.AcceleratorRequest:
    given = wanted.accelerator
    return spec.AcceleratorRequest(
        resource=given.resource,
        product=given.product or "",
        per_replica=accelerators_needed(wanted.verifier) if given.per_replica is None else given.per_replica,
        hourly_cost=float(given.hourly_cost) if given.hourly_cost else None,
    )


def _inference_service(given: InferenceService | None, target: spec.Target) -> InferenceServiceSettings:
    if given is None:
        return InferenceServiceSettings()
    profile = given.hardware_profile
    return InferenceServiceSettings(
        display_name=given.display_name or "",
        description=given.description or "",
        exposed=bool(given.exposed),
        authenticated=bool(given.authenticated),
        anonymous=given.authenticated is False and target is spec.Target.LLM_INFERENCE_SERVICE,
        connection=given.connection or "",
        hardware_profile=profile.name if profile else "",
        hardware_profile_namespace=(profile.namespace or "") if profile else "",
        queue=given.queue or "",
        tls=bool(given.tls),
    )


def _route(given: Route) -> RouteTold:
    gateway, canary = given.gateway, given.canary
    return RouteTold(
        gateway.name, gateway.namespace or "", gateway.listener or "", given.hostnames or (), given.path,
        CanaryTold(canary.name, canary.weight) if canary is not None else None,
    )  # fmt: skip


def _weights(given: Weights, repin: str) -> spec.Weights:
    return spec.Weights(
        secret_name=given.secret_name or "",
        check=(given.check or spec.Check.AUTO).current,
        cache=_cache(given.cache) if given.cache else None,
        hub_endpoint=given.hub_endpoint or "",
        s3_endpoint=given.s3_endpoint or "",
        proxy=given.proxy or "",
        no_proxy=given.no_proxy or (),
        ca_config_map=given.ca_config_map or "",
        env=tuple(_plain(variable) for variable in given.env or ()),
        repin=repin[:_LONGEST_REPIN],
    )


def _cache(given: Cache) -> spec.Cache:
    if given.node_path is not None:
        reserve = given.reserve_percent if given.reserve_percent is not None else spec.NODE_RESERVE_PERCENT
        return spec.Cache(node_path=given.node_path.rstrip("/"), collect=bool(given.collect), reserve_percent=reserve)
    if given.empty_dir is not None:
        return spec.Cache(empty_dir=spec.EmptyDir(given.empty_dir.size_limit, given.empty_dir.medium))
    return spec.Cache(
        claim=given.claim_name or names.CACHE_CLAIM,
        size=given.size or "",
        storage_class=given.storage_class_name or "",
        access_mode=given.access_mode or spec.AccessMode.READ_WRITE_MANY,
        collect=bool(given.collect),
    )


def _plain(given: Wire | None) -> dict[str, Any]:
    """As it was written."""
    return given.model_dump(mode="json", by_alias=True, exclude_none=True) if given is not None else {}


_REMEDIES = {
    "missing": "it is required: set it",
    "extra_forbidden": "the field does not exist: remove it or correct its spelling (kubectl explain specdep.spec)",
    "enum": "use one of {expected}",
    "greater_than_equal": "use {ge} or more",
    "less_than_equal": "use {le} or less",
    "too_long": "use at most {max_length} items, not {actual_length}",
    "too_short": "use at least {min_length} items, not {actual_length}",
    "int_type": "use a whole number",
    "bool_type": "use true or false",
    "string_type": "use a string",
    "model_type": "use an object with named fields",
    "model_attributes_type": "use an object with named fields",
}


def _explained(problem: ErrorDetails) -> SpecError:
    """What pydantic says, in the words of this project."""
    context = problem.get("ctx") or {}
    remedy = _REMEDIES.get(problem["type"])
    text = remedy.format(**context) if remedy else problem["msg"]
    value = None if problem["type"] == "missing" else problem["input"]
    if problem["type"] == "enum" and value is False and "'Off'" in text:
        text = f"{text}; YAML reads Off without quotes as false: write Disabled"
    return SpecError(_path(problem["loc"]), value, text)


def _path(location: tuple[int | str, ...]) -> str:
    path = "spec"
    for part in location:
        if part == "[key]":
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path
