"""How the rows of the matrix were shown to be true: what ran, on which releases. Asked by `answers`."""

from __future__ import annotations

from dataclasses import dataclass

from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.spec import EngineType, Method
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.matrix.cell import Cell, Proven, Question, Variant

Line = tuple[int, int]
"""Major and minor number of a release."""
EMULATED: Line = (0, 32)
"""The line that the emulator imitates, and that the end-to-end run serves on a CPU."""
END_TO_END = frozenset({Method.DRAFT_MODEL, Method.NGRAM, Method.EAGLE3})
"""Methods whose live changes of K the end-to-end run asserts, on the V1 runner in one process."""
END_TO_END_SOURCE = "make e2e-vllm: vLLM 0.32.0 on a CPU, V1 runner, one process"


@dataclass(frozen=True, slots=True)
class Run:
    """Releases of vLLM in which K changed live on one runner, and the speculator was skipped where it can be."""

    runner: str
    first: Line
    last: Line
    proven: Proven
    methods: frozenset[Method]


_OF_MATRIX = frozenset({Method.DRAFT_MODEL, Method.EAGLE3})
RUNS: tuple[Run, ...] = (
    Run("V1", (0, 24), (0, 24), Proven.CLASSES, frozenset({Method.DRAFT_MODEL})),
    Run("V1", (0, 25), (0, 29), Proven.REAL_ENGINE, _OF_MATRIX),
    Run("V1", (0, 30), (0, 30), Proven.CLASSES, frozenset({Method.DRAFT_MODEL})),
    Run("V1", (0, 31), (0, 31), Proven.REAL_ENGINE, _OF_MATRIX),
    Run("V1", (0, 32), (0, 32), Proven.REAL_ENGINE, END_TO_END | {Method.MTP}),
    Run("V1", (0, 33), (0, 33), Proven.REAL_ENGINE, _OF_MATRIX),
    Run("V2", (0, 32), (0, 32), Proven.REAL_ENGINE, END_TO_END | {Method.MTP}),
    Run("V2", (0, 33), (0, 33), Proven.REAL_ENGINE, END_TO_END),
)
"""`realengine.matrix` and tests/vllm ran them: 0.24 and 0.30 by their scheduler classes alone, for their builds for
CPUs cannot verify drafts; 0.33 is its Python over the kernels of 0.32."""


def shown_live(cell: Cell, line: Line) -> Proven | None:
    """How live changes of K were shown to work in a release; None where K changes otherwise."""
    if cell.actuator is not Actuator.LIVE:
        return None
    ran = (
        run.proven
        for run in RUNS
        if cell.method in run.methods and cell.runner == run.runner and run.first <= line <= run.last
    )
    return next(ran, Proven.SOURCE) if cell.variant is Variant.PLAIN else Proven.SOURCE


def shown(cell: Cell, asked: Question) -> Proven:
    """How the row was shown to be true for the release and the accelerators of a question."""
    imitated = cell.engine is EngineType.VLLM and asked.version[:2] == EMULATED
    if not imitated or cell.variant is Variant.PARALLEL:
        return Proven.SOURCE
    served = cell.actuator is Actuator.LIVE and cell.runner == "V1" and cell.variant is Variant.PLAIN
    on_cpu = asked.vendor is Vendor.CPU and served and cell.method in END_TO_END
    return Proven.REAL_ENGINE if on_cpu else Proven.EMULATED
