"""What vLLM's releases can turn for each method on each model runner: rows of the capability matrix.

`CELLS` is the product of `forms.FORMS` and `forms.RELEASES`. Asked by `plan` and `checks`; `speculative engines` and
docs/engines.md show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.spec import EngineType, Method
from speculative_operator.domain.vendor import Vendor
from speculative_operator.engines.matrix.cell import (
    ALL_VENDORS,
    Cell,
    Extent,
    Figure,
    Proven,
    Question,
    Variant,
    find,
)
from speculative_operator.engines.matrix.vendors import platform_of
from speculative_operator.engines.matrix.version import Version
from speculative_operator.engines.vllm.forms import (
    FORMS,
    OLDEST,
    PIPELINE_SINCE,
    RELEASES,
    SCHEDULE_SINCE,
    SHUTDOWN_TIMEOUT_SINCE,
    V2_SCHEDULE_SINCE,
    Form,
    Release,
    Runner,
)
from speculative_operator.engines.vllm.weights import IN_VERIFIER

__all__ = [
    "CELLS",
    "EMULATED",
    "LIVE_PROVEN",
    "METHODS",
    "OFF_PROVEN",
    "OLDEST",
    "RESTS",
    "SCHEDULE_SINCE",
    "SHUTDOWN_TIMEOUT_SINCE",
    "V2_SCHEDULE_SINCE",
    "MethodFacts",
    "Runner",
    "best_actuator",
    "cell_of",
    "passes_at_zero",
    "runner_under_schedule",
]


def _lines(*proofs: Proven) -> tuple[tuple[int, int], ...]:
    """Release lines on which the V1 runner's K is live, by what the mounted scheduler ran in there."""
    return tuple(
        (0, minor)
        for one in RELEASES
        if one.actuator is Actuator.LIVE and one.runner is Runner.V1 and one.proven in proofs
        for minor in range(one.since[1], (one.before or one.since)[1])
    )


LIVE_PROVEN = _lines(*Proven)
"""Release lines on which the mounted scheduler was proven. The payload holds the same list and is inert elsewhere."""
OFF_PROVEN = _lines(Proven.REAL_ENGINE)
"""Release lines on which workers left the drafter out. The payload's worker holds the same list."""
RESTS = frozenset({Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3})
"""Methods whose drafter a worker of the V1 runner leaves out; the payload holds the same list."""
EMULATED: Version = (0, 32, 0)
"""The release that the emulator imitates; a test holds the rows of this release to it."""

_TRUSTED = frozenset({Figure.ACCEPTED, Figure.PER_POSITION, Figure.DRAFTED, Figure.STEP_TIME})
_REAL = frozenset({Method.DRAFT_MODEL, Method.NGRAM, Method.EAGLE3})
"""Methods whose live changes of K the end-to-end run on the real engine asserts: CPU, V1 runner, one process."""
_MATRIX = frozenset({Method.DRAFT_MODEL, Method.EAGLE3})
"""Methods whose K was changed, and whose drafter was left out, in the real engine of every release that has a build."""
_IN_CLASSES = frozenset({Method.DRAFT_MODEL})
_REAL_SOURCE = "make e2e-vllm: vLLM 0.32.0 on a CPU, V1 runner, one process"
_NO_PIPELINE = "speculation does not work with pipeline parallelism before 0.15.0; use a newer engine.version"
_DEADLOCK = "Under data parallelism the engine drops a schedule; 0.24 to 0.27 take it and may deadlock."


def _cells() -> Iterator[Cell]:
    for form in FORMS:
        for cell in _of_form(form):
            yield from _by_pipeline(_graded(cell))


