"""`make chaos`: says each fault as it ends, writes docs/reliability.md; the last line is one JSON object."""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
from pathlib import Path

from chaos.faults import ALL, CONTROL, SHORT
from chaos.page import page
from chaos.run import play
from demo.scene import ROOT, SceneError
from devcluster.errors import DevClusterError

PAGE = ROOT / "docs" / "reliability.md"
SUMMARY = ROOT / "build" / "chaos" / "summary.json"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="of all that is drawn by chance")  # noqa: S311  a die
    parser.add_argument("--kills", type=int, default=30, help="how often the operator is killed")
    known = sorted(fault.__name__ for fault in ALL)
    parser.add_argument("--only", nargs="+", choices=known, help="these faults alone, and no page")
    parser.add_argument("--short", action="store_true", help="the part that `make test` runs, and no page")
    parser.add_argument("--page", type=Path, default=PAGE, help="where to write the page")
    return parser.parse_args()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    given = arguments()
    # a terminated run unwinds like an interrupted one, so that cluster and operator end with it
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = SHORT if given.short else ALL
    if given.only:
        chosen = [fault for fault in ALL if fault.__name__ in given.only]
    try:
        report = play(given.seed, chosen, kills=given.kills, short=given.short, say=say)
    except KeyboardInterrupt:
        say("interrupted: nothing is left behind")
        return 130
    except (SceneError, DevClusterError) as error:
        say(str(error))
        print(json.dumps({"ok": False, "seed": given.seed, "error": str(error).splitlines()[0]}))
        return 1
    if not given.only and not given.short:
        given.page.write_text(page(PAGE.read_text(), report, [*ALL, CONTROL]))
    summary = report.summary()
    SUMMARY.parent.mkdir(parents=True, exist_ok=True)
    SUMMARY.write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps(summary), flush=True)
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
