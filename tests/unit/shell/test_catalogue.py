"""The user's rows in a file: read when they come, kept when they go bad, gone when the file goes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from speculative_operator.pairing.catalogue import load_packaged
from speculative_operator.shell.catalogue import LARGEST, LOOK_EVERY, CatalogueFile
from speculative_operator.shell.telemetry import Telemetry

HEADER = "verifier,speculator,method,k,source,date\n"
ONE = "Qwen/Qwen3-8B,me/head,eagle3,3,our wiki,2026-08\n"
TWO = "Qwen/Qwen3-8B,me/other,eagle3,2,our wiki,2026-08\n"


class Rows:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "catalogue.csv"
        self.now = 100.0
        self.telemetry = Telemetry()
        self.file = CatalogueFile(str(self.path), self.telemetry, lambda: self.now)

    def put(self, text: str) -> None:
        """As the kubelet does: the whole file at once."""
        fresh = self.path.with_name("..new")
        fresh.write_text(text)
        fresh.replace(self.path)

    def first(self, wait: float = LOOK_EVERY) -> str:
        """The first speculator that is known for Qwen3-8B after `wait` seconds."""
        self.now += wait
        _, found = self.file.current().entries_for("Qwen/Qwen3-8B")[0]
        return found.speculator

    def gauges(self) -> tuple[float | None, float | None]:
        value = self.telemetry.registry.get_sample_value
        return value("speculative_operator_catalogue_own_rows"), value("speculative_operator_catalogue_bad")


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    return Rows(tmp_path)


def test_without_a_file_the_packages_rows_are_in_force(rows: Rows) -> None:
    assert rows.file.current() is load_packaged()
    assert CatalogueFile("", Telemetry(), lambda: 0.0).current() is load_packaged()
    assert CatalogueFile("/etc/hostname/catalogue.csv", Telemetry(), lambda: 0.0).current() is load_packaged()
    assert rows.gauges() == (0.0, 0.0)


def test_rows_come_change_and_go_while_the_operator_runs(rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
    package = rows.first()
    rows.put(HEADER + ONE)
    assert rows.first(LOOK_EVERY / 2) == package, "the disk is not asked at each visit"
    with caplog.at_level(logging.INFO):
        assert rows.first() == "me/head"
        assert rows.gauges() == (1.0, 0.0)
        before = rows.file.current()
        rows.now += LOOK_EVERY
        assert rows.file.current() is before, "unchanged rows are the same rows"
        rows.put(HEADER + TWO + ONE)
        assert rows.first() == "me/other"
    assert len(caplog.records) == 2
    rows.path.unlink()
    assert rows.first() == package
    assert rows.gauges() == (0.0, 0.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEADER + ONE.replace(",3,", ",0,"), "catalogue.csv, row 2, column k: '0': write a whole number from 1 to 64"),
        (HEADER + ONE.replace("eagle3", "egale3"), "catalogue.csv, row 2, column method: 'egale3': use one of"),
        ("\xe4".encode("latin-1").decode("latin-1"), "catalogue.csv, row 1"),
        ("x" * (LARGEST + 1), "remove rows"),
    ],
    ids=["k", "method", "header", "size"],
)
def test_bad_rows_are_told_once_and_the_good_ones_stay(
    rows: Rows, caplog: pytest.LogCaptureFixture, text: str, said: str
) -> None:
    rows.put(HEADER + ONE)
    assert rows.first() == "me/head"
    rows.put(text)
    for _ in range(3):
        assert rows.first() == "me/head"
    (told,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert said in told.getMessage()
    assert "The previous rows are still used" in told.getMessage()
    assert rows.gauges() == (1.0, 1.0)
    rows.put(HEADER + TWO)
    assert rows.first() == "me/other"
    assert rows.gauges() == (1.0, 0.0)


def test_what_is_no_text_and_what_may_not_be_read(rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
    package = rows.first()
    rows.path.write_bytes(b"\xff\xfe")
    assert rows.first() == package
    assert "byte 0: the file is not UTF-8" in caplog.text
    rows.path.unlink()
    rows.path.mkdir()
    assert rows.first() == package
    assert "give the operator read permission" in caplog.text
