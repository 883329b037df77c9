"""The constraints of `rules` again, in Python: for objects that were stored before a rule existed, or past the API
server.

`convert` runs them on every object, so that what reaches the tuner and the engines is always sound. Each check yields
what is wrong as (field, value, remedy); tests hold both forms to one table of good and bad objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from speculative_operator.api import pod, rules
from speculative_operator.api.pod import EnvVar
from speculative_operator.api.targets import (
    CANARY_OF_ITSELF,
    GROUP_NAME_LIMIT,
    OF_KSERVE,
    ROUTE_OF_KSERVE,
    TLS_REMEDY,
    Route,
)
from speculative_operator.api.v1alpha1 import Spec, Speculation, Speculator, Verifier
from speculative_operator.api.weights import Cache
from speculative_operator.api.wire import SpecError, Wire
from speculative_operator.domain import names
from speculative_operator.domain.spec import EngineType, Method, Mode, OffPolicy, Target, Tuning
from speculative_operator.domain.vllm import ADAPTIVE, IN_ONE_PASS

Problem = tuple[str, object, str]
Check = Callable[[Spec], Iterator[Problem]]


def check_name(name: str) -> None:
    """Raises SpecError for a name that children cannot carry."""
    if len(name) > rules.NAME_LIMIT or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        remedy = f"use at most {rules.NAME_LIMIT} lower-case letters, digits and -, beginning with a letter"
        raise SpecError("metadata.name", name, f"{remedy}, because Services carry the name")


def check_group_name(name: str, target: Target) -> None:
    """Raises SpecError for a name that the pods of several nodes cannot carry."""
    if target is Target.LEADER_WORKER_SET and len(name) > GROUP_NAME_LIMIT:
        remedy = f"use at most {GROUP_NAME_LIMIT} characters with target {target}: labels of the pods carry the name"
        raise SpecError("metadata.name", name, remedy)


def check_canary(name: str, route: Route | None) -> None:
    """Raises SpecError for an object that is its own canary."""
    if route is not None and route.canary is not None and route.canary.name == name:
        raise SpecError("spec.route.canary.name", name, CANARY_OF_ITSELF)


def check(spec: Spec) -> None:
    """Raises SpecError for the first constraint that the spec breaks."""
    for find in CHECKS:
        for field, value, remedy in find(spec):
            raise SpecError(f"spec.{field}", value, remedy)


def _revisions(spec: Spec) -> Iterator[Problem]:
    parts: tuple[tuple[str, Verifier | Speculator | None], ...] = (
        ("verifier", spec.verifier),
        ("speculator", spec.speculator),
    )
    for name, part in parts:
        if part is None or part.revision is None:
            continue
        if part.model is None:
            yield f"{name}.revision", part.revision, "set model, or remove revision"
        elif not part.model.startswith("hf://"):
            yield f"{name}.revision", part.revision, "remove revision, which applies to hf:// only"


def _auto(spec: Spec) -> Iterator[Problem]:
    speculator = spec.speculator
    if speculator is None:
        return
    if not speculator.auto:
        if speculator.method is None:
            yield "speculator.method", None, "set auto: true to let the operator pick a speculator, or set method"
        return
    if speculator.method is not None:
        yield "speculator.method", speculator.method, "auto is true: remove one of the two"
    for name, field in Speculator.model_fields.items():
        value = getattr(speculator, name)
        if name not in ("auto", "method") and value is not None:
            shown = value.model_dump(exclude_none=True) if isinstance(value, Wire) else value
            yield f"speculator.{field.alias}", shown, "auto is true and the catalogue sets this: remove it"


def _drafting_weights(spec: Spec) -> Iterator[Problem]:
    speculator = spec.speculator
    if speculator is None or speculator.method is None:
        return
    method, model = speculator.method, speculator.model
    if method in rules.OWN_WEIGHTS and model is None:
        remedy = f"{method} needs weights of its own: set model, such as hf://ORGANISATION/MODEL"
        yield "speculator.model", None, remedy
    if model is not None and model == spec.verifier.model:
        if method is Method.DRAFT_MODEL:
            yield "speculator.model", model, "set a smaller model than the verifier"
        if speculator.revision not in (None, spec.verifier.revision):
            remedy = "speculator and verifier are one checkpoint: set verifier.revision instead, and remove this"
            yield "speculator.revision", speculator.revision, remedy
    if method.draft_free:
        weights = (
            ("model", model),
            ("tensorParallelSize", speculator.tensor_parallel_size),
            ("quantization", speculator.quantization),
        )
        for name, value in weights:
            if value is not None:
                yield f"speculator.{name}", value, f"{method} drafts without weights: remove {name}"


def _drafting_options(spec: Spec) -> Iterator[Problem]:
    speculator = spec.speculator
    if speculator is None or speculator.method is None:
        return
    method = speculator.method
    if speculator.parallel_drafting and method not in IN_ONE_PASS:
        remedy = f"remove it, because it applies to {rules.phrase(IN_ONE_PASS)} only"
        yield "speculator.parallelDrafting", True, remedy
    if speculator.heterogeneous_vocabulary and method is not Method.DRAFT_MODEL:
        yield "speculator.heterogeneousVocabulary", True, f"remove it, because it applies to {Method.DRAFT_MODEL} only"
    lookup = speculator.prompt_lookup
    if lookup is None:
        return
    if method not in rules.LOOKS_UP:
        shown = lookup.model_dump(exclude_none=True)
        yield "speculator.promptLookup", shown, f"remove it, because it applies to {rules.phrase(rules.LOOKS_UP)} only"
    if lookup.min is not None and lookup.max is not None and lookup.min > lookup.max:
        yield "speculator.promptLookup.min", lookup.min, f"write at most max ({lookup.max}), or raise max"


def _of_vllm(spec: Spec) -> Iterator[Problem]:
    engine, speculator, adaptive = spec.engine.type, spec.speculator, spec.speculation.adaptive_verification
    method = speculator.method if speculator is not None else None
    field, only = "speculation.adaptiveVerification", f"remove it, because it applies to {EngineType.VLLM} only"
    if engine is not EngineType.VLLM and adaptive:
        yield field, True, f"engine.type is {engine}: {only}"
    if engine is not EngineType.VLLM and speculator is not None and speculator.options is not None:
        remedy = f"engine.type is {engine}: {only}; use engine.args for further arguments of this engine"
        yield "speculator.options", speculator.options, remedy
    if engine is EngineType.VLLM and adaptive and method not in (None, *ADAPTIVE):
        remedy = f"remove it, because it applies to {rules.phrase(ADAPTIVE)} only"
        yield field, True, f"speculator.method is {method}: {remedy}"


def _drafting_parallelism(spec: Spec) -> Iterator[Problem]:
    field = "speculator.tensorParallelSize"
    given = spec.speculator.tensor_parallel_size if spec.speculator else None
    if given is None or spec.speculator is None:
        return
    verifiers = spec.verifier.tensor_parallel_size
    if given not in (1, verifiers):
        yield field, given, f"write 1 or verifier.tensorParallelSize ({verifiers})"
    elif spec.speculator.method is Method.DRAFT_MODEL and given != verifiers:
        yield field, given, f"method draft_model needs the verifier's: write {verifiers}, or remove it"


def _tokens(spec: Spec) -> Iterator[Problem]:
    field, speculation = "speculation.numSpeculativeTokens", spec.speculation
    k, most = speculation.num_speculative_tokens, speculation.max_speculative_tokens
    if k == 0:
        yield field, k, "write 1 or more, or set mode: Disabled to serve without drafts"
    if k is not None and k > most:
        yield field, k, f"write at most maxSpeculativeTokens ({most}), or raise maxSpeculativeTokens"
    if speculation.mode is Mode.STATIC and spec.speculator is not None and k is None and not speculation.schedule:
        yield field, None, "mode is Static: set it, or set a schedule"


def _schedule(spec: Spec) -> Iterator[Problem]:
    field, speculation = "speculation.schedule", spec.speculation
    rows = speculation.schedule
    if not rows:
        return
    if speculation.mode is not Mode.STATIC:
        yield field, rows, "set mode: Static, or remove schedule"
    if spec.engine.type is EngineType.VLLM:
        yield from ((field, rows, f"{why}: {_ONE_K}") for why in _without_table(spec))
    yield from ((field, value, remedy) for value, remedy in _bands(speculation))


_ONE_K = "set speculation.numSpeculativeTokens instead"


def _without_table(spec: Spec) -> Iterator[str]:
    """Why vLLM follows no schedule. Other engines' rows of the capability matrix say it for them."""
    if spec.speculator is not None and spec.speculator.method in rules.NO_TABLE:
        yield f"K of {spec.speculator.method} is fixed when vLLM starts"
    if spec.verifier.data_parallel_size > 1:
        yield "vLLM ignores schedules under data parallelism"


