"""Each row of SGLang and TensorRT-LLM against the adapter that is to obey it."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.engines.test_matrix import EVERY, shown
from tests.unit.engines.test_matrix_vllm import make_spec
from tests.unit.failing import failing

from speculative_operator.domain.spec import EngineType
from speculative_operator.engines.matrix import refusing
from speculative_operator.engines.matrix.rows import Cell, Extent, Version, find, show_version
from speculative_operator.engines.registry import engine_for

OTHERS = [cell for cell in EVERY if cell.engine is not EngineType.VLLM]


def releases(cell: Cell) -> tuple[Version, ...]:
    return (cell.since,) if cell.before else (cell.since, (cell.since[0], cell.since[1] + 1, 0))


def test_adapters_obey_the_rows() -> None:
    assert failing(obeyed, OTHERS, lambda cell: f"{cell.engine}-{shown(cell)}") == []


def obeyed(cell: Cell) -> None:
    data, pipeline = (2 if extent is Extent.MANY else 1 for extent in (cell.data, cell.pipeline))
    for version in releases(cell):
        subject = make_spec(cell.method, cell.variant, version, data=data, pipeline=pipeline)
        subject = replace(subject, engine=replace(subject.engine, type=cell.engine, version=show_version(version)))
        assert find(refusing.question_of(subject, version)) is cell
        engine = engine_for(subject)
        found = engine.refusals(subject)
        assert found == ()
        knobs = engine.knobs(subject)
        assert knobs.actuator is cell.actuator
        assert knobs.draft_passes_follow_k == cell.follows_k
        assert knobs.drafts_blocks == cell.drafts_blocks
