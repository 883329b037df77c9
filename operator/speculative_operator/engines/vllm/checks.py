"""Everything that vLLM would reject, or silently do otherwise, found before a pod exists; and what a user should know
of a spec that it takes. Called by `adapter`.

Adaptive verification: in each step vLLM picks, of all drafts of all requests, those whose estimated acceptance is worth
their time, and verifies no others. Its conditions are those of vLLM 0.32 config/vllm.py
(`_validate_adaptive_verification`, `_get_v1_model_runner_unsupported_features`), config/speculative.py and
v1/worker/gpu/spec_decode/adaptive_verification.py (`maybe_create_adaptive_verification_manager`).
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Method, Mode, Speculator
from speculative_operator.domain.table import Actuator
from speculative_operator.domain.vllm import FIELDS_OF_KEYS
from speculative_operator.engines import images
from speculative_operator.engines.base import Notice, Refusal
from speculative_operator.engines.matrix import refusing
from speculative_operator.engines.matrix.rows import Variant, Version, parse_version, platform_of, show_version
from speculative_operator.engines.shared import checks as shared
from speculative_operator.engines.shared.arguments import source_refusals
from speculative_operator.engines.vllm import arguments, graphs
from speculative_operator.engines.vllm.flags import FLAGS
from speculative_operator.engines.vllm.graphs import capture_sizes
from speculative_operator.engines.vllm.plan import (
    LIVE_PROVEN,
    OLDEST,
    RUNNER_VARIABLE,
    UNPROVEN,
    Plan,
    Runner,
    plan,
    user_runner,
)
from speculative_operator.physics.catalog import accelerator_of

_UNSUPPORTED, _INVALID = Reason.UNSUPPORTED_BY_ENGINE, Reason.SPEC_INVALID


def refusals(spec: DeploymentSpec) -> tuple[Refusal, ...]:
    """Why vLLM cannot serve `spec`, in the order of its fields; empty when it can."""
    version = parse_version(spec.engine.version)
    if version is None:
        return (shared.unreadable_version(spec),)
    return tuple(_all(spec, version))


def notices(spec: DeploymentSpec) -> tuple[Notice, ...]:
    """What a user should know of `spec`; empty without a speculator and with one K (mode Static, no schedule)."""
    version = parse_version(spec.engine.version)
    fixed = spec.speculation.mode is Mode.STATIC and spec.speculation.schedule is None
    if version is None or spec.speculator is None or not spec.speculates or fixed:
        return ()
    return tuple(_notices(spec))


def _all(spec: DeploymentSpec, version: Version) -> Iterator[Refusal]:
    yield from source_refusals(spec)
    yield from arguments.weights_refusals(spec)
    yield from graphs.budget_refusals(spec, plan(spec))
    if version < OLDEST:
        yield shared.too_old(version, OLDEST, "lacks metrics that the operator reads")
    else:
        yield from refusing.platform(spec, version)
    if spec.speculator is not None and spec.speculates:
        yield from _speculator(spec, spec.speculator, version)
        yield from shared.static(spec, _one_k(spec))
    yield from FLAGS.refusals(spec)
    yield from _environment(spec)
    if (image := images.refusal(spec)) is not None:
        yield image


def _speculator(spec: DeploymentSpec, speculator: Speculator, version: Version) -> Iterator[Refusal]:
    if version >= OLDEST:
        yield from _runner(spec, version)
        refused = refusing.why(refusing.question_of(spec, version, plan(spec).runner))
        yield from (refused,) if refused is not None else ()
    yield from _options(spec, speculator)


def _options(spec: DeploymentSpec, speculator: Speculator) -> Iterator[Refusal]:
    """Refusals of the speculator's options, in the order of its fields."""
    yield from _own_name(spec, speculator)
    if speculator.parallel_drafting and speculator.heterogeneous_vocabulary:
        message = (
            "speculator.heterogeneousVocabulary true with parallelDrafting true: speculators that draft in one pass "
            "are trained for one vocabulary; remove one of the two"
        )
        yield Refusal("spec.speculator.heterogeneousVocabulary", _INVALID, message)
    yield from _key_refusals(speculator)
    yield from _adaptive_refusals(spec, speculator, plan(spec))


def _own_name(spec: DeploymentSpec, speculator: Speculator) -> Iterator[Refusal]:
    source, verifier = speculator.source, spec.verifier.source
    if (
        source is None
        or source.uri != verifier.uri
        or speculator.method in (*arguments.OWN_NAME, *arguments.IN_VERIFIER)
    ):
        return
    named = ", ".join(arguments.OWN_NAME)
    remedy = f"checkpoints that name their verifier have method {named}; set another speculator, or that method"
    message = f"speculator.model {source.uri} with method {speculator.method} is the verifier: {remedy}"
    yield Refusal("spec.speculator.model", _INVALID, message)


def _runner(spec: DeploymentSpec, version: Version) -> Iterator[Refusal]:
    """Refuses a runner of the user's that the platform lacks; the rows refuse a runner that lacks the method."""
    row = platform_of(spec.engine.type, spec.accelerator.vendor, version)
    chosen = user_runner(spec)
    if row is not None and chosen is not None and row.runner not in ("", chosen):
        message = (
            f"engine.env {RUNNER_VARIABLE} asks for {chosen}, but on {row.vendor} only {row.runner} serves; remove it"
        )
        yield Refusal("spec.engine.env", _UNSUPPORTED, message)


def _one_k(spec: DeploymentSpec) -> str:
    if spec.speculator is None or plan(spec).actuator is not Actuator.RESTART:
        return ""
    return (
        f"with method {spec.speculator.method}, engine.version {spec.engine.version} and "
        f"dataParallelSize {spec.verifier.data_parallel_size} the engine keeps one K"
    )


