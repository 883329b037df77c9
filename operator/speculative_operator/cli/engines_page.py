"""Writes the matrix into docs/engines.md: `python -m speculative_operator.cli.engines_page [--check]`.

Run by `make generate`; `--check`, run by `make check-generated`, fails where the page differs from the rows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from speculative_operator.cli.marked import DOCS, Marked
from speculative_operator.engines.matrix import markdown

PAGE = Marked(DOCS / "engines.md", markdown.BEGIN, markdown.END, markdown.page)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: that of `Marked.main`."""
    return PAGE.main("speculative_operator.cli.engines_page", str(__doc__), arguments)


if __name__ == "__main__":
    sys.exit(main())
