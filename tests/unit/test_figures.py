"""Pictures of the pages that are what a command prints: they are drawn anew, and compared."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from figures import status_view

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize(
    ("draw", "image"), [(status_view.draw, status_view.IMAGE), (status_view.draw_moving, status_view.MOVING)]
)
def test_a_picture_of_status_is_what_status_prints(draw: Callable[[], str], image: Path) -> None:
    drawn = draw()
    assert drawn == image.read_text(encoding="utf-8"), "run: python -m figures.status_view"
    assert re.findall(r'(?:href|src|url)[=(]"?(?:https?:)', drawn) == [], "a page loads nothing from others"


def test_the_picture_of_the_demo_shows_the_figures_of_its_page() -> None:
    """Bars stand from left to right: tuned, two constant K, no speculation, for each load in turn."""
    drawn = re.findall(r'font-size="14">(\d+\.\d)<', (DOCS / "images" / "demo.svg").read_text(encoding="utf-8"))
    lines = (DOCS / "measured.md").read_text(encoding="utf-8").splitlines()
    rows = [re.findall(r"\d+\.\d", line) for line in lines if line.startswith("| ")]
    assert len(drawn) == 12
    assert all(drawn[copy::4] in rows for copy in range(4))
