"""Logs of the operator: one JSON object per line, or text for a terminal. Set up once by app.

No bodies of objects are logged, and credentials in addresses are taken out of every line. kopf and the client libraries
speak from WARNING on: below that they log whole objects.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from speculative_operator.domain.reasons import without_credentials

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
LOUD = ("kopf", "kubernetes", "aiohttp", "asyncio", "urllib3", "requests", "prometheus_api_client")


class JsonFormatter(logging.Formatter):
    """Time, level, logger, message, and whatever `extra=` holds: mostly `namespace` and `name` of an object."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name.removeprefix("speculative_operator."),
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        line = {name: without_credentials(value) if isinstance(value, str) else value for name, value in line.items()}
        return json.dumps(line, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """The same fields as text for people."""

    def format(self, record: logging.LogRecord) -> str:
        extra = " ".join(f"{name}={value}" for name, value in vars(record).items() if name not in _PLAIN)
        when = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        text = f"{when} {record.levelname:7} {record.getMessage()}{' ' if extra else ''}{extra}"
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return without_credentials(text)


def configure(level: str, form: str) -> None:
    """Send everything to standard error in the chosen form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in LOUD:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