def _of_form(form: Form) -> Iterator[Cell]:
    base = Cell(
        engine=EngineType.VLLM,
        method=form.method,
        since=form.since,
        actuator=Actuator.NONE if form.refused else Actuator.RESTART,
        source=form.source,
        runner=form.runner,
        variant=form.variant,
        passes_at_zero=0.0,
        block_drafter=form.block,
        metrics=frozenset() if form.refused else _TRUSTED - ({Figure.DRAFTED} if form.diluted else set()),
        refused=form.refused,
        note=form.note,
    )
    if form.refused or not form.scheduled:
        yield base
        return
    for release in RELEASES:
        since = max(release.since, form.since)
        if release.runner is form.runner and (release.before is None or since < release.before):
            yield from _of_release(replace(base, since=since, before=release.before), form, release)


def _of_release(cell: Cell, form: Form, release: Release) -> Iterator[Cell]:
    if release.actuator is Actuator.RESTART:
        yield cell
        return
    live = release.actuator is Actuator.LIVE
    yield replace(
        cell,
        actuator=release.actuator,
        data=Extent.ONE,
        passes_at_zero=form.passes_at_zero,
        follows_k=form.follows,
        metrics=cell.metrics | ({Figure.K_IN_FORCE} if live else set()),
        live=_live(cell, release) if live else None,
        off=_off(cell, release) if live else None,
    )
    yield replace(cell, data=Extent.MANY, note=_DEADLOCK, source="vLLM 0.32.0 config/vllm.py; vllm#44185, vllm#45963")


def _live(cell: Cell, release: Release) -> Proven:
    """How live changes of K were shown."""
    ran = _IN_CLASSES if release.proven is Proven.CLASSES else _REAL if release.since == EMULATED else _MATRIX
    return release.proven if cell.method in ran and cell.variant is Variant.PLAIN else Proven.SOURCE


def _off(cell: Cell, release: Release) -> Proven | None:
    """How it was shown that workers leave the drafter out; None where they do not."""
    if cell.method not in RESTS or release.proven is not Proven.REAL_ENGINE:
        return None
    return Proven.REAL_ENGINE if cell.method in _MATRIX and cell.variant is Variant.PLAIN else Proven.SOURCE


def _graded(cell: Cell) -> tuple[Cell, ...]:
    """The row by how it was shown to be true; split where that is stronger on one vendor's accelerators."""
    if not cell.since <= EMULATED or (cell.before is not None and cell.before <= EMULATED):
        return (cell,)
    if cell.variant is Variant.PARALLEL:
        return (cell,)
    emulated = replace(cell, proven=Proven.EMULATED)
    live_on_v1 = cell.actuator is Actuator.LIVE and cell.runner == Runner.V1 and cell.variant is Variant.PLAIN
    if not live_on_v1 or cell.method not in _REAL:
        return (emulated,)
    on_cpu = frozenset({Vendor.CPU})
    return (
        replace(cell, vendors=on_cpu, proven=Proven.REAL_ENGINE, source=_REAL_SOURCE),
        replace(emulated, vendors=ALL_VENDORS - on_cpu),
    )


def _by_pipeline(cells: tuple[Cell, ...]) -> Iterator[Cell]:
    for cell in cells:
        if cell.since >= PIPELINE_SINCE or cell.refused:
            yield cell
            continue
        early = replace(cell, before=min(cell.before or PIPELINE_SINCE, PIPELINE_SINCE), proven=Proven.SOURCE)
        yield replace(early, pipeline=Extent.ONE)
        yield replace(
            early, pipeline=Extent.MANY, actuator=Actuator.NONE, metrics=frozenset(), refused=_NO_PIPELINE,
            source="vLLM 0.14.0 docs/features/spec_decode.md",
        )  # fmt: skip
        if cell.before is None or cell.before > PIPELINE_SINCE:
            yield replace(cell, since=PIPELINE_SINCE)


CELLS: tuple[Cell, ...] = tuple(_cells())
"""Every row of vLLM."""


