"""`make bench-scale`: 100 objects with pods, or `--count`; the last line is one JSON object (build/bench/scale.json).

With `--against REVISION` that revision of this repository is measured on the same bed in turn with this tree, and the
run fails where a ratio of the two is worse than its limit (`goals`). With `--soak MINUTES` objects come, change and go
for so long instead, and the run fails where memory grows with them (`soak`).
"""

from __future__ import annotations

import argparse
import io
import json
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import requests

from bench.scale.bed import Bed
from bench.scale.goals import Row, rows
from bench.scale.phases import Fleet, Found
from bench.scale.soak import soak
from devcluster.errors import DevClusterError
from speculative_operator.cli import terminal

ROOT = Path(__file__).resolve().parents[3]
OUT = ROOT / "build" / "bench"
HEADERS = ("", "this tree", "other", "ratio", "limit", "goal", "foreign cores")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-scale", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="objects; default 100")
    parser.add_argument("--against", metavar="REVISION", help="of this repository, to compare with")
    parser.add_argument("--rounds", type=int, help="how often each is measured; default 1, beside another revision 2")
    parser.add_argument("--rest", type=float, default=60.0, help="seconds at rest; default 60")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="let objects come and go for so long, instead")
    given = parser.parse_args()
    given.rounds = given.rounds or (2 if given.against else 1)
    return given


def checked_out(revision: str, folder: Path) -> Path:
    """The files of a revision; neither branches nor work trees of the repository know of it."""
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", revision], stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def measured(given: argparse.Namespace, other: Path | None) -> dict[str, list[Found]]:
    """By tree, its rounds: one after the other, and the other way round in every second one."""
    trees = {"this tree": ROOT} | ({given.against: other} if other else {})
    found: dict[str, list[Found]] = {name: [] for name in trees}
    for number in range(given.rounds):
        for name in list(trees)[:: -1 if number % 2 else 1]:
            say(f"round {number + 1}: {name}")
            log = OUT / ("scale.log" if name == "this tree" else "scale-other.log")
            log.unlink(missing_ok=True)
            with Bed.opened(trees[name], log, lambda _: None) as bed:
                found[name].append(Fleet(bed, given.count, given.rest, say).measure())
    return found


def judged(given: argparse.Namespace, found: dict[str, list[Found]]) -> dict[str, Any]:
    """The table, printed, and the verdict."""
    everything = [one for rounds in found.values() for one in rounds]
    busy = {phase: max(one.foreign_cores[phase] for one in everything) for phase in everything[0].foreign_cores}
    here, there = ([one.figures for one in found.get(name, ())] for name in ("this tree", given.against))
    table = rows(here, there, busy)
    lines = [_cells(row, given.count) for row in table]
    terminal.write_table(sys.stderr, HEADERS, lines, frozenset(range(1, len(HEADERS))))
    worse = [row.measure.key for row in table if row.worse]
    return {
        "ok": not worse,
        "count": given.count,
        "against": given.against,
        "worse": worse,
        "not_judged": [row.measure.key for row in table if row.busy],
        "ratios": {row.measure.key: round(row.ratio, 3) for row in table if row.ratio is not None},
        "rounds": {name: [vars(one) for one in rounds] for name, rounds in found.items()},
    }


def _cells(row: Row, count: int) -> list[str]:
    goal, ratio = row.goal(count), row.ratio
    verdict = "" if ratio is None else f"{ratio:.2f}{' WORSE' if row.worse else ' busy' if row.busy else ''}"
    return [
        row.measure.text, f"{row.here:g}", "" if row.there is None else f"{row.there:g}", verdict,
        f"{row.measure.limit:g}", "" if goal is None else f"{goal:g}", f"{row.foreign:.2f}",
    ]  # fmt: skip


def main() -> int:
    given = arguments()
    # a terminated run unwinds like an interrupted one, so that its cluster ends with it
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    OUT.mkdir(parents=True, exist_ok=True)
    try:
        if given.soak:
            summary = soak(ROOT, OUT / "soak.log", given.soak, say)
        else:
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                other = checked_out(given.against, Path(folder)) if given.against else None
                summary = judged(given, measured(given, other))
    except (TimeoutError, DevClusterError, requests.RequestException) as error:
        summary = {"ok": False, "error": str(error).splitlines()[0]}
    (OUT / ("soak.json" if given.soak else "scale.json")).write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps(summary), flush=True)
    return 0 if summary["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
