"""Whole manifests by example: inputs/*.yaml, an object as users write it, to expected/*.yaml, its children.

An input may have a second document with what else decides: `table`, `tableVersion`, `capabilities`. The payload's text
and the hashes are left out of the expected files: they change with every line of it.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from speculative_operator.api.convert import to_domain
from speculative_operator.domain import names
from speculative_operator.domain.table import KTable
from speculative_operator.engines.registry import engine_for
from speculative_operator.reconcile.strategy import choose
from speculative_operator.render import Capabilities, RenderInput, render

HERE = Path(__file__).parent
INPUTS = sorted((HERE / "inputs").glob("*.yaml"))
NOTE = "# Generated: python -m pytest tests/golden --regenerate\n"


def children(source: Path) -> list[dict[str, Any]]:
    body, *rest = yaml.safe_load_all(source.read_text())
    more = rest[0] if rest else {}
    body["metadata"] |= {"namespace": "models", "uid": "0e7b5d1c-5a4f-4f0e-9d52-6f0c8a3a2b11", "generation": 1}
    spec = to_domain(body)
    engine = engine_for(spec)
    assert engine.refusals(spec) == ()
    knobs = engine.knobs(spec)
    table = KTable.from_rows(more["table"]) if "table" in more else None
    capabilities = Capabilities(**more.get("capabilities", {}))
    manifests = render(
        RenderInput(
            spec=spec,
            container=engine.container(spec, table or KTable.constant(0, knobs.max_batch)),
            table=table,
            table_version=more.get("tableVersion", 1),
            capabilities=capabilities,
            strategy=choose(spec, capabilities.spare_accelerators),
        )
    )
    return [shown(manifest) for manifest in manifests]


def shown(manifest: dict[str, Any]) -> dict[str, Any]:
    metadata = dict(manifest["metadata"])
    metadata["annotations"] = {
        key: value for key, value in metadata["annotations"].items() if key != names.ANNOTATION_HASH
    }
    if not metadata["annotations"]:
        del metadata["annotations"]
    found = {**manifest, "metadata": metadata}
    if manifest["kind"] == "ConfigMap" and metadata["name"].endswith("-payload"):
        found["data"] = dict.fromkeys(manifest["data"], "(text of the payload)\n")
    return found


@pytest.mark.parametrize("source", INPUTS, ids=lambda path: path.stem)
def test_children_are_as_expected(source: Path, regenerate: bool) -> None:
    text = NOTE + yaml.safe_dump_all(children(source), sort_keys=False, width=110)
    expected = HERE / "expected" / source.name
    if regenerate:
        expected.write_text(text)
    assert expected.exists(), f"no expected file; run: {NOTE[2:]}"
    assert text == expected.read_text(), f"manifests changed; if that is wanted, run: {NOTE[2:]}"


def test_every_expected_file_has_its_input() -> None:
    assert {path.name for path in (HERE / "expected").iterdir()} == {path.name for path in INPUTS}
    assert len(INPUTS) >= 8
