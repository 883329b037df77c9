"""Every combination of method, engine, release, accelerator and layout that is held: cases/*.yaml to outlines/*.yaml.

One file a family, one document a case. The expected form is an outline (outline.py says of what and why): a reader of a
diff sees what changed in which case, not the same forty lines seventy times.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.golden.case import FAMILIES, HERE, every, family
from tests.golden.outline import outline

from speculative_lab.emulator.arguments import parse
from speculative_operator.domain.spec import EngineType

NOTE = "# Generated: python -m pytest tests/golden --regenerate\n"
CASES = [case for source in FAMILIES for case in family(source)]


def test_no_case_is_refused() -> None:
    refused = {case.name: case.engine.refusals(case.spec) for case in CASES}
    assert {name: refusals for name, refusals in refused.items() if refusals} == {}


@pytest.mark.parametrize("source", FAMILIES, ids=lambda path: path.stem)
def test_outlines_are_as_expected(source: Path, regenerate: bool) -> None:
    text = NOTE + yaml.safe_dump_all([outline(case) for case in family(source)], sort_keys=False, width=118)
    expected = HERE / "outlines" / source.name
    if regenerate:
        expected.parent.mkdir(exist_ok=True)
        expected.write_text(text)
    assert expected.exists(), f"no expected file; run: {NOTE[2:]}"
    assert text == expected.read_text(), f"outlines changed; if that is wanted, run: {NOTE[2:]}"


def test_every_outline_has_its_cases() -> None:
    assert {path.name for path in (HERE / "outlines").iterdir()} == {path.name for path in FAMILIES}
    names = [case.name for case in every()]
    assert len(names) == len(set(names)), "a name occurs once"
    assert len(names) >= 60


def test_the_emulator_takes_every_command_line() -> None:
    for case in every():
        if case.spec.engine.type is EngineType.VLLM:
            given = (one.replace("$(LWS_WORKER_INDEX)", "0") for one in case.container.args)  # as the kubelet does
            parsed = parse(["serve", *given])
            assert parsed.model == case.container.args[0].removeprefix("--model="), case.name
