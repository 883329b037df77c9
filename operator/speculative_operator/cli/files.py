"""Files that a user names on the command line, read whole. Used by `replay` and `simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from speculative_operator.cli.errors import UsageError

_LARGEST = 16 * 2**20


def document(path: str, option: str) -> Any:
    """The document that a YAML or JSON file holds. Raises UsageError."""
    import yaml

    try:
        return yaml.safe_load(text(path, option, _LARGEST))
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        place = getattr(problem, "problem_mark", None)
        where = f", line {place.line + 1}" if place is not None else ""
        said = getattr(problem, "problem", None) or str(problem).partition("\n")[0]
        raise UsageError(f"{option} {path}{where} is not YAML: {said}", "give one YAML or JSON document") from None


def text(path: str, option: str, largest: int) -> str:
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
