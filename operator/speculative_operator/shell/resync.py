"""The truth list: what exists, asked at start and every few minutes, because watches never tell what they missed.

An object that was known before the list began and is not in it is gone. Also finds out which optional kinds exist.
Run by `operator`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from speculative_operator.render import Capabilities
from speculative_operator.settings import Settings
from speculative_operator.shell.cache import Body, Cache, Key
from speculative_operator.shell.errors import ApiError
from speculative_operator.shell.kube import Kube, listed
from speculative_operator.shell.resources import CHILD_SELECTOR, CHILDREN, OWNER, POD, POD_MONITOR, Resource

log = logging.getLogger(__name__)

OPENSHIFT = "security.openshift.io"
"""API group whose presence says that each namespace has user ids of its own."""


class Resync:
    """`stale` is told each SpeculativeDeployment of which something had not been known."""

    def __init__(
        self,
        settings: Settings,
        kube: Kube,
        cache: Cache,
        stale: Callable[[Key], None],
    ) -> None:
        self._settings = settings
        self._namespaces = settings.namespace_list
        self._kube = kube
        self._cache = cache
        self._stale = stale
        self.optional: frozenset[Resource] = frozenset()
        """Optional kinds that exist."""
        self.asked = asyncio.Event()
        """Set by whoever has reason to think that the cache is not the truth: a watch that listed anew, an optional
        kind that is gone."""
        self.assigns_uids = True
        """True on OpenShift, and until it is known better."""

    async def discover(self) -> bool:
        """Ask what the cluster offers; True when the kinds to watch have changed. Raises ApiError."""
        groups = await self._kube.groups()
        self.assigns_uids = OPENSHIFT in groups
        found = [kind for kind in CHILDREN if kind.optional and kind.group in groups and await self._kube.served(kind)]
        lost, changed = self.optional - set(found), set(found) != self.optional
        self.optional = frozenset(found)
        for resource in lost:
            for body in self._cache.held(resource.kind).values():
                self._cache.remove(body)
        return changed

    def capabilities(self) -> Capabilities:
        """The same for render."""
        return Capabilities(
            pod_monitor=POD_MONITOR in self.optional,
            assigns_uids=self.assigns_uids,
            check_pairs=self._settings.check_pairs,
            job_image=self._settings.job_image,
            job_env=self._settings.for_jobs,
        )

    async def installed(self) -> bool:
        """True when the API server knows SpeculativeDeployments."""
        return await self._kube.served(OWNER)

    def resources(self) -> tuple[Resource, ...]:
        """Kinds to watch and list."""
        children = tuple(resource for resource in CHILDREN if not resource.optional or resource in self.optional)
        return (OWNER, *children, POD)

    async def refresh(self) -> None:
        """List everything once. Children before owners, so that an owner is never seen without what it has."""
        resources = self.resources()
        for resource in (*resources[1:], resources[0]):
            await self._refresh(resource)

    async def _refresh(self, resource: Resource) -> None:
        known = self._cache.held(resource.kind)
        selector = "" if resource is OWNER else CHILD_SELECTOR
        found = await self._listed(resource, selector)
        if found is None:
            return
        for body in found:
            key = self._cache.put(body)
            if key is not None:
                self._stale(key)
        self._prune(resource, known, {body["metadata"]["uid"] for body in found})

    async def _listed(self, resource: Resource, selector: str) -> Sequence[Body] | None:
        try:
            return await listed(self._kube, resource, self._namespaces, selector)
        except ApiError as error:
            if resource.optional:
                log.warning("cannot list %s: %s", resource.plural, error)
                return None
            raise

    def _prune(self, resource: Resource, known: dict[str, Body], found: set[str]) -> None:
        for uid, body in known.items():
            if uid in found:
                continue
            key = self._cache.remove(body)
            if key is None:
                continue
            log.info("missed the deletion of %s %s/%s", resource.kind, *_name(body))
            self._stale(key)


def _name(body: Body) -> tuple[str, str]:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]
