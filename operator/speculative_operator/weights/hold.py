"""Say as long as a process lives that versions in a cache are in use. Run beside an engine that loaded them from a
folder of its node; called by the command line.

Whoever tidies up goes by marks of use (`collect`), and a pod leaves its own when it starts. Pods of other objects and
other namespaces share the folder, so nobody but the pod itself can say after weeks that it may still need its version:
an engine that is restarted loads it again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from pathlib import Path

from speculative_operator.weights.cache import Cache
from speculative_operator.weights.errors import WeightsError

RENEW_SECONDS = 3600.0
"""Seconds between two marks: a small part of the grace after which a version may be taken away."""
_LOG = logging.getLogger(__name__)


def hold(
    cache: Path,
    keys: Collection[str],
    user: str,
    stop: threading.Event,
    *,
    expires: bool = False,
    seconds: float = RENEW_SECONDS,
) -> None:
    """Renew the marks of `user` on the versions `keys` until `stop` is set. A volume that cannot be written for a while
    does not end this: the marks that are there hold for the grace."""
    place = Cache(cache)
    while True:
        for key in keys:
            try:
                place.use(key, user, expires=expires)
            except WeightsError as error:
                _LOG.warning("cannot mark version %s as used: %s", key, error)
        if stop.wait(seconds):
            return
