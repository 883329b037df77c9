"""What an engine's platform and rows refuse, with field, value and remedy. Called by every adapter's checks.

yield from refusing.platform(spec, version)   # engine, release and accelerators
refusing.why(question_of(spec, version))     # the row of the method
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Method, Speculator
from speculative_operator.engines.base import Refusal
from speculative_operator.engines.matrix.rows import (
    CELLS,
    PLATFORMS,
    Question,
    Variant,
    Version,
    find,
    platform_of,
    show_version,
    vendors_of,
)

_UNSUPPORTED = Reason.UNSUPPORTED_BY_ENGINE
METHOD = "spec.speculator.method"
"""Field of refusals for what a release cannot draft with."""


def variant_of(speculator: Speculator) -> Variant:
    """The form of the method that the spec asks for. `dflash` and `dspark` draft in parallel anyway: plain."""
    if speculator.heterogeneous_vocabulary:
        return Variant.HETEROGENEOUS
    parallel = speculator.parallel_drafting and speculator.method not in (Method.DFLASH, Method.DSPARK)
    return Variant.PARALLEL if parallel else Variant.PLAIN


def question_of(spec: DeploymentSpec, version: Version, runner: str = "") -> Question:
    """The question to the matrix for `spec`. Raises ValueError for a spec without a speculator."""
    if spec.speculator is None:
        raise ValueError(f"{spec.name} has no speculator: nothing to ask")
    verifier = spec.verifier
    return Question(
        engine=spec.engine.type,
        version=version,
        method=spec.speculator.method,
        runner=runner,
        variant=variant_of(spec.speculator),
        vendor=spec.accelerator.vendor,
        data_parallel_size=verifier.data_parallel_size,
        pipeline_parallel_size=verifier.pipeline_parallel_size,
    )


def platform(spec: DeploymentSpec, version: Version) -> Iterator[Refusal]:
    """Why the engine's release cannot serve `spec` on its accelerators; nothing where it can. Images aside."""
    row = platform_of(spec.engine.type, spec.accelerator.vendor, version)
    if row is None:
        yield _elsewhere(spec, version)
        return
    if row.newest is not None and version[:2] > row.newest[:2] and not spec.engine.image:
        message = (
            f"engine.version {show_version(version)}: {row.plugin}, which runs {spec.engine.type} on {row.vendor}, is "
            f"not known for it; set engine.version {show_version(row.newest)}, or set engine.image to an image "
            "that has it"
        )
        yield Refusal("spec.engine.version", _UNSUPPORTED, message)
    if spec.verifier.pipeline_parallel_size > 1 and not row.pipeline:
        message = (
            f"verifier.pipelineParallelSize {spec.verifier.pipeline_parallel_size}: {row.plugin} has no pipeline "
            "parallelism; set it to 1 and raise verifier.tensorParallelSize"
        )
        yield Refusal("spec.verifier.pipelineParallelSize", _UNSUPPORTED, message)
    if spec.verifier.lora is not None and not row.lora:
        message = (
            f"verifier.lora: {row.plugin} serves no adapters; remove verifier.lora, or serve them on other accelerators"
        )
        yield Refusal("spec.verifier.lora", _UNSUPPORTED, message)


def why(question: Question) -> Refusal | None:
    """Why the rows refuse the question; None where a row serves it, or where the engine does not run at all."""
    row = platform_of(question.engine, question.vendor, question.version)
    if row is None:
        return None
    if not row.has(question):
        where = f"{question.engine} {show_version(question.version)} on {question.vendor}"
        return Refusal(METHOD, _UNSUPPORTED, f"speculator.method {_method_text(question)}, {where}: {row.remedy}")
    return None if find(question) is not None else Refusal(METHOD, _UNSUPPORTED, _no_row(question))


def _elsewhere(spec: DeploymentSpec, version: Version) -> Refusal:
    engine, vendor = spec.engine.type, spec.accelerator.vendor
    rows = [row for row in PLATFORMS if row.engine is engine and row.vendor is vendor]
    if rows:
        known = show_version(rows[-1].newest or rows[-1].since)
        message = f"engine.version {show_version(version)}: not known to run on {vendor}; set engine.version {known}"
        return Refusal("spec.engine.version", _UNSUPPORTED, message)
    where = ", ".join(one for one in vendors_of(engine) if one is not Vendor.OTHER)
    instead = [kind for kind in EngineType if vendor in vendors_of(kind)]
    message = (
        f"accelerator.resource {spec.accelerator.resource} ({vendor}): {engine} does not run there, only on {where}"
        + (f"; set engine.type: {instead[0]}, or other accelerators" if instead else "; use other accelerators")
    )
    return Refusal("spec.accelerator.resource", _UNSUPPORTED, message)


def _no_row(question: Question) -> str:
    """Why no row answers: engine, form, layout, runner or release lacks the method; each has its own remedy."""
    engine, told = question.engine, f"speculator.method {_method_text(question)}"
    cells = CELLS[engine]
    formed = [cell for cell in cells if (cell.method, cell.variant) == (question.method, question.variant)]
    if not formed:
        known = [method for method in Method if any(cell.method is method for cell in cells)]
        form = f"remove speculator.{question.variant}, or " if question.variant and question.method in known else ""
        return f"{told}: {engine} does not have it; {form}use one of {', '.join(known)}, or engine.type: vLLM"
    release = show_version(question.version)
    others = {cell.runner for cell in formed} - {question.runner}
    if any(find(replace(question, runner=one)) is not None for one in others):
        return (
            f"{told}: the {question.runner} model runner of {engine} {release} does not have it; remove "
            "VLLM_USE_V2_MODEL_RUNNER from engine.env"
        )
    if find(replace(question, pipeline_parallel_size=1)) is not None:
        later = [
            cell.pipelined_since for cell in formed if cell.pipelined_since and not cell.pipelined(question.version)
        ]
        newer = f", or use engine.version {show_version(min(later))} or newer" if later else ""
        size = question.pipeline_parallel_size
        return (
            f"{told}: {engine} {release} does not draft so with verifier.pipelineParallelSize {size}; set "
            f"verifier.pipelineParallelSize: 1, and tensorParallelSize {size} times as large{newer}"
        )
    first = show_version(min(cell.since for cell in formed))
    return (
        f"{told} needs engine.version {first} or newer, not {release}; set engine.version and "
        "engine.image, or choose another method"
    )


def _method_text(question: Question) -> str:
    return f"{question.method} with {question.variant}" if question.variant else f"{question.method}"
