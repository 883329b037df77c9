"""What a command says when it cannot go on. Raised by every command, printed by `main`."""

from __future__ import annotations

OK = 0
FAILED = 1
"""The command did its work and found something wrong, or could not do it."""
USAGE = 2
"""The command line itself is wrong."""
INTERRUPTED = 130


class CommandError(Exception):
    """A command cannot go on. `str()` is the problem and its remedy, in one line."""

    def __init__(self, problem: str, remedy: str = "", status: int = FAILED) -> None:
        self.problem, self.status = problem, status
        super().__init__(f"{problem}; {remedy}" if remedy else problem)


class UnseenError(CommandError):
    """The cluster does not let this user see something."""


class UsageError(CommandError):
    """The command line is wrong."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem, remedy, USAGE)
