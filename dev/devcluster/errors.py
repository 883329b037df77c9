"""The one error that people see: what went wrong and what to do about it.

Raised by every module of the package, printed without a traceback by the command line.
"""


class DevClusterError(RuntimeError):
    """Something a person can act on; `remedy` says how."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}\n{remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy
