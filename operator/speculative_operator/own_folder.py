"""The one folder of a volume in which the operator's programs keep what is theirs, and the marker that proves it.

Volumes are shared: with models that others put there, other namespaces, other clusters. So whatever is written or
removed lies below `FOLDER` of the volume's root, and a folder by that name that bears no marker is left alone. Used by
`weights`.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = ".speculative-cache"
MARKER = "cache.json"
FORMAT = 1


class ForeignError(OSError):
    """What lies by the name of our folder is not ours."""


def own_folder(root: Path, kind: str) -> Path:
    """`FOLDER` of `root`, made and marked as a cache of `kind` where it is missing or empty. Raises
    ForeignError where something else is there; other OSError where this process may not write."""
    folder = root / FOLDER
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        with contextlib.suppress(PermissionError):
            folder.chmod(0o775)
    if folder.is_symlink() or not folder.is_dir():
        raise ForeignError(f"{FOLDER} in its root is no folder")
    found = _marker(folder)
    if found is None:
        strange = sorted(path.name for path in folder.iterdir() if not path.name.startswith(MARKER))
        if not strange:
            _mark(folder, kind)
        found = _marker(folder)  # another process may have marked the folder before it filled it
        if found is None:
            raise ForeignError(f"{FOLDER} in its root holds {strange[0]}, and no {MARKER} says that it is a cache")
    if found.get("kind") != kind or found.get("format") != FORMAT:
        has, wants = (f"kind {one.get('kind')}, format {one.get('format')}" for one in (found, _contents(kind)))
        raise ForeignError(f"{FOLDER}/{MARKER} in its root says {has}; this program has {wants}")
    return folder


def _contents(kind: str) -> dict[str, Any]:
    return {"kind": kind, "format": FORMAT}


def _marker(folder: Path) -> Mapping[str, Any] | None:
    """What the marker says; None where there is none."""
    try:
        found = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _mark(folder: Path, kind: str) -> None:
    """By one rename, so that nobody reads half of it; processes that do so at the same time write the same."""
    draft = folder / f"{MARKER}.{os.getpid()}-{time.time_ns()}"
    with draft.open("w", encoding="utf-8") as file:
        json.dump(_contents(kind), file)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(folder / MARKER)
