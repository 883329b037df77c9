"""Before an engine starts: what was published becomes the engine's own copy. Called by `__main__` in an init container.

All of a generation or nothing, and never a failure: an engine without the cache compiles, as it always did.
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
    """Fill `folders` of `target` from the newest generation that is whole; its name, or empty. Never raises."""
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
    """A volume that cannot be written to may be read nevertheless; one that is not ours is not. Raises ForeignError."""
    try:
        store.use()
    except ForeignError:
        raise
    except OSError as error:
        _log.info("cannot mark the compiled code as used: %s", error)


def unseed(target: Path, folders: tuple[str, ...]) -> None:
    """Take out of the engine's way what it was given."""
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
    """Raises OSError where the copy would leave the engine less than as much again."""
    wanted = sum(one.bytes for one in store.entries(generation))
    told = os.statvfs(target)
    if told.f_bavail * told.f_frsize < 2 * wanted:
        raise OSError(f"{target} has no room for {wanted} bytes")
