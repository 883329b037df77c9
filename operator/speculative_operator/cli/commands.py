"""What every command shares: its exit statuses, the errors with which it stops, and the values that people give it
on the command line, files and points in time.

The errors are printed by `main`; the laboratory's commands use the same.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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


def check_ranges(arguments: Any, **ranges: tuple[int, int]) -> None:
    """Raises UsageError where an option that is given is below the first or above the second number of its range."""
    for name, (least, most) in ranges.items():
        value = getattr(arguments, name)
        if value is not None and not least <= value <= most:
            raise UsageError(f"--{name.replace('_', '-')} is {value}", f"give a number from {least} to {most:,}")


_LARGEST = 16 * 2**20


def read_document(path: str, option: str) -> Any:
    """The document that a YAML or JSON file holds. Raises UsageError."""
    import yaml

    try:
        return yaml.safe_load(read_text(path, option, _LARGEST))
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        place = getattr(problem, "problem_mark", None)
        where = f", line {place.line + 1}" if place is not None else ""
        said = getattr(problem, "problem", None) or str(problem).partition("\n")[0]
        raise UsageError(f"{option} {path}{where} is not YAML: {said}", "give one YAML or JSON document") from None


FILES = (".yaml", ".yml", ".json")
OF_A_HUB = re.compile(r"(hf://)?\w[\w.-]*/\w[\w.-]*(@[\w./-]+)?")
"""A model as hubs name it: ORGANISATION/MODEL, with or without a revision."""


def add_object(parser: Any) -> None:
    """Add the arguments by which a command that needs no cluster is given an object."""
    parser.add_argument(
        "file", metavar="FILE|MODEL", help="SpeculativeDeployment (YAML or JSON), or ORGANISATION/MODEL"
    )
    parser.add_argument("--on", metavar="PRODUCT", default="", help="accelerator of MODEL, such as H100-SXM")


def read_object(arguments: Any) -> Any:
    """The object of `add_object`: of a file, or one that serves the model with the speculator that `auto` picks. Raises
    UsageError."""
    given = arguments.file
    if Path(given).exists() or not OF_A_HUB.fullmatch(given) or given.lower().endswith(FILES):
        if arguments.on:
            raise UsageError("--on is given together with a file", "write accelerator.product into the file")
        return read_document(given, "FILE")
    model = given.removeprefix("hf://")
    name = re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].partition("@")[0].lower()).strip("-")[:40]
    spec = {"verifier": {"model": f"hf://{model}"}, "speculator": {"auto": True}}
    accelerator = {"accelerator": {"product": arguments.on}} if arguments.on else {}
    return {"metadata": {"name": name}, "spec": {**spec, **accelerator}}


def read_text(path: str, option: str, largest: int) -> str:
    """The text of a file of at most `largest` bytes. Raises UsageError."""
    file = Path(path)
    try:
        if file.stat().st_size > largest:
            raise UsageError(f"{option} {path} is larger than {largest // 2**20} MiB", "give a smaller file")
        return file.read_text(encoding="utf-8-sig")
    except OSError as problem:
        raise UsageError(f"{option} {path}: {problem.strerror}", "give a readable file") from None
    except UnicodeDecodeError:
        raise UsageError(f"{option} {path} is not UTF-8", "give a text file") from None


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_MOST_SECONDS = 366 * 86_400.0


def parse_duration(text: str, option: str) -> float:
    """Seconds of `90`, `90s`, `15m`, `2h`, `1d`. Raises UsageError naming `option`."""
    form = _DURATION.fullmatch(text.strip())
    value = float(form.group(1)) * _UNITS[form.group(2) or "s"] if form else 0.0
    if not 0 < value <= _MOST_SECONDS:
        raise UsageError(f"{option} is {text!r}", "write a duration such as 30s, 15m, 2h or 1d")
    return value


def parse_moment(text: str, option: str, now: float) -> float:
    """Unix seconds of `now`, `2h` (that long ago; `-2h` says the same), `2026-01-31T12:00:00Z` (UTC where it
    names no zone), or unix seconds."""
    plain = text.strip()
    if plain == "now":
        return now
    form = _DURATION.fullmatch(plain.removeprefix("-"))
    if form and form.group(2):
        return now - float(form.group(1)) * _UNITS[form.group(2)]
    if form and not plain.startswith("-"):
        return float(plain)
    try:
        found = datetime.fromisoformat(plain)
    except ValueError:
        remedy = "write now, how long ago (2h), 2026-01-31T12:00:00Z, or unix seconds"
        raise UsageError(f"{option} is {text!r}", remedy) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def format_time(time: float) -> str:
    """`2026-01-31 12:00:05`, in UTC."""
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S}"


def format_age(seconds: float) -> str:
    """An age as text: `45s`, `12m`, `7h`, `3d`."""
    for unit, one in (("d", 86_400.0), ("h", 3600.0), ("m", 60.0)):
        if seconds >= 2 * one:
            return f"{int(seconds // one)}{unit}"
    return f"{max(int(seconds), 0)}s"
