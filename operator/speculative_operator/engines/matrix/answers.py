"""Answers of the whole matrix: what an engine's release does with a method on a vendor's accelerators, and how that was
shown to be true.

Used by `speculative engines`, by the generator of docs/engines.md and by tests. Adapters ask `rows` themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache

from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.spec import EngineType, Method
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.matrix import refusing
from speculative_operator.engines.matrix.rows import (
    CELLS,
    Cell,
    Platform,
    Question,
    Variant,
    Version,
    find,
    platform_of,
)
from speculative_operator.engines.vllm import plan as vllm
from speculative_operator.engines.vllm.plan import RUNS, Line

FORMS = {Variant.PLAIN: "", Variant.PARALLEL: " (one pass)", Variant.HETEROGENEOUS: " (other vocabulary)"}
"""Variant -> text behind the name of a method, for people."""
EMULATED: Line = (0, 32)
"""The line that the emulator imitates, and that the end-to-end run serves on a CPU."""
END_TO_END = frozenset({Method.DRAFT_MODEL, Method.NGRAM, Method.EAGLE3})
"""Methods whose live changes of K the end-to-end run asserts, on the V1 runner in one process."""
END_TO_END_SOURCE = "make e2e-vllm: vLLM 0.32.0 on a CPU, V1 runner, one process"


class Proven(StrEnum):
    """How a row was shown to be true, strongest first."""

    REAL_ENGINE = "RealEngine"
    """An end-to-end run on the real engine asserts it; the source names the make target."""
    CLASSES = "Classes"
    """What the operator mounts ran in the release's own scheduler classes; no model did."""
    EMULATED = "Emulated"
    """The whole loop runs so against the emulator, whose behaviour was read from the engine's source."""
    SOURCE = "Source"
    """Read from the engine's source or documentation of the release."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the matrix answers to a question."""

    question: Question
    """The question, with the runner that serves best where the engine has several."""
    cell: Cell | None
    platform: Platform | None
    refused: str = ""
    """Why the engine refuses the method, and the remedy; empty where it serves it."""

    @property
    def name(self) -> str:
        """The method with its form: `eagle3`, `eagle3 (one pass)` (P-EAGLE, PARD), `draft_model (other vocabulary)`."""
        return f"{self.question.method}{FORMS[self.question.variant]}"

    @property
    def actuator(self) -> Actuator:
        """The gentlest actuator that changes K in this case; NONE where the method is refused."""
        return Actuator.NONE if self.refused or self.cell is None else self.cell.actuator

    @property
    def passes_at_zero(self) -> float:
        """Draft passes in a step at K = 0; 0 where K = 0 means a pod without a speculator."""
        return 0.0 if self.cell is None or self.actuator is Actuator.RESTART else self.cell.passes_at_zero

    @property
    def passes(self) -> str:
        """`passes_at_zero` as text for people: a number, or `all`."""
        return "all" if math.isinf(self.passes_at_zero) else f"{self.passes_at_zero:g}"

    @property
    def follows_k(self) -> bool:
        """True where the speculator drafts less at a smaller K; always so where K changes by a restart."""
        return self.cell is not None and (self.cell.follows_k or self.actuator is Actuator.RESTART)

    @property
    def proven(self) -> Proven:
        """How the answer was shown to be true; a vendor's plug-in was only read, never run."""
        cell, asked = self.cell, self.question
        imitated = asked.engine is EngineType.VLLM and asked.version[:2] == EMULATED
        plugged = self.platform is not None and bool(self.platform.plugin)
        if cell is None or plugged or not imitated or cell.variant is Variant.PARALLEL:
            return Proven.SOURCE
        served = cell.actuator is Actuator.LIVE and cell.runner == "V1" and cell.variant is Variant.PLAIN
        on_cpu = asked.vendor is Vendor.CPU and served and cell.method in END_TO_END
        return Proven.REAL_ENGINE if on_cpu else Proven.EMULATED

    @property
    def live(self) -> Proven | None:
        """How live changes of K were shown to work; None where K changes by another actuator."""
        cell, line = self.cell, self.question.version[:2]
        if cell is None or self.actuator is not Actuator.LIVE:
            return None
        ran = (
            Proven(run.proven)
            for run in RUNS
            if cell.method in run.methods and cell.runner == run.runner and run.first <= line <= run.last
        )
        return next(ran, Proven.SOURCE) if cell.variant is Variant.PLAIN else Proven.SOURCE

    @property
    def off(self) -> Proven | None:
        """How it was shown that the engine skips the speculator live; None where it does not."""
        return self.live if self.cell is not None and self.cell.skips else None  # one run asserts both

    @property
    def source(self) -> str:
        """Where the row was read or shown; for a vendor's plug-in, the source of the plug-in's row."""
        if self.platform is not None and (self.platform.plugin or self.cell is None):
            return self.platform.source
        if self.proven is Proven.REAL_ENGINE:
            return END_TO_END_SOURCE
        return self.cell.source if self.cell is not None else ""


def answer(question: Question) -> Answer:
    """The answer to one question; an empty runner stands for the runner that serves best."""
    if not question.runner and question.engine is EngineType.VLLM:
        question = replace(question, runner=vllm.runner_under_schedule(question))
    row = platform_of(question.engine, question.vendor, question.version)
    if row is None:
        return Answer(
            question, None, None, f"{question.engine} is not known to run on {question.vendor} in this release"
        )
    refusal = refusing.why(question)
    return Answer(question, find(question), row, "" if refusal is None else refusal.message)


@cache
def forms() -> tuple[tuple[Method, Variant], ...]:
    """Methods and their forms that some engine has, in the order of the enums."""
    known = {(cell.method, cell.variant) for cells in CELLS.values() for cell in cells}
    return tuple((method, variant) for method in Method for variant in Variant if (method, variant) in known)


def answers(engine: EngineType, version: Version, vendor: Vendor, data_parallel_size: int = 1) -> tuple[Answer, ...]:
    """One answer for every form of every method."""
    return tuple(
        answer(Question(engine, version, method, "", variant, vendor, data_parallel_size))
        for method, variant in forms()
    )