def _bands(speculation: Speculation) -> Iterator[tuple[object, str]]:
    rows = speculation.schedule or ()
    expected = 1
    for first, last, k in rows:
        band = [first, last, k]
        if first != expected:
            join = (
                "start the first row at 1" if expected == 1 else "start each row one above the end of the previous row"
            )
            yield band, join
        if last < first:
            yield band, "write [first, last, K]"
        if k > speculation.max_speculative_tokens:
            yield (
                band,
                f"write a K of at most maxSpeculativeTokens ({speculation.max_speculative_tokens}), or raise "
                "maxSpeculativeTokens",
            )
        if k == 0 and speculation.off_policy is OffPolicy.NEVER:
            yield band, "set its K to 1 or more, or set offPolicy: Skip"
        expected = last + 1
    if all(row[2] == 0 for row in rows):
        yield rows, "set one K to 1 or more, or set mode: Disabled"


def _engine(spec: Spec) -> Iterator[Problem]:
    engine = spec.engine
    if engine.type is EngineType.VLLM:
        for argument in engine.args or ():
            if _flag(argument) in rules.RESERVED_FLAGS:
                yield "engine.args", argument, "remove it and set the field of the spec instead"
    yield from _environment("engine.env", engine.env)


def _flag(argument: str) -> str:
    return argument.partition("=")[0].partition(".")[0].replace("_", "-")


