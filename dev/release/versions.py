"""The version of a release in every file that bears it. `pyproject.toml` is the one place that decides; this writes the
others after it, a test compares them, and what is generated follows by `make generate`. Called by `release`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = "pyproject.toml"
PATTERNS = {
    SOURCE: r'^version = "(.+)"$',
    "lab/pyproject.toml": r'^(?:version = |  "speculative-operator==)"?([0-9][^"]*)"',
    "operator/speculative_operator/__init__.py": r'^__version__ = "(.+)"$',
    "charts/speculative-operator/Chart.yaml": r'^(?:version|appVersion): "?([^"\n]+)"?$',
    "README.md": r"\bspeculative-operator:(\d+\.\d+\.\d+\S*?)(?=[\s|`]|$)",
    "docs/quick-start-*.md": r"\bspeculative-operator:(\d+\.\d+\.\d+\S*?)(?=[\s|`]|$)",
}
"""File, or pattern of files, to what of a line is the version, in its only group."""


def list_versions(root: Path) -> Iterator[tuple[str, str]]:
    """Each file with the version that it bears, once for every place in it."""
    for path, pattern in _files(root):
        for version in re.findall(pattern, path.read_text(encoding="utf-8"), re.MULTILINE):
            yield str(path.relative_to(root)), version


def write(root: Path, version: str) -> None:
    """Put `version` in all places."""
    for path, pattern in _files(root):

        def named(match: re.Match[str]) -> str:
            begin, end = (position - match.start() for position in match.span(1))
            return f"{match[0][:begin]}{version}{match[0][end:]}"

        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(pattern, named, text, flags=re.MULTILINE), encoding="utf-8")


def _files(root: Path) -> Iterator[tuple[Path, str]]:
    for name, pattern in PATTERNS.items():
        yield from ((path, pattern) for path in sorted(root.glob(name)))
