"""Everything that vLLM would reject, or silently do otherwise, found before a pod exists; and what a user should know
of a spec that it takes. Called by `adapter`."""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Mode, Speculator
from speculative_operator.domain.table import Actuator
from speculative_operator.engines import images
from speculative_operator.engines.base import Notice, Refusal
from speculative_operator.engines.matrix import refusing
from speculative_operator.engines.matrix.cell import Version, parse_version, show_version
from speculative_operator.engines.matrix.vendors import platform_of
from speculative_operator.engines.shared import checks as shared
from speculative_operator.engines.shared.arguments import source_refusals
from speculative_operator.engines.vllm import arguments, capability, graphs
from speculative_operator.engines.vllm.capability import LIVE_PROVEN, OLDEST, UNPROVEN
from speculative_operator.engines.vllm.config_checks import adaptive_refusals, options_refusals
from speculative_operator.engines.vllm.graphs import FLAGS
from speculative_operator.engines.vllm.plan import RUNNER_VARIABLE, plan, user_runner

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
        refused = refusing.why(refusing.question_of(spec, version, plan(spec).runner), capability.ROWS)
        yield from (refused,) if refused is not None else ()
    method = speculator.method
    yield from shared.weights(speculator, needed=not method.draft_free and method not in arguments.IN_VERIFIER)
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
    yield from options_refusals(speculator)
    yield from adaptive_refusals(spec, speculator, plan(spec))


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