def _weights(spec: Spec) -> Iterator[Problem]:
    weights = spec.weights
    if weights is None:
        return
    if weights.cache is not None:
        yield from _cache(weights.cache)
    yield from _environment("weights.env", weights.env)


def _cache(cache: Cache) -> Iterator[Problem]:
    of_claim = any((cache.claim_name, cache.size, cache.storage_class_name, cache.access_mode))
    if cache.size is None:
        exists = "size is not set: set size to create a claim, or remove this"
        if not (cache.claim_name or cache.node_path or cache.empty_dir):
            remedy = "set claimName to an existing claim, or set size to create one"
            yield "weights.cache.size", None, remedy
        if cache.storage_class_name is not None:
            yield "weights.cache.storageClassName", cache.storage_class_name, exists
        if cache.access_mode is not None:
            yield "weights.cache.accessMode", str(cache.access_mode), exists
    if cache.node_path is not None and (of_claim or cache.empty_dir is not None):
        yield "weights.cache.nodePath", cache.node_path, "a claim or emptyDir is set too: keep one of the three"
    if cache.empty_dir is not None and of_claim:
        yield "weights.cache.emptyDir", cache.empty_dir.size_limit, "a claim is set too: keep one of the two"
    if cache.empty_dir is not None and cache.collect:
        yield "weights.cache.collect", True, "emptyDir is set: remove collect, an emptyDir is deleted with its pod"
    if cache.reserve_percent is not None and cache.node_path is None:
        remedy = "nodePath is not set: remove it, because it applies to disks of nodes only"
        yield "weights.cache.reservePercent", cache.reserve_percent, remedy


def _environment(path: str, variables: tuple[EnvVar, ...] | None) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, variable in enumerate(variables or ()):
        field = f"{path}[{index}]"
        if variable.name in seen:
            yield f"{field}.name", variable.name, "set each variable once"
        seen.add(variable.name)
        yield from _variable(field, variable)


