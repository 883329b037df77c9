"""`--scheduler-cls`: resolved as vLLM resolves it; the payload's own table file decides."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from speculative_operator.emulator.errors import LateError
from speculative_operator.emulator.hot import table_source
from speculative_operator.emulator.schedule import lookup

PAYLOAD = Path(__file__).parents[3] / "operator" / "speculative_operator" / "payload" / "speculative_scheduler.py"
NAME = "speculative_scheduler.scheduler"
BOOT = lookup([[1, 14, 3], [15, 15, 1], [16, 16, 0]], 16, 3)


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The payload where a pod has it, on the path; its table file beside it."""
    shutil.copy(PAYLOAD, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "table.json"
    sys.modules.pop("speculative_scheduler", None)


def write(path: Path, version: int, rows: list[list[int]]) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"version": version, "rows": rows}))
    fresh.replace(path)


def environment(path: Path) -> dict[str, str]:
    return {"SPECULATIVE_TABLE_FILE": str(path)}


def test_the_table_of_the_file(mounted: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(mounted, 4, [[1, 8, 1], [9, 16, 0]])
    source = table_source(NAME, BOOT, environment(mounted))
    assert source is not None
    with caplog.at_level("INFO"):
        assert source.poll() == [0] + [1] * 8 + [0] * 8
    assert "speculative: table version 4 in force since" in caplog.text
    assert caplog.text.endswith(": 1-8:1 9-16:0\n")
    assert source.poll() is None


@pytest.mark.parametrize("rows", [[[1, 16, 2]], [[1, 16, 4]], [[2, 16, 1]]], ids=["not at boot", "above", "gap"])
def test_tables_that_are_refused(mounted: Path, rows: list[list[int]]) -> None:
    write(mounted, 1, rows)
    source = table_source(NAME, BOOT, environment(mounted))
    assert source is not None
    assert source.poll() is None


def test_a_name_that_does_not_import_is_fatal() -> None:
    for name in ("no_such_module.scheduler", "json.no_such_attribute", "scheduler", "..x"):
        with pytest.raises(LateError, match="--scheduler-cls"):
            table_source(name, BOOT, dict(os.environ))


def test_inert_without_schedule_or_file(mounted: Path) -> None:
    assert table_source(NAME, None, environment(mounted)) is None
    assert table_source(NAME, BOOT, {}) is None
    assert table_source(None, BOOT, environment(mounted)) is None


def test_another_scheduler_is_not_emulated(caplog: pytest.LogCaptureFixture) -> None:
    assert table_source("json.JSONDecoder", BOOT, {}) is None
    assert "the stock scheduler runs in its place" in caplog.text
