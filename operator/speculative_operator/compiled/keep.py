"""Beside a serving engine: what it compiled is published once it serves. Called by `__main__` in a side container.

The engine's health is the proof: what is published has started an engine. What is seeded and does not lead to a healthy
engine within `patience` is taken away, here and for all, so that no pod starts from it for ever in vain.
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
"""Without a changed file for so long, the engine has compiled what it compiles at its start."""
SECOND_LOOK_SECONDS = 900.0
"""The first requests may compile more."""
TOUCH_SECONDS = 86400.0
_TRIES = 10
_ENGINES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""An engine's certificate names its Service, not 127.0.0.1."""
_ENGINES.check_hostname, _ENGINES.verify_mode = False, ssl.CERT_NONE

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Watch:
    """What is kept, of whom, and how long to wait for it."""

    store: Store
    target: Path
    folders: tuple[str, ...]
    health: str
    """URL that answers 200 once the engine serves."""
    patience: float
    name: str
    """Tells this pod from others."""
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
    """Until the engine is healthy."""
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
    """Until no file changed for a while."""
    files, since = _seen(watch), time.monotonic()
    while time.monotonic() - since < watch.quiet:
        pause(watch.poll)
        if (now := _seen(watch)) != files:
            files, since = now, time.monotonic()


def _seen(watch: Watch) -> object:
    try:
        return list_files(watch.target, watch.folders)
    except OSError:
        return None


def _publish(watch: Watch) -> bool:
    """False where another try is worth it."""
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
    """True where something went that nobody uses."""
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
