"""Release numbers of engines, compared. Used by the rows of the matrix and by every adapter's checks."""

from __future__ import annotations

import re

Version = tuple[int, int, int]

_FORM = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:[.+-]?[a-zA-Z][\w.+-]*|\+[\w.-]+)?")


def parse(text: str) -> Version | None:
    """`0.32.0`, `v0.32`, `0.11.0+rhai5`, `0.33.0rc1` -> the release they are built from; None for anything else.

    Vendors' suffixes and release candidates count as the release they name.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        return None
    major, minor, patch = match.groups(default="0")
    return (int(major), int(minor), int(patch))


def show(version: Version) -> str:
    return ".".join(map(str, version))
