"""Remove from a cache what nobody has wanted for long, where the user has asked for it (`spec.weights.cache.collect`).
Called by `command` at the end of a fetch, and before one that has no room.

Never removed is: what does not prove by its contents that this program made it (`Cache.removable`), what `keep` names,
what somebody has marked for good, what another process has locked, what was used within the grace period. A version
goes by one rename out of sight before its files are deleted, so that a crash leaves either all of it or rubbish, which
the next collection takes away.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Collection
from pathlib import Path

from speculative_operator.weights import disk
from speculative_operator.weights.cache import KEY, MANIFEST, Cache, children

GRACE_SECONDS = 30 * 86400.0
"""Sixty times what lies between two renewals of a mark by the operator (`reconcile.pairing`), so that an operator that
is away for weeks costs no model that is served."""
_LOG = logging.getLogger(__name__)


def collect(
    cache: Path, *, keep: Collection[str] = (), grace: float = GRACE_SECONDS, now: float | None = None
) -> tuple[str, ...]:
    """Keys of the versions removed, complete ones and partial ones. `now` is in seconds since 1970, default: the clock.

    Who wants a version leaves a mark first and takes the lock then (`fetch`), and marks are looked at under the lock:
    so a version is never taken from under somebody who found it published.
    """
    place, at = Cache(cache), time.time() if now is None else now
    with disk.explain_errors(cache):
        for rubbish in place.rubbish():
            shutil.rmtree(rubbish, ignore_errors=True)
        return tuple(key for key in _keys(place) if key not in keep and _collect(place, key, at - grace))


def _keys(place: Cache) -> list[str]:
    names = {path.name for folder in ("models", "partial", "uses") for path in children(place.home / folder)}
    return sorted(name for name in names if KEY.fullmatch(name))


def _collect(place: Cache, key: str, before: float) -> bool:
    if _last_use(place, key) > before:
        return False
    with place.lock(key) as held:
        if not held or _last_use(place, key) > before:
            return False
        found = place.removable(key)
        for folder in found:
            _LOG.info("removing %s", folder)
            place.discard(folder)
        if not place.model(key).exists() and not place.partial(key).exists():
            shutil.rmtree(place.uses(key), ignore_errors=True)
            (place.home / "locks" / key).unlink(missing_ok=True)
    return bool(found)


def _last_use(place: Cache, key: str) -> float:
    """Unix seconds of the newest mark of use; without a mark, of the publication or the begin of the fetch."""
    marked = place.last_used(key)
    traces = [place.model(key) / MANIFEST, place.model(key), place.partial(key), place.uses(key)]
    return max(_change_time(path) for path in traces) if marked is None else marked


def _change_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
