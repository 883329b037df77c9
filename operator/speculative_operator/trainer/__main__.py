"""`speculative-training look|finish`: what the Jobs of a training run beside the library's own programs.

Exit statuses are those of `speculative-weights` (`domain.jobs.Exit`), and so is where the result goes: the container's
termination message, else stdout.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from speculative_operator.domain.jobs import Exit
from speculative_operator.domain.reading import text
from speculative_operator.domain.training import Trained
from speculative_operator.trainer.finish import finish
from speculative_operator.trainer.look import look, refuse_folder_of_others, refuse_link, result_of
from speculative_operator.weights.cache import Cache
from speculative_operator.weights.result import leave_error, leave_result


def main(argv: Sequence[str] | None = None) -> int:
    """Run with `argv` (default: the process's arguments); the exit status."""
    given = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    os.umask(0o002)  # a claim shared by a group stays writable for its members
    try:
        refuse_link(given.output, given.claim)
        if given.command == "look":
            result = dict(_look(given))
        else:
            result = finish(given.verifier, given.output, given.method, given.base or str(given.verifier), given.data)
        return leave_result(result, Exit.DONE)
    except Exception as error:
        return leave_error(error, "speculative-training")


def _look(given: argparse.Namespace) -> dict[str, int]:
    refuse_folder_of_others(given.output, given.claim)
    verifier, fetched = result_of("verifier", given.inspected), result_of("prompts", given.fetched)
    mark, prompts = {"of": given.made_of, "verifier": text(verifier, "pin", "resolved")}, given.prompts
    if given.fetched:
        mark["data"] = text(fetched, "pin", "resolved")
        prompts = Cache(given.claim).model(text(fetched, "key")) / prompts
    return look(prompts, given.output, given.need, mark, answered=given.answered)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="speculative-training", description="Look at what a training needs, or finish it. The operator's Jobs do."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    looking = commands.add_parser("look", help="check prompts, folder and disk before any accelerator is taken")
    looking.add_argument("--prompts", type=Path, required=True, metavar="FILE", help="JSON lines")
    looking.add_argument("--need", type=int, default=0, metavar="BYTES", help="what must be free on the disk")
    looking.add_argument("--made-of", default="", metavar="TEXT", help="what tells this training from another one")
    looking.add_argument("--inspected", type=Path, metavar="FILE", help="facts of the verifier, with its version")
    looking.add_argument("--fetched", type=Path, metavar="FILE", help="facts of prompts in the cache of the claim")
    looking.add_argument("--answered", action="store_true", help="rows need answers: the verifier gives none")
    finishing = commands.add_parser("finish", help="judge the best checkpoint, describe it, publish it")
    finishing.add_argument("--verifier", type=Path, required=True, metavar="DIR")
    finishing.add_argument("--method", choices=list(Trained), default=Trained.EAGLE3, help="as the library spells it")
    finishing.add_argument("--base", default="", metavar="URI", help="the verifier's address, for the model card")
    finishing.add_argument("--data", default="", metavar="URI", help="the prompts' address, for the model card")
    for command in (looking, finishing):
        command.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the training")
        command.add_argument("--claim", type=Path, required=True, metavar="DIR", help="where its claim is mounted")
    return parser


if __name__ == "__main__":
    sys.exit(main())
