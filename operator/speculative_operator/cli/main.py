"""Entry point of `speculative`: finds the command, reads its arguments, turns errors into one line and a status."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from speculative_operator.cli.commands import INTERRUPTED, OK, USAGE, CommandError
from speculative_operator.cli.completion import candidates
from speculative_operator.cli.parsers import command, parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["__complete"]:
        sys.stdout.writelines(f"{one}\n" for one in candidates(words[1:]))
        return OK
    name = next((word for word in words if not word.startswith("-")), "")
    try:
        module = command(name) if name else None
        arguments = parser(name, module).parse_args(words or ["--help"])
        if module is None:
            return USAGE
        status = module.run(arguments)
        sys.stdout.flush()
        return int(status)
    except CommandError as problem:
        sys.stderr.write(f"error: {problem}\n")
        return problem.status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has gone: whoever ends a pipe early has what he wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


if __name__ == "__main__":
    sys.exit(main())
