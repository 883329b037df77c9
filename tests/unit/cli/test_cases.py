"""`speculative cases`: one line a row, a summary last, and one line for whatever is wrong with the file."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from speculative_operator.cli.main import main

PUBLISHED = Path(__file__).parents[3] / "dev" / "data" / "published" / "cases.csv"
HEADER = "case_id,source,evidence,model,gpu,method,dataset,load_kind,load,K,speedup,tol_rel\n"
ROWS = (
    "X1,ours,quoted,Llama-3.1-8B,H100,eagle3,GSM8K,batch,1,3,1.75,0.1\n"
    "X2,ours,quoted,Llama-3.1-8B,H100,eagle3,GSM8K,batch,64,3,1.49,0.1\n"
    "X3,theirs,quoted,Nova-300B-A20B,Abacus 9000,telepathy,,batch,8,often,,\n"
    "X4,theirs,unverified,Qwen3-8B,H100,draft_model,ShareGPT,batch,256,3,0.5,0.1\n"
)
LAST = ["rows", "balanced_sign_percent", "median_abs_log_error", "median_abs_log_error_by_source", "worst"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cases.csv"
    path.write_text(HEADER + ROWS, encoding="utf-8")
    return path


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_json_is_one_object_a_row_and_the_summary_last(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cases", str(file), "-o", "json"]) == 0
    *found, last = lines(capsys)
    assert [row["case_id"] for row in found] == ["X1", "X2", "X3", "X4"]
    assert list(last) == LAST
    assert last["rows"] == 4
    assert last["balanced_sign_percent"] == 100.0
    assert set(last["median_abs_log_error_by_source"]) == {"ours", "theirs"}  # type: ignore[call-overload]
    assert {row["case_id"] for row in last["worst"]} == {"X1", "X2"}  # type: ignore[attr-defined]


def test_rows_that_cannot_be_placed_are_predicted_and_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["cases", str(file), "-o", "json"])
    odd = lines(capsys)[2]
    assert isinstance(odd["predicted"], float)
    assert odd["predicted"] > 0
    assert odd["published"] is None
    assert odd["log_error"] is None
    assert len(odd["assumed"]) >= 4  # type: ignore[arg-type]  # accelerator, model, method, data set, K


def test_the_table_names_every_row_and_the_figures(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cases", str(file), "--worst", "1"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in ("X1", "X2", "X3", "X4"))
    assert "worst 1 rows" in told
    assert "signs: 2 of 2 gains, 0 of 0 losses; balanced 100.0 %" in told
    assert "rows 4, of which" in told


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "has none of the columns"),
        ("a,b\n1,2\n", "has none of the columns"),
        (HEADER, "has no rows"),
        (HEADER + '"' + "x" * 200000, "is not CSV"),
    ],
)
def test_a_file_that_is_none_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, told: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content, encoding="utf-8")
    assert main(["cases", str(path)]) == 1
    problem = capsys.readouterr().err
    assert told in problem
    assert problem.count("\n") == 1


def test_a_missing_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cases", str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_extra_and_missing_cells_do_no_harm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ragged.csv"
    path.write_text("model,speedup\nQwen3-8B,1.5,extra,more\nQwen3-8B\n", encoding="utf-8")
    assert main(["cases", str(path), "-o", "json"]) == 0
    assert lines(capsys)[-1]["rows"] == 2


def test_the_published_file_meets_the_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cases", str(PUBLISHED), "-o", "json"]) == 0
    *found, last = lines(capsys)
    with PUBLISHED.open(encoding="utf-8", newline="") as text:
        assert len(found) == last["rows"] == len(list(csv.DictReader(text)))
    assert last["balanced_sign_percent"] >= 85.0  # type: ignore[operator]
    assert len(last["worst"]) == 20  # type: ignore[arg-type]
