"""Pictures of the pages that are what a command prints: they are drawn anew, and compared."""

from __future__ import annotations

import re

from figures import status_view


def test_the_picture_of_status_is_what_status_prints() -> None:
    drawn = status_view.draw()
    assert drawn == status_view.IMAGE.read_text(encoding="utf-8"), "run: python -m figures.status_view"
    assert re.findall(r'(?:href|src|url)[=(]"?(?:https?:)', drawn) == [], "a page loads nothing from others"
