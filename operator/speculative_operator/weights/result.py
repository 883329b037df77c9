"""Where programs of Jobs leave their result, and the exit status of an error. For `__main__` here and in `trainer`."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speculative_operator.domain.jobs import RESULT_FILE, Exit, encode
from speculative_operator.domain.reasons import Reason
from speculative_operator.weights.source import WeightsError

TERMINATION_LOG = Path("/dev/termination-log")


def leave_error(error: Exception, program: str) -> int:
    """Write an error as the result, and a line on stderr; returns the exit status. What is no WeightsError is a bug of
    `program`, whose traceback is logged."""
    if not isinstance(error, WeightsError):
        logging.error("unexpected error: this is a bug of %s", program, exc_info=error)
        told, remedy = f"{type(error).__name__}: {error}", "read the log of the Job's pod and report it"
        error = WeightsError(Reason.UNKNOWN, told, remedy=remedy)
    sys.stderr.write(f"error: {error.side + ': ' if error.side else ''}{error}\n")
    return leave_result({"error": error.to_json()}, Exit.FINAL if error.final else Exit.AGAIN)


def leave_result(result: Mapping[str, Any], status: int) -> int:
    """Write the result: of a Job as its termination message, else on stdout, and into RESULT_FILE where that is set;
    returns `status`, or that of a result that is too large."""
    if RESULT_FILE in os.environ:
        Path(os.environ[RESULT_FILE]).write_text(json.dumps(result), encoding="utf-8")
    if not TERMINATION_LOG.exists():
        sys.stdout.write(json.dumps(result) + "\n")
        return status
    try:
        message = encode(result)
    except ValueError as error:
        large = WeightsError(Reason.PAIR_UNREAD, f"cannot report the result: {error}")
        message, status = encode({"error": large.to_json()}), Exit.FINAL
        sys.stderr.write(f"error: {large}\n")
    TERMINATION_LOG.write_text(message, encoding="utf-8")
    return status
