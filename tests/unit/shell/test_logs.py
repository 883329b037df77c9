"""Log lines: one JSON object each, with the object they are about."""

from __future__ import annotations

import json
import logging
import sys

from speculative_operator.shell.logs import JsonFormatter, TextFormatter


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("speculative_operator.shell.reconciler", logging.WARNING, "x.py", 1, message, (), None)
    made.__dict__.update(extra)
    return made


def test_json_is_one_line_with_the_extra_fields() -> None:
    text = JsonFormatter().format(record("two\nlines \u2713", namespace="ns", object="gemma"))
    assert "\n" not in text
    line = json.loads(text)
    assert (line["namespace"], line["object"], line["level"], line["logger"]) == (
        "ns",
        "gemma",
        "WARNING",
        "shell.reconciler",
    )
    assert line["message"] == "two\nlines \u2713"
    assert line["time"].endswith("+00:00")


def test_json_holds_the_traceback_and_values_that_are_not_json() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        info = sys.exc_info()
    made = record("failed", thing=object())
    made.exc_info = info
    line = json.loads(JsonFormatter().format(made))
    assert "ValueError: no" in line["exception"]
    assert line["thing"].startswith("<object")


def test_text_is_for_people() -> None:
    text = TextFormatter().format(record("applied", namespace="ns"))
    assert "WARNING" in text
    assert text.endswith("applied namespace=ns")
