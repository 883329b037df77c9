"""Writes the dashboards of the chart: `python -m monitoring [--check]`.

Run by `make generate`; `--check` fails on drift and is run by CI.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from generate.__main__ import CHART, ROOT, drift
from monitoring import console
from monitoring.dashboards import DASHBOARDS


def files() -> dict[str, str]:
    """Path from the repository's root to text."""
    found = {f"dashboards/{name}": board.json() for name, board in DASHBOARDS.items()}
    found |= {f"console/{name}": console.board(board) for name, board in DASHBOARDS.items()}
    return {f"{CHART}/files/{path}.json": json.dumps(board, indent=1) + "\n" for path, board in found.items()}


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Exit status: 0 done or no drift, 1 drift."""
    parser = argparse.ArgumentParser(prog="python -m monitoring", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file differs")
    checks = parser.parse_args(arguments).check
    wanted = files()
    stale = drift(wanted, root)
    for path in stale:
        sys.stdout.write(f"{'differs' if checks else 'written'}: {path}\n")
        if not checks:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(wanted[path], encoding="utf-8")
    if stale and checks:
        sys.stderr.write("generated files differ from the code; run: make generate\n")
    return 1 if stale and checks else 0


if __name__ == "__main__":
    sys.exit(main())
