"""The tables of docs/engines.md and docs/metrics.md say what the data says."""

from __future__ import annotations

from pathlib import Path

from generate import matrix
from speculative_operator.engines.matrix.rows import CELLS, rows_of
from speculative_operator.engines.vllm import reading
from speculative_operator.engines.vllm.flags import FLAGS

DOCS = Path(__file__).resolve().parents[3] / "docs"
ENGINES = (DOCS / "engines.md").read_text(encoding="utf-8")
METRICS = (DOCS / "metrics.md").read_text(encoding="utf-8")


def test_every_served_method_has_a_row() -> None:
    for engine, cells in CELLS.items():
        section = matrix.section(engine)
        assert section in ENGINES
        for method in {cell.method for cell in cells}:
            assert f"`{method}`" in section
            assert f"## {engine} by accelerator" in ENGINES


def test_every_refused_flag_is_documented() -> None:
    article = (DOCS / "from-an-article.md").read_text(encoding="utf-8")
    refused = [row["flag"] for row in rows_of("arguments") if row["kind"] in ("owned", "removed", "pod", "tls")]
    assert [flag for flag in (*FLAGS.owned, *refused) if f"`{flag}`" not in article] == []


def test_every_series_is_documented() -> None:
    assert [name for name in reading.METRIC_NAMES if name not in METRICS] == []
