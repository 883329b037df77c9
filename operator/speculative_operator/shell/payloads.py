"""Deletes ConfigMaps of the plug-in that nothing in their namespace mounts any more: those of former releases, and the
last one where no object is left. Run by `operator` after each whole listing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from speculative_operator.render import payload
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.errors import ApiError, NotFoundError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import CONFIG_MAP, POD, REPLICA_SET, STATEFUL_SET, WORKLOADS, Resource

log = logging.getLogger(__name__)


async def collect(kube: Kube, cache: Cache, kinds: Sequence[Resource], leading: Callable[[], bool]) -> None:
    """Delete what is neither wanted nor mounted; in doubt it stays. `kinds`: what the cluster serves, of which objects
    that make pods are looked at, whoever made them."""
    bearers = (REPLICA_SET, STATEFUL_SET, *(one for one in kinds if one.kind in WORKLOADS), POD)
    for body in cache.payloads():
        meta = body["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        try:
            if _is_wanted(cache, namespace, name) or await _is_mentioned(kube, bearers, namespace, name):
                continue
            if not _is_wanted(cache, namespace, name):  # an object may have come meanwhile
                await kube.delete(CONFIG_MAP, namespace, name, meta["uid"], still=leading)
                log.info("deleted ConfigMap %s/%s: nothing mounts it", namespace, name)
        except NotFoundError:
            continue
        except ApiError as error:
            log.warning("ConfigMap %s/%s, which may not be needed any more, is kept: %s", namespace, name, error)


def _is_wanted(cache: Cache, namespace: str, name: str) -> bool:
    return name == payload.name() and namespace in {key[0] for key in cache.keys()}  # noqa: SIM118  (no dict)


async def _is_mentioned(kube: Kube, bearers: Sequence[Resource], namespace: str, name: str) -> bool:
    """True where an object of one of the kinds has `name` anywhere in it. Raises ApiError."""
    for resource in bearers:
        async for body in kube.list(resource, namespace):
            if name in str(body):
                return True
    return False
