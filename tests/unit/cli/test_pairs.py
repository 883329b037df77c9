"""`speculative pairs`: what it lists and picks, a user's rows, its statuses, and the page that is made of the rows."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.cli.conftest import Run

from speculative_operator.pairing.catalogue import load_packaged

EXTRA = "verifier,speculator,method,source,date\nQwen/Qwen3-8B,me/head,eagle3,our wiki,2026-08\n"


def test_lists_every_row(run: Run) -> None:
    status, out, _ = run("pairs")
    assert status == 0
    assert len(out.splitlines()) == 1 + len(load_packaged().entries)
    assert out.startswith("verifier ")


def test_says_what_would_be_picked_and_lists_the_rest(run: Run) -> None:
    status, out, _ = run("pairs", "RedHatAI/Qwen3-8B-FP8-dynamic")
    first, _, *rows = out.splitlines()
    assert status == 0
    assert first.startswith("picked RedHatAI/Qwen3-8B-speculator.dflash (dflash): made for Qwen/Qwen3-8B")
    assert all(line.startswith("Qwen/Qwen3-8B ") for line in rows)
    assert rows[0].split()[1] == "RedHatAI/Qwen3-8B-speculator.dflash"
    assert rows[1].split()[1] in first, "the next best is told"
    assert any("draft_model, one pass" in line for line in rows)


def test_one_object_a_row(run: Run) -> None:
    status, out, _ = run("pairs", "nebius/whatever", "--base", "openai/gpt-oss-20b", "-o", "json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert rows[0] == {
        "verifier": "openai/gpt-oss-20b",
        "speculator": "nebius/EAGLE3-gpt-oss-20b",
        "method": "eagle3",
        "parallelDrafting": False,
        "trainedFor": None,
        "k": 6,
        "acceptanceLength": 3.49,
        "acceptanceK": 7,
        "acceptanceOn": "mean of MT-Bench, HumanEval, GSM8K, temperature 0",
        "acceptanceSource": rows[0]["source"],
        "source": rows[0]["source"],
        "date": "2026-02",
        "added": False,
        "match": "Derived",
    }
    assert {one["match"] for one in rows} == {"Derived"}


def test_one_method(run: Run) -> None:
    _, out, _ = run("pairs", "--method", "DFlash", "-o", "json")
    assert {json.loads(line)["method"] for line in out.splitlines()} == {"dflash"}
    status, _, err = run("pairs", "--method", "dflush")
    assert status == 2
    assert "name one of" in err


def test_rows_of_ones_own_go_first(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text(EXTRA)
    status, out, _ = run("pairs", "Qwen/Qwen3-8B", "--catalogue", str(file), "-o", "json")
    assert status == 0
    assert json.loads(out.splitlines()[0])["speculator"] == "me/head"


def test_a_wrong_row_is_told_with_its_place(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text(EXTRA + "a/b,c/d,eagle9,x,2026\n")
    status, out, err = run("pairs", "--catalogue", str(file))
    assert (status, out) == (2, "")
    assert err.startswith(f"error: --catalogue {file}, row 3, column method: 'eagle9': use one of ")
    assert err.count("\n") == 1
    assert run("pairs", "--catalogue", str(tmp_path / "absent.csv"))[0] == 2


def test_an_unknown_verifier_has_its_status(run: Run) -> None:
    status, out, _ = run("pairs", "org/unknown")
    assert status == 1
    assert out == (
        "the catalogue has no speculator for org/unknown: set speculator.method and speculator.model, or add your own "
        "row to the catalogue\n"
    )
    assert run("pairs", "org/unknown", "-o", "json")[:2] == (1, "")
