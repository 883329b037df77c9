"""Atomic update of a directory of files by one symbolic link, exactly as a kubelet does it.

``key`` -> ``..data/key``, ``..data`` -> ``..2026_01_31_12_00_00.123``. A reader that opens ``..data`` sees either all
old or all new files. Used for ConfigMap, Secret, downward API and projected volumes by ``volumes``.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

DATA = "..data"
_NEW = "..data_tmp"


@dataclass(frozen=True)
class File:
    """Content and permission bits of one projected file."""

    data: bytes
    mode: int = 0o644


def write(directory: Path, files: Mapping[str, File], now: float) -> bool:
    """Make the directory hold exactly these files (relative paths). True when anything changed."""
    link = directory / DATA
    current = directory / link.readlink() if link.is_symlink() else None
    if current is not None and _content(current) == dict(files):
        return False
    stamp = datetime.fromtimestamp(now, UTC).strftime("..%Y_%m_%d_%H_%M_%S.%f")
    fresh = _unused(directory, stamp)
    fresh.mkdir(mode=0o755)
    for name, file in files.items():
        path = fresh / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
        path.chmod(file.mode)
    (directory / _NEW).unlink(missing_ok=True)
    (directory / _NEW).symlink_to(fresh.name)
    (directory / _NEW).replace(link)
    _link_names(directory, {name.split("/", 1)[0] for name in files})
    if current is not None:
        shutil.rmtree(current, ignore_errors=True)
    return True


def _unused(directory: Path, stamp: str) -> Path:
    """A name no earlier write in the same microsecond took."""
    count = 0
    while (directory / f"{stamp}{count or ''}").exists():
        count += 1
    return directory / f"{stamp}{count or ''}"


def _content(directory: Path) -> dict[str, File]:
    return {
        str(path.relative_to(directory)): File(path.read_bytes(), path.stat().st_mode & 0o7777)
        for path in directory.rglob("*")
        if path.is_file()
    }


def _link_names(directory: Path, names: set[str]) -> None:
    for name in names:
        link = directory / name
        if not link.is_symlink():
            link.symlink_to(f"{DATA}/{name}")
    for path in list(directory.iterdir()):
        if path.is_symlink() and not path.name.startswith("..") and path.name not in names:
            path.unlink()
