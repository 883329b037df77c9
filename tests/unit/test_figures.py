"""Pictures of the pages that are what a command prints: they are drawn anew, and compared."""

from __future__ import annotations

import re
from pathlib import Path

from figures import concepts, status_view

PAGE = Path(__file__).resolve().parents[2] / "docs" / "measured.md"


def test_the_picture_of_status_is_what_status_prints() -> None:
    drawn = status_view.draw()
    assert drawn == status_view.IMAGE.read_text(encoding="utf-8"), "run: python -m figures.status_view"
    assert re.findall(r'(?:href|src|url)[=(]"?(?:https?:)', drawn) == [], "a page loads nothing from others"


def test_the_picture_of_the_demo_shows_the_figures_of_its_page() -> None:
    assert concepts.demo() == (concepts.IMAGES / "demo.svg").read_text(encoding="utf-8")
    rows = [re.findall(r"\d+\.\d", line) for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    for copies in zip(*concepts.DEMO.values(), strict=True):
        assert [str(figure) for figure in copies] in rows
