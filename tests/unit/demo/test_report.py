"""The demo's page compares a run with itself alone."""

from __future__ import annotations

import re

from demo.report import TEMPLATES

PAGE = (TEMPLATES / "report.html.j2").read_text(encoding="utf-8")


def test_a_run_is_compared_with_itself_alone() -> None:
    """Figures of other versions of the project say nothing to who sees the page."""
    assert re.findall(r"git |earlier version|first version|previous version", PAGE.split("</style>")[1]) == []
