"""Places what the code generates between two marks of a page in docs/. Used by `engines_page` and `pairs_page`.

The rest of the page is written by hand and stays.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[3] / "docs"


@dataclass(frozen=True, slots=True)
class Marked:
    """`content()` begins with the line `begin` and ends with the line `end`."""

    page: Path
    begin: str
    end: str
    content: Callable[[], str]

    def placed(self, text: str) -> str:
        """`text` with the content in place. Raises ValueError where the marks are not there once and in order."""
        before, begin, rest = text.partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not begin or not end or self.begin in rest or self.end in after:
            raise ValueError(f"the page needs one line {self.begin} and, below it, one line {self.end}")
        return f"{before}{self.content()}{after}"

    def main(self, program: str, about: str, arguments: Sequence[str] | None) -> int:
        """Write the page, or with `--check` compare. Exit status: 0 done, 1 drift, 2 a page without marks."""
        parser = argparse.ArgumentParser(prog=f"python -m {program}", description=about)
        parser.add_argument("--check", action="store_true", help="write nothing; fail when the page differs")
        parser.add_argument("--page", type=Path, default=self.page, help="the page (default: %(default)s)")
        chosen = parser.parse_args(arguments)
        try:
            text = chosen.page.read_text(encoding="utf-8")
            wanted = self.placed(text)
        except (OSError, ValueError) as problem:
            sys.stderr.write(f"{chosen.page}: {problem}\n")
            return 2
        if wanted == text:
            return 0
        if chosen.check:
            sys.stderr.write(f"differs: {chosen.page}; run: make generate\n")
            return 1
        chosen.page.write_text(wanted, encoding="utf-8")
        sys.stdout.write(f"written: {chosen.page}\n")
        return 0
