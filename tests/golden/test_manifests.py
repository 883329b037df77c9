"""Whole manifests by example: inputs/*.yaml, an object as users write it, to expected/*.yaml, its children.

An input may have a second document with what else decides: `table`, `tableVersion`, `capabilities`. The
hashes are left out of the expected manifests. A few whole manifests
hold what all share; the many combinations of method, engine, accelerator and layout are outlines (test_outlines.py).
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.golden.case import HERE, INPUTS, whole

from speculative_operator.domain import names

NOTE = "# Generated: python -m pytest tests/golden --regenerate\n"


def shown(manifest: dict[str, Any]) -> dict[str, Any]:
    metadata = dict(manifest["metadata"])
    metadata["annotations"] = {
        key: value for key, value in metadata["annotations"].items() if key != names.ANNOTATION_HASH
    }
    if not metadata["annotations"]:
        del metadata["annotations"]
    return {**manifest, "metadata": metadata}


@pytest.mark.parametrize("source", INPUTS, ids=lambda path: path.stem)
def test_children_are_as_expected(source: Path, regenerate: bool) -> None:
    case = whole(source)
    assert case.engine.refusals(case.spec) == ()
    text = NOTE + yaml.safe_dump_all([shown(child) for child in case.children()], sort_keys=False, width=110)
    expected = HERE / "expected" / source.name
    if regenerate:
        expected.write_text(text)
    assert expected.exists(), f"no expected file; run: {NOTE[2:]}"
    assert text == expected.read_text(), f"manifests changed; if that is wanted, run: {NOTE[2:]}"


def test_every_expected_file_has_its_input() -> None:
    assert {path.name for path in (HERE / "expected").iterdir()} == {path.name for path in INPUTS}
    assert len(INPUTS) >= 8
