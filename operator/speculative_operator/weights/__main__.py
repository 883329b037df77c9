"""`speculative-weights inspect|fetch`: what the operator's Jobs run, and `hold` beside engines.

Exit status 0 with a result; 1 or 3 with an error as the result and one line on stderr, 3 where another try would fail
in the same way; 2 wrong use of the command line; 143 ended by SIGTERM (130 by SIGINT), to be gone on with.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from speculative_operator.domain.jobs import Exit, Progress, progress_line
from speculative_operator.weights.bring import Stopped
from speculative_operator.weights.cache import GRACE_SECONDS
from speculative_operator.weights.command import SIDES, copy_result, fetch_pair, hold, inspect_pair
from speculative_operator.weights.result import leave_error, leave_result


def main(argv: Sequence[str] | None = None) -> int:
    """Run with `argv` (default: the process's arguments); the exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.command in ("inspect", "fetch") and not any(vars(options).get(side) for side in SIDES):
        parser.error("neither --verifier nor --speculator is given: give at least one")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    os.umask(0o002)  # a claim shared by a group stays writable for its members
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        if options.command == "hold":
            hold(options.cache, options.version, options.object, expires=options.collect)
        if options.command == "copy":
            return leave_result(copy_result(options), Exit.DONE)
        result = inspect_pair(options) if options.command == "inspect" else fetch_pair(options, _tell)
        return leave_result(result, Exit.DONE)
    except Stopped as stopped:
        if options.command == "hold":
            return Exit.DONE
        sys.stderr.write("stopped before it was done; downloaded bytes stay in the cache\n")
        return 128 + int(stopped.args[0])
    except Exception as error:
        return leave_error(error, "speculative-weights")


def _stop(number: int, _: object) -> None:
    """End whatever runs, once: a cache survives an end at any instant."""
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, signal.SIG_IGN)
    raise Stopped(number)


def _tell(progress: Progress) -> None:
    sys.stdout.write(progress_line(progress) + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="speculative-weights",
        description="Inspect or fetch the models of a pair. The operator's Jobs run this program.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    inspecting = commands.add_parser("inspect", help="read what a check of the pair needs, without weights")
    fetching = commands.add_parser("fetch", help="fetch both models, or one, into a cache")
    _sides(inspecting, alone=False)
    _sides(fetching, alone=True)
    fetching.add_argument("--prompts", metavar="URI", help="a file of a data set, hf://datasets/ORGANISATION/NAME/FILE")
    fetching.add_argument("--prompts-revision", metavar="REVISION", help="branch, tag or commit")
    copying = commands.add_parser("copy", help="copy the result of a training to a bucket")
    copying.add_argument("--training", type=Path, required=True, metavar="DIR", help="folder of the training")
    copying.add_argument("--claim", type=Path, required=True, metavar="DIR", help="where its claim is mounted")
    copying.add_argument("--owner", required=True, metavar="NAMESPACE/URI", help="address of the training's folder")
    copying.add_argument("--to", required=True, metavar="URI", help="s3://BUCKET/PREFIX")
    copying.add_argument("--begin", action="store_true", help="only mark the prefix: there is no result yet")
    holding = commands.add_parser("hold", help="mark versions of a cache as used until this program ends")
    for command in (fetching, holding):
        command.add_argument("--cache", type=Path, required=True, metavar="DIR", help="root of the cache")
        command.add_argument(
            "--object", default="local/local", metavar="NAMESPACE/NAME", help="object that uses the pair"
        )
        command.add_argument(
            "--collect",
            action="store_true",
            help="allow the removal of these versions once they are unused; with fetch, remove unused versions",
        )
    holding.add_argument(
        "--version", action="append", required=True, metavar="KEY", help="a version in use; may be repeated"
    )
    fetching.add_argument(
        "--keep", action="append", default=[], metavar="KEY", help="a version never to remove; may be repeated"
    )
    fetching.add_argument(
        "--grace",
        type=float,
        default=GRACE_SECONDS,
        metavar="SECONDS",
        help="with --collect: remove versions unused for this time (default: %(default).0f)",
    )
    fetching.add_argument(
        "--listed-at",
        type=float,
        metavar="UNIX",
        help="time of the list in --keep; if it is older than an hour, nothing is removed",
    )
    fetching.add_argument(
        "--reserve",
        type=_percent,
        default=0,
        metavar="PERCENT",
        help="percent of the disk that stays free (default: 0)",
    )
    return parser


def _sides(command: argparse.ArgumentParser, *, alone: bool) -> None:
    """Add the arguments that name both models. `alone`: a speculator may come without its verifier, which lies
    elsewhere."""
    command.add_argument("--verifier", required=not alone, metavar="URI", help="hf://, oci://, s3:// or pvc://")
    command.add_argument("--verifier-revision", metavar="REVISION", help="branch, tag, commit or digest")
    command.add_argument("--speculator", metavar="URI")
    command.add_argument("--speculator-revision", metavar="REVISION")
    command.add_argument(
        "--claims-at", type=Path, metavar="DIR", default=Path("/claims"), help="folder below which claims are mounted"
    )


def _percent(text: str) -> int:
    """The reader of an argument that is a whole number from 0 to 95."""
    if not 0 <= int(text) <= 95:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 95")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
