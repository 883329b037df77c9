"""The section of the page on what the kit found, from a sample whose figures are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acceleratorkit import report
from acceleratorkit.report import BadResultsError

SAMPLE = Path(__file__).with_name("sample.json")


@pytest.fixture
def found() -> dict[str, Any]:
    return report.read(SAMPLE)


def row(text: str, name: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_arms_are_told_in_their_order_with_spread_and_share_of_the_first(found: dict[str, Any]) -> None:
    text = report.section(found)
    assert row(text, "plain") == ["800 (790 to 810)", "16,000 (15,800 to 16,200)"]
    assert row(text, "K = 0, KeepRunning") == ["720 (711 to 729), -10.0 %", "15,200 (15,010 to 15,390), -5.0 %"]
    assert row(text, "K = 0, Skip") == ["796 (786 to 806), -0.5 %", "15,840 (15,642 to 16,038), -1.0 %"]
    assert row(text, "K = 3")[0].endswith(", +100.0 %")
    names = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith(("| plain", "| K = "))]
    assert names == ["plain", "K = 0, KeepRunning", "K = 0, Skip", "K = 1", "K = 3"]
    assert "at K = 0, Skip: 97 % (4 requests, waves), 60 % (128 requests, waves)." in text
    assert "| empty kernel | 2.5 | 2.6 |" in text
    assert "FlashAttention 3" not in text, "a launch that failed has no figures"
    assert "later was skipped: 3 s were left, 60 are needed." in text
    assert all(len(line) <= 120 or line.startswith("|") for line in text.splitlines())


@pytest.mark.parametrize("harm", [{"failed": 1}, {"k": 1.5}, {"broken": "gone"}])
def test_cells_that_were_not_as_meant_count_for_nothing(found: dict[str, Any], harm: dict[str, Any]) -> None:
    whole = report.section(found)
    stray = {"group": "speculation", "load": "waves", "width": 4, "arm": "K = 3", "round": 4, "tokens_per_second": 9e9}
    found["cells"].append({**found["cells"][-1], **stray, **harm})
    assert report.section(found) == whole
    found["cells"][-1] |= {"failed": 0, "k": 3.0}
    found["cells"][-1].pop("broken", None)
    assert report.section(found) != whole


def test_an_arm_that_was_not_measured_at_a_load_is_told(found: dict[str, Any]) -> None:
    found["cells"] = [cell for cell in found["cells"] if (cell["arm"], cell["width"]) != ("K = 1", 128)]
    assert row(report.section(found), "K = 1")[1] == "not measured"


def test_rounds_that_the_first_arm_lacks_are_not_compared(found: dict[str, Any]) -> None:
    found["cells"] = [cell for cell in found["cells"] if (cell["arm"], cell["round"]) != ("plain", 1)]
    cells = report.in_order(report.good(found))
    assert len(report.over(cells, "K = 3", ("waves", 4))) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "cannot be read"),
        ("[]", "no file of the accelerator kit"),
        ('{"format": 0}', "no file of the accelerator kit of format 1"),
        ('{"format": 1, "failed": "no accelerator"}', "has no figures. no accelerator"),
        (
            '{"format": 1, "stages": [{"name": "launches", "state": "failed", "why": "no torch"}]}',
            "has no figures. launches: no torch",
        ),
    ],
)
def test_a_file_of_which_no_page_can_be_made(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(BadResultsError, match=told):
        report.read(path)