@dataclass(frozen=True, slots=True)
class MethodFacts:
    """How the plain form of one method behaves. Empty sets mean: on no runner."""

    since: Version
    retunable: frozenset[Runner]
    """Runners on which K may differ from step to step without harm."""
    follows: frozenset[Runner]
    """Runners on which a smaller K drafts less; on the others only verification shrinks."""
    preferred: Runner
    """Runner under a schedule in 0.32; V2 is the default there and is left to the engine, V1 is asked for."""
    needs_source: bool = True
    passes_at_zero: float = 1.0
    block_drafter: bool = False
    refused: str = ""
    """Remedy, for a method that no runner implements."""


def cell_of(
    method: Method,
    version: Version,
    runner: Runner,
    data_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    vendor: Vendor = Vendor.NVIDIA,
    variant: Variant = Variant.PLAIN,
) -> Cell | None:
    """The row for these circumstances; None where the release does not have the method on that runner."""
    asked = Question(
        EngineType.VLLM, version, method, runner, variant, vendor, data_parallel_size, pipeline_parallel_size
    )
    return find(CELLS, asked)


def runner_under_schedule(
    method: Method, version: Version, vendor: Vendor = Vendor.NVIDIA, variant: Variant = Variant.PLAIN
) -> Runner:
    """The runner that serves `method` best when K may change.

    The gentlest actuator counts first, then that a smaller K drafts less (a block is one pass at every K), then what
    the release takes by itself: V2 from 0.32 on, V1 before.
    """
    platform = platform_of(EngineType.VLLM, vendor, version)
    order = (Runner.V2, Runner.V1) if version >= V2_SCHEDULE_SINCE else (Runner.V1, Runner.V2)
    served: list[tuple[int, bool, Runner]] = []
    for runner in order:
        cell = cell_of(method, version, runner, vendor=vendor, variant=variant)
        if cell is not None and not cell.refused and (platform is None or platform.runner in ("", runner)):
            served.append((_GENTLEST.index(cell.actuator), not (cell.follows_k or cell.block_drafter), runner))
    return min(served, key=lambda one: one[:2])[2] if served else Runner.V1


_GENTLEST = (Actuator.LIVE, Actuator.TABLE, Actuator.RESTART, Actuator.NONE)


def best_actuator(
    method: Method,
    version: Version,
    runner: Runner,
    data_parallel_size: int,
    vendor: Vendor = Vendor.NVIDIA,
    variant: Variant = Variant.PLAIN,
) -> Actuator:
    """The gentlest way to change K: Live, else Table, else Restart, which is also the answer where no row is."""
    cell = cell_of(method, version, runner, data_parallel_size, vendor=vendor, variant=variant)
    if cell is None or cell.refused:
        return Actuator.RESTART
    platform = platform_of(EngineType.VLLM, vendor, version)
    least = platform.actuator if platform is not None else Actuator.RESTART
    return max(cell.actuator, least, key=_GENTLEST.index)


def passes_at_zero(method: Method, runner: Runner, max_k: int) -> float:
    """Draft passes of a step at K = 0 where K may change; `max_k` where the drafter drafts in full whatever K is."""
    cell = cell_of(method, EMULATED, runner)
    return min(cell.passes_at_zero, float(max_k)) if cell is not None else 0.0


def _facts(method: Method) -> MethodFacts:
    forms = [form for form in FORMS if form.method is method and form.variant is Variant.PLAIN]
    served = [form for form in forms if not form.refused]
    turned = [form for form in served if form.scheduled]
    return MethodFacts(
        since=min(form.since for form in served or forms),
        retunable=frozenset(form.runner for form in turned),
        follows=frozenset(form.runner for form in turned if form.follows),
        preferred=runner_under_schedule(method, EMULATED),
        needs_source=not method.draft_free and method not in IN_VERIFIER,
        passes_at_zero=0.0 if method.draft_free else 1.0,
        block_drafter=any(form.block for form in served),
        refused="" if served else forms[0].refused,
    )


METHODS: dict[Method, MethodFacts] = {method: _facts(method) for method in Method}
"""The plain form of each method, read off the rows."""
