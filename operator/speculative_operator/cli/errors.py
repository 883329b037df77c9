"""The errors with which a command stops. Raised by every command, printed by `main`."""

from __future__ import annotations

OK = 0
FAILED = 1
"""Exit status of a command that found something wrong, or could not do its work."""
USAGE = 2
"""Exit status of a wrong command line."""
INTERRUPTED = 130


class CommandError(Exception):
    """A command cannot go on. `str()` gives the problem and its remedy, in one line."""

    def __init__(self, problem: str, remedy: str = "", status: int = FAILED) -> None:
        self.problem, self.status = problem, status
        super().__init__(f"{problem}; {remedy}" if remedy else problem)


class UnseenError(CommandError):
    """The user may not see something of the cluster."""


class UsageError(CommandError):
    """The command line is wrong."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem, remedy, USAGE)
