"""The rows themselves: they do not overlap, answer every question, and say what docs show."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.failing import failing

from generate.answers import answer, answers, forms
from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.spec import DEFAULT_VERSIONS, EngineType, Method
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.matrix.rows import (
    CELLS,
    PLATFORMS,
    Cell,
    Question,
    Variant,
    Version,
    parse_version,
    platform_of,
    vendors_of,
)
from speculative_operator.engines.vllm.plan import UNPROVEN, V2_SCHEDULE_SINCE

EVERY = [cell for cells in CELLS.values() for cell in cells]
VERSIONS: list[Version] = [
    (0, 10, 9), (0, 11, 0), (0, 14, 9), (0, 15, 0), (0, 23, 9), (0, 24, 0), (0, 28, 0), (0, 31, 9), (0, 32, 0),
    (0, 32, 7), (0, 33, 0), (1, 0, 0), (9, 9, 9),
]  # fmt: skip


def shown(cell: Cell) -> str:
    parts = (cell.method, cell.variant or "plain", cell.runner or "-", ".".join(map(str, cell.since)))
    return "-".join((*parts, f"dp{cell.data}", f"pp{cell.pipeline}"))


def bounds(engine: EngineType) -> list[Version]:
    """Every release at which something begins or ends, and the one before nothing else."""
    found = {cell.since for cell in CELLS[engine]} | {cell.before for cell in CELLS[engine] if cell.before}
    return sorted({*found, *VERSIONS})


@pytest.mark.parametrize("engine", CELLS)
def test_at_most_one_row_answers_a_question(engine: EngineType) -> None:
    runners = sorted({cell.runner for cell in CELLS[engine]})
    for version, method, runner, variant, vendor in itertools.product(
        bounds(engine), Method, runners, Variant, (Vendor.NVIDIA, Vendor.CPU)
    ):
        for sizes in itertools.product((1, 2), (1, 2)):
            asked = Question(engine, version, method, runner, variant, vendor, *sizes)
            matching = [cell for cell in CELLS[engine] if cell.matches(asked)]
            assert len(matching) <= 1, f"{asked}: {[shown(cell) for cell in matching]}"


def test_rows_are_sound() -> None:
    assert failing(sound, EVERY, shown) == []


def sound(cell: Cell) -> None:
    assert cell.since < (cell.before or (99, 0, 0))
    assert cell.source
    assert cell.actuator is not Actuator.NONE
    assert cell.follows_k or cell.actuator is not Actuator.RESTART, "a smaller constant K drafts less"


def test_every_release_with_a_schedule_is_live() -> None:
    """On releases newer than those that were run, too: there the plug-in checks itself."""
    live = [cell for cell in CELLS[EngineType.VLLM] if cell.actuator is Actuator.LIVE]
    assert {cell.before for cell in live} == {None}
    for cell in live:
        assert cell.since >= ((0, 24, 0) if cell.runner == "V1" else V2_SCHEDULE_SINCE)
        asked = Question(EngineType.VLLM, UNPROVEN, cell.method, cell.runner, cell.variant)
        assert answer(asked).actuator is Actuator.LIVE
        assert cell.skips == (cell.runner == "V2")


def test_at_most_one_platform_row() -> None:
    for first, engine, vendor in itertools.product(VERSIONS, EngineType, Vendor):
        assert sum(row.engine is engine and row.vendor is vendor and row.holds(first) for row in PLATFORMS) <= 1


def test_every_method_and_every_default_release_is_answered() -> None:
    assert {cell.method for cell in CELLS[EngineType.VLLM]} == set(Method)
    for engine in CELLS:
        version = parse_version(DEFAULT_VERSIONS[engine])
        assert version is not None
        served = [one for one in answers(engine, version, Vendor.NVIDIA) if not one.refused]
        assert served, engine
        assert Vendor.NVIDIA in vendors_of(engine)


@given(
    st.builds(
        Question, st.sampled_from(sorted(CELLS)), st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 30)),
        st.sampled_from(list(Method)), st.sampled_from(["", "V1", "V2"]), st.sampled_from(list(Variant)),
        st.sampled_from(list(Vendor)), st.integers(1, 4), st.integers(1, 3),
    )
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_any_question_has_an_answer(asked: Question) -> None:
    one = answer(asked)
    engine, version, method, vendor = asked.engine, asked.version, asked.method, asked.vendor
    assert bool(one.refused) == (one.actuator is Actuator.NONE)
    if one.refused:
        assert method in one.refused or vendor in one.refused
    else:
        assert one.cell is not None
        row = platform_of(engine, vendor, version)
        assert row is not None
        assert method in row.methods


def test_forms_are_listed_once() -> None:
    listed = forms()
    assert len(listed) == len(set(listed)) == 14
