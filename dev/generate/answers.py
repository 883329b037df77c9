"""Answers of the whole matrix: what an engine's release does with each form of a method on a vendor's accelerators.

Used by `matrix` for docs/engines.md, and by tests. Adapters ask `engines.matrix.rows` themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.spec import EngineType, Method
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.matrix import refusing
from speculative_operator.engines.matrix.rows import CELLS, Cell, Question, Variant, Version, find, platform_of
from speculative_operator.engines.vllm import plan as vllm

FORMS = {Variant.PLAIN: "", Variant.PARALLEL: " (one pass)", Variant.HETEROGENEOUS: " (other vocabulary)"}
"""Variant -> text behind the name of a method, for people."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the matrix answers to a question."""

    question: Question
    """The question, with the runner that serves best where the engine has several."""
    cell: Cell | None = None
    refused: str = ""
    """Why the engine refuses the method, and the remedy; empty where it serves it."""

    @property
    def actuator(self) -> Actuator:
        """The gentlest actuator that changes K in this case; NONE where the method is refused."""
        return Actuator.NONE if self.refused or self.cell is None else self.cell.actuator


def answer(question: Question) -> Answer:
    """The answer to one question; an empty runner stands for the runner that serves best."""
    if not question.runner and question.engine is EngineType.VLLM:
        question = replace(question, runner=vllm.runner_under_schedule(question))
    if platform_of(question.engine, question.vendor, question.version) is None:
        return Answer(question, refused=f"{question.engine} is not known to run on {question.vendor} in this release")
    refusal = refusing.why(question)
    return Answer(question, find(question), "" if refusal is None else refusal.message)


@cache
def forms() -> tuple[tuple[Method, Variant], ...]:
    """Methods and their forms that some engine has, in the order of the enums."""
    known = {(cell.method, cell.variant) for cells in CELLS.values() for cell in cells}
    return tuple((method, variant) for method in Method for variant in Variant if (method, variant) in known)


def answers(engine: EngineType, version: Version, vendor: Vendor) -> tuple[Answer, ...]:
    """One answer for every form of every method."""
    return tuple(answer(Question(engine, version, method, "", variant, vendor)) for method, variant in forms())