def _environment(spec: DeploymentSpec) -> Iterator[Refusal]:
    for variable in spec.engine.env:
        if variable.get("name") == "PYTHONPATH" and "valueFrom" in variable:
            message = "engine.env sets PYTHONPATH by valueFrom, which the operator cannot extend; set a plain value"
            yield Refusal("spec.engine.env", _INVALID, message)


def _notices(spec: DeploymentSpec) -> Iterator[Notice]:
    planned = plan(spec)
    release = show_version(planned.version)
    row = platform_of(EngineType.VLLM, spec.accelerator.vendor, planned.version)
    if planned.actuator is Actuator.LIVE and planned.version >= UNPROVEN:
        proven = " to ".join(f"{major}.{minor}" for major, minor in (LIVE_PROVEN[0], LIVE_PROVEN[-1]))
        message = (
            f"engine.version {release}: live changes of K were tested with {proven}, not with this release; the "
            "plug-in checks itself when a pod starts, and leaves the engine alone if it lacks something"
        )
        yield Notice(Reason.LIVE_UNPROVEN, message)
    elif planned.actuator is Actuator.RESTART and row is not None and row.actuator is Actuator.RESTART:
        message = (
            f"{row.plugin} on {row.vendor} drafts with one constant K, which changes by rollouts and cannot follow the "
            "load within a pod"
        )
        yield Notice(Reason.LIVE_UNPROVEN, message)


ADAPTIVE_SINCE: Version = (0, 32, 0)
"""First release whose speculators other than DSpark estimate what is accepted, so that their drafts can be trimmed."""
_ADAPTIVE = "spec.speculation.adaptiveVerification"
_GRAPHLESS = (Vendor.CPU, Vendor.INTEL_GPU, Vendor.TPU, Vendor.GAUDI, Vendor.NEURON)
_FLASH_ATTENTION_2 = ("A100", "A10", "A30", "A40", "L4", "RTX-A6000", "RTX-3090", "RTX-4090", "V100")
"""Beginnings of the names of accelerators on which vLLM's attention has no graphs for steps of unequal lengths: that
takes FlashAttention 3 or 4, or Triton (vLLM 0.32 v1/attention/backends)."""
_ATTENTION_FLAGS = ("--attention-backend", "--attention-config", "-ac")
_OF_VARIANT = {
    Variant.PARALLEL: "remove speculator.parallelDrafting, or adaptiveVerification",
    Variant.HETEROGENEOUS: "remove speculator.heterogeneousVocabulary, or adaptiveVerification",
}


def _key_refusals(speculator: Speculator) -> Iterator[Refusal]:
    """Refuses keys that a field of the spec sets."""
    for key, value in speculator.options.items():
        if (field := FIELDS_OF_KEYS.get(key)) is not None:
            message = f"speculator.options has {key} {value!r}: remove it and set {field} instead"
            yield Refusal("spec.speculator.options", Reason.SPEC_INVALID, message)


def _adaptive_refusals(spec: DeploymentSpec, speculator: Speculator, planned: Plan) -> Iterator[Refusal]:
    """Refuses adaptive verification where vLLM would not start with it; nothing where the spec does not ask for it."""
    conditions = _adaptive_conditions(spec, speculator, planned) if spec.speculation.adaptive_verification else ()
    for hinders, why in conditions:
        if hinders:
            yield Refusal(_ADAPTIVE, _UNSUPPORTED, f"speculation.adaptiveVerification true {why}")


def _adaptive_conditions(spec: DeploymentSpec, speculator: Speculator, planned: Plan) -> Iterator[tuple[bool, str]]:
    """Yield whether something hinders adaptive verification, and what, with its remedy."""
    since, release, vendor = show_version(ADAPTIVE_SINCE), show_version(planned.version), spec.accelerator.vendor
    if planned.version < ADAPTIVE_SINCE:
        yield True, f"needs engine.version {since} or newer, not {release}; set it, or remove this"
        return
    yield vendor in _GRAPHLESS, f"needs full CUDA graphs, which {vendor} accelerators have not; remove this"
    eager = vendor in (Vendor.NVIDIA, Vendor.AMD) and not capture_sizes(spec, planned)
    yield eager, "needs full CUDA graphs, which engine.args turn off; remove that argument, or this"
    found = accelerator_of(spec)
    chosen = any(FLAGS.name(argument) in _ATTENTION_FLAGS for argument in spec.engine.args)
    product = found.name if found is not None and not chosen else ""
    yield (
        product.startswith(_FLASH_ATTENTION_2),
        f"needs attention with CUDA graphs for steps of unequal lengths, which vLLM's own choice on {product}, "
        "FlashAttention 2, has not; add --attention-backend=TRITON_ATTN to engine.args, or remove this",
    )
    remedy = f"remove {RUNNER_VARIABLE} from engine.env" if user_runner(spec) is Runner.V1 else "remove this"
    remedy = _OF_VARIANT.get(planned.variant, remedy)
    on_v1 = f"needs vLLM's V2 model runner, and V1 serves {speculator.method} here; {remedy}"
    yield planned.runner is not Runner.V2, on_v1
    yield spec.verifier.lora is not None, "does not work with the adapters of verifier.lora; remove one of the two"
    size = spec.verifier.pipeline_parallel_size
    yield size > 1, f"does not work with verifier.pipelineParallelSize {size}; set 1, or remove this"
    yield (
        bool(speculator.options.get("use_local_argmax_reduction")) and speculator.method is not Method.DSPARK,
        "needs the logits that speculator.options.use_local_argmax_reduction omits; remove one of the two",
    )
