"""The tables of docs/engines.md and docs/metrics.md say what the data says."""

from __future__ import annotations

from pathlib import Path

import pytest

from speculative_operator.cli import engines_page
from speculative_operator.engines.matrix import markdown
from speculative_operator.engines.matrix.answers import CELLS
from speculative_operator.engines.vllm import reading
from speculative_operator.engines.vllm.user_arguments import FLAGS

DOCS = Path(__file__).resolve().parents[3] / "docs"
ENGINES = (DOCS / "engines.md").read_text(encoding="utf-8")
METRICS = (DOCS / "metrics.md").read_text(encoding="utf-8")


def test_the_matrix_in_the_page_is_the_data(tmp_path: Path) -> None:
    assert engines_page.main(["--check"]) == 0
    stale = tmp_path / "engines.md"
    stale.write_text(ENGINES.replace("| `eagle3` |", "| `eagle4` |", 1), encoding="utf-8")
    assert engines_page.main(["--check", "--page", str(stale)]) == 1
    assert engines_page.main(["--page", str(stale)]) == 0
    assert stale.read_text(encoding="utf-8") == ENGINES


@pytest.mark.parametrize(
    "marks", ["", markdown.BEGIN, f"{markdown.END}\n{markdown.BEGIN}", 2 * (markdown.BEGIN + markdown.END)]
)
def test_a_page_without_its_marks_is_told(marks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "engines.md"
    page.write_text(f"# Engines\n{marks}\n", encoding="utf-8")
    assert engines_page.main(["--page", str(page)]) == 2
    assert "needs one line" in capsys.readouterr().err


def test_every_served_method_has_a_row() -> None:
    for engine, cells in CELLS.items():
        section = markdown.section(engine)
        for method in {cell.method for cell in cells if not cell.refused}:
            assert f"\n| `{method}`" in section
            assert f"## {engine} by accelerator" in ENGINES


def test_every_owned_flag_is_documented() -> None:
    assert [flag for flag in FLAGS.owned if flag not in ENGINES] == []


def test_every_series_is_documented() -> None:
    assert [name for name in reading.METRIC_NAMES if name not in METRICS] == []
