"""Everything that vLLM would reject, or silently do otherwise, found before a pod exists. Called by `adapter`."""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Method, Speculator
from speculative_operator.engines.base import Refusal
from speculative_operator.engines.matrix import refusing
from speculative_operator.engines.matrix.vendors import platform_of
from speculative_operator.engines.matrix.version import Version, parse
from speculative_operator.engines.shared import checks as shared
from speculative_operator.engines.shared import sources
from speculative_operator.engines.vllm import batching, capability, options, weights
from speculative_operator.engines.vllm.capability import METHODS
from speculative_operator.engines.vllm.environment import TABLE_VARIABLE
from speculative_operator.engines.vllm.plan import RUNNER_VARIABLE, plan, user_runner
from speculative_operator.engines.vllm.user_arguments import FLAGS

_UNSUPPORTED, _INVALID = Reason.UNSUPPORTED_BY_ENGINE, Reason.SPEC_INVALID


def refusals(spec: DeploymentSpec) -> tuple[Refusal, ...]:
    """In the order of the spec's fields; empty when the spec can be served."""
    version = parse(spec.engine.version)
    if version is None:
        return (shared.unreadable_version(spec),)
    return tuple(_all(spec, version))


def _all(spec: DeploymentSpec, version: Version) -> Iterator[Refusal]:
    yield from sources.refusals(spec)
    yield from weights.refusals(spec)
    yield from shared.parallelism(spec)
    yield from batching.refusals(spec, plan(spec))
    if version < capability.OLDEST:
        yield shared.too_old(version, capability.OLDEST, "lacks metrics that the operator reads")
    else:
        yield from refusing.platform(spec, version)
    if spec.speculator is not None and spec.speculates:
        yield from _speculator(spec, spec.speculator, version)
        yield from shared.static(spec, _one_k(spec))
    yield from FLAGS.refusals(spec)
    yield from _environment(spec)


def _speculator(spec: DeploymentSpec, speculator: Speculator, version: Version) -> Iterator[Refusal]:
    facts = METHODS[speculator.method]
    if version >= capability.OLDEST:
        yield from _runner(spec, version)
        yield from refusing.method(spec, version, capability.CELLS, plan(spec).runner)
    if facts.refused:
        return
    yield from shared.weights(speculator, needed=facts.needs_source)
    yield from options.refusals(spec, speculator)
    yield from _draft_parallelism(spec, speculator)


def _runner(spec: DeploymentSpec, version: Version) -> Iterator[Refusal]:
    """A runner asked for by the user that the platform does not have; the rows refuse what a method lacks."""
    row = platform_of(spec.engine.type, spec.accelerator.vendor, version)
    chosen = user_runner(spec)
    if row is not None and chosen is not None and row.runner not in ("", chosen):
        message = (
            f"engine.env {RUNNER_VARIABLE} asks for {chosen}, but on {row.vendor} only {row.runner} serves; remove it"
        )
        yield Refusal("spec.engine.env", _UNSUPPORTED, message)


def _draft_parallelism(spec: DeploymentSpec, speculator: Speculator) -> Iterator[Refusal]:
    """Draft tensor parallelism is 1 or the verifier's; a draft model follows the verifier."""
    size, whole = speculator.tensor_parallel_size, spec.verifier.tensor_parallel_size
    if size is None or size == whole:
        return
    if speculator.method is Method.DRAFT_MODEL or size != 1:
        allowed = str(whole) if speculator.method is Method.DRAFT_MODEL else f"1 or {whole}"
        message = (
            f"speculator.tensorParallelSize {size}: vLLM takes {allowed} for method {speculator.method} beside a "
            f"verifier of {whole}; set {whole} or remove it"
        )
        yield Refusal("spec.speculator.tensorParallelSize", _UNSUPPORTED, message)


def _one_k(spec: DeploymentSpec) -> str:
    if spec.speculator is None or plan(spec).actuator is not Actuator.RESTART:
        return ""
    return (
        f"with method {spec.speculator.method}, engine.version {spec.engine.version} and "
        f"dataParallelSize {spec.verifier.data_parallel_size} the engine keeps one K"
    )


def _environment(spec: DeploymentSpec) -> Iterator[Refusal]:
    for variable in spec.engine.env:
        name = variable.get("name")
        if name == TABLE_VARIABLE:
            message = f"engine.env sets {name}, which the operator sets itself; remove it"
            yield Refusal("spec.engine.env", _INVALID, message)
        elif name == "PYTHONPATH" and "valueFrom" in variable:
            message = "engine.env sets PYTHONPATH by valueFrom, which the operator cannot extend; set a plain value"
            yield Refusal("spec.engine.env", _INVALID, message)
