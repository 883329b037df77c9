"""The demo's page fits a phone: its template has what makes pages scroll sideways in a scroller of its own."""

from __future__ import annotations

import re

import pytest
from tests.unit.narrow import too_wide

from demo.report import TEMPLATES

PAGE = (TEMPLATES / "report.html.j2").read_text(encoding="utf-8")


def test_the_page_fits_a_phone() -> None:
    assert too_wide(PAGE) == []


def test_a_run_is_compared_with_itself_alone() -> None:
    """Figures of other versions of the project say nothing to who sees the page."""
    assert re.findall(r"git |earlier version|first version|previous version", PAGE.split("</style>")[1]) == []


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ('class="wide"', "table of 6 columns"),
        ("overflow-x: auto", "class wide does not scroll"),
        ('name="viewport"', "no viewport"),
        ("<h1>", "svg of width 960"),
    ],
)
def test_what_is_too_wide_is_found(part: str, found: str) -> None:
    assert found in too_wide(PAGE.replace(part, '<svg width="960"></svg>' if part == "<h1>" else ""))
