"""Copies published code into the engine's own folder before the engine starts. Called by `__main__` in an init
container.

It copies a whole generation or nothing, and never fails: an engine without the cache compiles, as it always did.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from pathlib import Path

from speculative_operator.compiled.store import Store, TornError
from speculative_operator.own_folder import ForeignError

MARK = ".compiled-generation"
"""File in the engine's cache folder: the generation that it was filled from."""
_STAGE = ".compiled-stage"
_OPEN_FOLDER = 0o777

_log = logging.getLogger(__name__)


def seed(store: Store, target: Path, folders: tuple[str, ...]) -> str:
    """Fill `folders` of `target` from the newest whole generation; returns its name, or an empty text. Never raises."""
    try:
        if any((target / folder).exists() for folder in folders):
            _log.info("the engine's cache folders exist already: leaving them unchanged")
            return ""
        (target / MARK).unlink(missing_ok=True)  # of a start that was ended before anything was in place
        _use(store)
        tried: list[str] = []
        while left := [one for one in store.generations() if one not in tried]:
            # Looked for again: what is found may go while it is copied, because a newer one has just come.
            if _fill(store, left[0], target, folders):
                _log.info("restored compiled code of %s %s", store.key, left[0])
                return left[0]
            tried.append(left[0])
    except OSError as error:
        _log.warning("no compiled code, because the volume cannot be read: %s", error)
        return ""
    _log.info("no compiled code for %s: the engine compiles", store.key)
    return ""


def _use(store: Store) -> None:
    """Mark the key as used, on a volume that may be read-only. Raises ForeignError for a volume that is not ours."""
    try:
        store.use()
    except ForeignError:
        raise
    except OSError as error:
        _log.info("cannot mark the compiled code as used: %s", error)


def unseed(target: Path, folders: tuple[str, ...]) -> None:
    """Remove the seeded folders from the engine's cache."""
    for folder in folders:
        with contextlib.suppress(OSError):
            aside = target / f"{_STAGE}-{folder.replace('/', '-')}"
            (target / folder).rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
    with contextlib.suppress(OSError):
        (target / MARK).unlink()


def _fill(store: Store, generation: str, target: Path, folders: tuple[str, ...]) -> bool:
    stage = target / _STAGE
    try:
        _room(store, generation, target)
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir()
        store.copy_out(generation, stage)
        # First, so that whatever is in place of a start that is ended in between can be taken away again.
        (target / MARK).write_text(generation, encoding="utf-8")
        _place(stage, target, folders)
    except (TornError, FileNotFoundError) as error:
        _log.warning("compiled code %s is incomplete or was removed meanwhile: %s", generation, error)
        with contextlib.suppress(OSError):
            store.discard(generation)
    except OSError as error:
        _log.warning("cannot use compiled code %s: %s", generation, error)
    else:
        return True
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    unseed(target, folders)
    return False


def _place(stage: Path, target: Path, folders: tuple[str, ...]) -> None:
    for folder in folders:
        if not (stage / folder).exists():
            continue
        parent = (target / folder).parent
        if parent != target:
            parent.mkdir(parents=True, exist_ok=True)
            parent.chmod(_OPEN_FOLDER)  # the engine, under another user id, keeps more there
        (stage / folder).rename(target / folder)


def _room(store: Store, generation: str, target: Path) -> None:
    """Check the room for a copy. Raises OSError where less than twice its size is free."""
    wanted = sum(one.bytes for one in store.entries(generation))
    told = os.statvfs(target)
    if told.f_bavail * told.f_frsize < 2 * wanted:
        raise OSError(f"{target} has no room for {wanted} bytes")