def _variable(field: str, variable: EnvVar) -> Iterator[Problem]:
    source = variable.value_from
    if variable.name.startswith("SPECULATIVE_"):
        yield f"{field}.name", variable.name, "the operator owns names that begin with SPECULATIVE_: use another name"
    if source is None:
        return
    if variable.value is not None:
        yield f"{field}.value", variable.value, "it also has valueFrom: keep one of the two"
    given = [name for name in type(source).model_fields if getattr(source, name) is not None]
    if len(given) != 1:
        options = "configMapKeyRef, secretKeyRef, fieldRef, resourceFieldRef"
        yield f"{field}.valueFrom", given, f"name exactly one of {options}"


def _accelerators(spec: Spec) -> Iterator[Problem]:
    given, needed = spec.accelerator.per_replica, accelerators_needed(spec.verifier)
    if given not in (None, 0, needed):
        product = "the product of the verifier's tensorParallelSize, pipelineParallelSize and dataParallelSize"
        yield "accelerator.perReplica", given, f"write {needed}, {product}, or remove it"


def accelerators_needed(verifier: Verifier) -> int:
    """Accelerators of one replica."""
    return verifier.tensor_parallel_size * verifier.pipeline_parallel_size * verifier.data_parallel_size


def _rollout(spec: Spec) -> Iterator[Problem]:
    if spec.rollout.window is not None and spec.rollout.tuning is not Tuning.INTERRUPT:
        remedy = "set tuning: Interrupt, or remove window, which has no effect without it"
        yield "rollout.window", spec.rollout.window, remedy


def _keys(spec: Spec) -> Iterator[Problem]:
    metadata = spec.template.metadata if spec.template else None
    if metadata is None:
        return
    for key in metadata.labels or ():
        if key.startswith(f"{names.GROUP}/") or key == names.LABEL_MANAGED_BY:
            yield "template.metadata.labels", key, "belongs to the operator, which selects its pods by it: remove it"
    for field, keys in (("labels", metadata.labels), ("annotations", metadata.annotations)):
        for key in keys or ():
            if not re.fullmatch(pod.KEY_PATTERN, key):
                yield f"template.metadata.{field}", key, "write NAME or DOMAIN/NAME"


def _target(spec: Spec) -> Iterator[Problem]:
    if spec.inference_service is not None and spec.target not in OF_KSERVE:
        remedy = f"target is {spec.target}: set target: {' or '.join(OF_KSERVE)}, or remove inferenceService"
        yield "inferenceService", spec.inference_service.model_dump(exclude_none=True), remedy
    certified = spec.target is Target.LLM_INFERENCE_SERVICE and spec.engine.type is EngineType.VLLM
    if spec.inference_service is not None and spec.inference_service.tls is not None and not certified:
        told = f"target is {spec.target} and engine.type {spec.engine.type}: {TLS_REMEDY}"
        yield "inferenceService.tls", spec.inference_service.tls, told
    if spec.route is not None and spec.target in OF_KSERVE:
        yield "route", spec.route.model_dump(exclude_none=True), f"target is {spec.target}: {ROUTE_OF_KSERVE}"


def _nodes(spec: Spec) -> Iterator[Problem]:
    grouped, verifier = spec.target is Target.LEADER_WORKER_SET, spec.verifier
    if spec.nodes is not None and not grouped:
        yield "nodes", spec.nodes, f"target is {spec.target}: set target: {Target.LEADER_WORKER_SET}, or remove nodes"
    elif spec.nodes is None and grouped:
        yield "nodes", None, f"target is {spec.target}: set nodes to the number of nodes of one replica"
    elif spec.nodes is not None:
        ranks = verifier.tensor_parallel_size * verifier.pipeline_parallel_size
        if ranks % spec.nodes:
            product = "the product of the verifier's tensorParallelSize and pipelineParallelSize"
            yield "nodes", spec.nodes, f"write a number that divides {ranks}, {product}"
    if grouped and verifier.data_parallel_size > 1:
        remedy = f"target is {spec.target}: remove it, and raise replicas instead"
        yield "verifier.dataParallelSize", verifier.data_parallel_size, remedy


CHECKS: tuple[Check, ...] = (
    _target,
    _nodes,
    _auto,
    _revisions,
    _drafting_weights,
    _drafting_options,
    _of_vllm,
    _drafting_parallelism,
    _tokens,
    _schedule,
    _engine,
    _weights,
    _accelerators,
    _rollout,
    _keys,
)
