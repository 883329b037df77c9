"""What is asserted and measured, and that one failed assertion is enough."""

from __future__ import annotations

from pathlib import Path

from realengine.e2e.__main__ import KEYS, summary
from realengine.e2e.report import Report, markdown


def test_one_failed_assertion_fails_the_whole() -> None:
    report = Report()
    assert not report.ok, "nothing asserted is nothing shown"
    report.check("water is wet", True, "1 of 1")
    assert report.ok
    report.check("fire is cold", False, "0 of 1")
    assert not report.ok


def test_what_one_process_saves_another_loads(tmp_path: Path) -> None:
    inside, outside = Report(), Report()
    inside.begin("Part")
    inside.check("claim", True, "3 of 3")
    inside.figures["retunes"] = 32
    inside.table("Title", ("a", "b"), [(1, 2.5)])
    inside.save(tmp_path / "results.json")
    outside.load(tmp_path / "results.json")
    assert (outside.checks, outside.figures, outside.tables) == (inside.checks, inside.figures, inside.tables)
    assert [row[0] for row in outside.tables["Seconds by part"]] == ["part", "Part"]
    text = markdown(outside, summary(outside), ["Head."])
    for part in ("## Part", "| yes | claim | 3 of 3 |", "## Title", "| 1 | 2.5 |", '"retunes": 32'):
        assert part in text


def test_the_last_line_has_every_key_even_when_nothing_was_measured() -> None:
    told = summary(Report())
    assert list(told) == ["ok", *KEYS]
    assert told["ok"] is False
