"""Writes the matrix into docs/engines.md: `python -m speculative_operator.cli.engines_page [--check]`.

Run by `make generate`; `--check`, run by `make check-generated`, fails where the page differs from the rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from speculative_operator.engines.matrix import markdown

PAGE = Path(__file__).resolve().parents[3] / "docs" / "engines.md"


def placed(text: str) -> str:
    """`text` with the matrix between its marks. Raises ValueError where the marks are not there once and in order."""
    before, begin, rest = text.partition(markdown.BEGIN)
    _, end, after = rest.partition(markdown.END)
    if not begin or not end or markdown.BEGIN in rest or markdown.END in after:
        raise ValueError(f"the page needs one line {markdown.BEGIN} and, below it, one line {markdown.END}")
    return f"{before}{markdown.page()}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done or no drift, 1 drift, 2 a page without marks."""
    parser = argparse.ArgumentParser(prog="python -m speculative_operator.cli.engines_page", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the page differs")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    try:
        text = chosen.page.read_text(encoding="utf-8")
        wanted = placed(text)
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


if __name__ == "__main__":
    sys.exit(main())
