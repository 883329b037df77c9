"""Publishes what a serving engine compiled, once the engine serves. Called by `__main__` in a side container.

The engine's health is the proof: code is published only after an engine started with it. Seeded code with which no
engine becomes healthy within `patience` is removed from the engine's folder and from the volume, so that no pod starts
from it for ever in vain.
"""

from __future__ import annotations

import logging
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from speculative_operator.compiled.seed import MARK, unseed
from speculative_operator.compiled.store import Store, TornError, list_files

POLL_SECONDS = 5.0
QUIET_SECONDS = 60.0
"""Seconds without a changed file after which the engine has compiled what it compiles at its start."""
SECOND_LOOK_SECONDS = 900.0
"""Seconds until the second look: the first requests may compile more."""
TOUCH_SECONDS = 86400.0
_TRIES = 10
_ENGINES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""TLS without verification: an engine's certificate names its Service, not 127.0.0.1."""
_ENGINES.check_hostname, _ENGINES.verify_mode = False, ssl.CERT_NONE

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Watch:
    """The engine whose compiled code is kept, where it is kept, and how long to wait."""

    store: Store
    target: Path
    folders: tuple[str, ...]
    health: str
    """URL that answers 200 once the engine serves."""
    patience: float
    name: str
    """Name of this pod's generations, which tells the pod from others."""
    quiet: float = QUIET_SECONDS
    second_look: float = SECOND_LOOK_SECONDS
    poll: float = POLL_SECONDS


def keep(watch: Watch, pause: Callable[[float], None] = time.sleep) -> None:
    """Publish twice, then only tell that the key is in use. Returns never, but for an exception of `pause`."""
    _await(watch, pause)
    for wait in (0.0, watch.second_look):
        pause(wait)
        for _ in range(_TRIES):
            _settle(watch, pause)
            if _publish(watch):
                break
    while True:
        pause(TOUCH_SECONDS)
        try:
            watch.store.use()
        except OSError as error:
            _log.warning("cannot write to the volume: %s", error)


def _await(watch: Watch, pause: Callable[[float], None]) -> None:
    """Wait until the engine is healthy; after `patience` seconds remove the seeded code once."""
    deadline = time.monotonic() + watch.patience
    while not _healthy(watch.health):
        if time.monotonic() > deadline:
            _give_up(watch)
            deadline = float("inf")
        pause(watch.poll)


def _give_up(watch: Watch) -> None:
    try:
        generation = (watch.target / MARK).read_text(encoding="utf-8").strip()
    except OSError:
        return  # it compiles itself: nothing of ours is in its way
    _log.warning(
        "the engine was not healthy within %.0f s of a start with the compiled code %s: removing that code",
        watch.patience,
        generation,
    )
    unseed(watch.target, watch.folders)
    try:
        watch.store.discard(generation)
    except OSError as error:
        _log.warning("cannot remove %s from the volume: %s", generation, error)


def _settle(watch: Watch, pause: Callable[[float], None]) -> None:
    """Wait until no file has changed for `quiet` seconds."""
    files, since = _list(watch), time.monotonic()
    while time.monotonic() - since < watch.quiet:
        pause(watch.poll)
        if (now := _list(watch)) != files:
            files, since = now, time.monotonic()


def _list(watch: Watch) -> object:
    try:
        return list_files(watch.target, watch.folders)
    except OSError:
        return None


def _publish(watch: Watch) -> bool:
    """Publish the compiled code as a new generation; False where another attempt is worth it."""
    try:
        generation = watch.store.publish(watch.target, watch.folders, watch.name)
        if generation:
            _log.info("published compiled code: %s %s", watch.store.key, generation)
    except TornError as error:
        _log.info("compiled code is not published: %s", error)
        return False
    except OSError as error:
        _log.warning("cannot publish compiled code, the engine runs on without: %s", error)
        return not _collect(watch)  # a full volume may have room by now
    _collect(watch)
    return True


def _collect(watch: Watch) -> bool:
    """Remove unused code from the volume; True where any was removed."""
    try:
        gone = watch.store.collect()
    except OSError as error:
        _log.warning("cannot clean up the volume: %s", error)
        return False
    if gone:
        _log.info("removed unused compiled code: %s", ", ".join(gone))
    return bool(gone)


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5, context=_ENGINES) as answer:  # noqa: S310  (the engine in this pod)
            return bool(answer.status == 200)
    except (OSError, ValueError, urllib.error.URLError):
        return False
