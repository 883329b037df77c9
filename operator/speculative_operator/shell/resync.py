"""Lists what exists at the start and every few minutes, because watches never tell what they missed.

A list is the truth: it replaces all that is no newer than itself, and an object that is not in it is gone. Also finds
out which optional kinds exist. Run by `operator`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from speculative_operator.render import Capabilities
from speculative_operator.settings import Settings
from speculative_operator.shell.bodies import Key, key_of, version_of
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.errors import ApiError, ExpiredListError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.login import has_ipv6
from speculative_operator.shell.monitors import SERVERS, address_of, labels_of, namespace_of, servers_of
from speculative_operator.shell.prometheus import Address
from speculative_operator.shell.resources import (
    CHILD_SELECTOR,
    CHILDREN,
    HTTP_ROUTE,
    INFERENCE_SERVICE,
    LEADER_WORKER_SET,
    LLM_INFERENCE_SERVICE,
    OWNER,
    POD,
    POD_MONITOR,
    SERVING_RUNTIME,
    Resource,
)

log = logging.getLogger(__name__)

OPENSHIFT = "security.openshift.io"
"""API group whose presence says that each namespace has user ids of its own."""


class RestoredError(Exception):
    """The API server is older than it was: etcd was restored from a snapshot, and nothing that is known holds."""


class Resync:
    """Completes the cache by lists. `stale` is told each SpeculativeDeployment of which something had not been known,
    once all was listed; `unwatched` returns the kinds of which no watch tells, `settled` whether a Prometheus has
    brought figures: then no other one is looked for, for anybody may make one."""

    def __init__(
        self,
        settings: Settings,
        kube: Kube,
        cache: Cache,
        stale: Callable[[Key], None],
        unwatched: Callable[[], frozenset[str]],
        settled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._namespaces = settings.namespace_list
        self._kube = kube
        self._cache = cache
        self._stale = stale
        self._unwatched = unwatched
        self._settled = settled
        self._listed: set[Resource] = set()
        self._found: set[Key] = set()
        """What `stale` is still to be told."""
        self._unlisted: set[Resource] = set()
        """Kinds whose last listing failed."""
        self.optional: frozenset[Resource] = frozenset()
        """Optional kinds that the cluster has."""
        self.asked = asyncio.Event()
        """Set by whoever has reason to think that the cache is not the truth: a watch that listed anew, an optional
        kind that is gone."""
        self.monitor_labels: dict[str, str] = {}
        """Labels by which the cluster's Prometheus servers choose PodMonitors."""
        self.prometheus = Address(settings.prometheus_url)
        self.assigns_uids = True
        """True on OpenShift, and until it is known better."""

    async def discover(self) -> bool:
        """Ask what the cluster offers; True when the kinds to watch have changed. Raises ApiError."""
        groups = await self._kube.groups()
        self.assigns_uids = OPENSHIFT in groups
        found = [kind for kind in CHILDREN if kind.optional and kind.group in groups and await self._is_served(kind)]
        if SERVERS[0].group in groups and not self._settled():
            await self._find_servers()
        lost, changed = self.optional - set(found), set(found) != self.optional
        self.optional = frozenset(found)
        for resource in lost:
            for body in self._cache.objects_of(resource.kind).values():
                self._cache.remove(body)
        return changed

    async def _find_servers(self) -> None:
        """Find the labels that PodMonitors must bear, and the Prometheus that is asked. An answer that is not known
        changes nothing."""
        namespace = namespace_of(self._settings.prometheus_url)
        try:
            found = await servers_of(self._kube, namespace, everywhere=not self._namespaces)
        except ApiError as error:
            log.warning("the Prometheus servers cannot be read; labels of PodMonitors stay: %s", error)
            return
        if self._settings.prometheus_is_found:
            self.prometheus = address_of(found)
        self.monitor_labels = labels_of(found, namespace_of(self.prometheus.url))

    async def _is_served(self, resource: Resource) -> bool:
        try:
            return await self._kube.is_served(resource)
        except ApiError as error:
            log.warning("cannot find out whether the kind %s exists: %s", resource.plural, error)
            return resource in self.optional

    def capabilities(self) -> Capabilities:
        """What the cluster and the settings offer, in the form that render takes."""
        return Capabilities(
            pod_monitor=POD_MONITOR in self.optional,
            inference_service={SERVING_RUNTIME, INFERENCE_SERVICE} <= self.optional,
            llm_inference_service=LLM_INFERENCE_SERVICE in self.optional,
            http_route=HTTP_ROUTE in self.optional,
            leader_worker_set=LEADER_WORKER_SET in self.optional,
            monitor_labels=tuple(sorted({**self.monitor_labels, **self._settings.monitor_labels}.items())),
            monitor_seconds=self._settings.pod_monitor_seconds,
            assigns_uids=self.assigns_uids,
            check_pairs=self._settings.check_pairs,
            job_image=self._settings.job_image,
            ipv6=has_ipv6(),
            job_env=self._settings.for_jobs,
            template_privileges=self._settings.privilege_list,
            node_folders=self._settings.node_folder_list,
            step_metrics_from=self._settings.step_metrics_peers,
            engine_registry=self._settings.engine_registry,
        )

    async def is_installed(self) -> bool:
        """True when the API server knows SpeculativeDeployments."""
        return await self._kube.is_served(OWNER)

    def resources(self) -> tuple[Resource, ...]:
        """Kinds to watch and list."""
        children = tuple(resource for resource in CHILDREN if not resource.optional or resource in self.optional)
        return (OWNER, *children, POD)

    def unsure(self) -> frozenset[Resource]:
        """Kinds of which the cache may lack objects: kinds that were not listed, or are not watched."""
        listed, unwatched = self._listed - self._unlisted, self._unwatched()
        return frozenset(one for one in self.resources() if one not in listed or one.plural in unwatched)

    def missing(self) -> str:
        """Plurals of the vital kinds that were never listed, or can be neither listed nor watched now."""
        blind = {one for one in self._unlisted if one.plural in self._unwatched()}
        return ", ".join(one.plural for one in self.resources() if one.vital and one not in self._listed - blind)

    async def refresh(self, only: Collection[Resource] | None = None) -> None:
        """List everything once, or `only` some kinds: SpeculativeDeployments first, because nothing is kept of those
        that are not known, and what makes Deployments before those. A kind that cannot be listed stays as it was known,
        and keeps no other from being listed, but for the first. Raises RestoredError."""
        children = sorted(self.resources()[1:], key=lambda one: not one.optional)
        try:
            for resource in (OWNER, *children):
                if only is not None and resource not in only:
                    continue
                if await self._succeeds(resource):
                    self._listed.add(resource)
                elif resource is OWNER:
                    break
        finally:
            for key in self._found:
                self._stale(key)
            self._found.clear()

    async def _succeeds(self, resource: Resource) -> bool:
        try:
            await self._refresh(resource)
        except ApiError as error:
            if resource not in self._unlisted:
                log.warning("cannot list %s: %s", resource.plural, error)
            self._unlisted.add(resource)
            return False
        self._unlisted.discard(resource)
        return True

    async def _refresh(self, resource: Resource) -> None:
        selector = "" if resource is OWNER else CHILD_SELECTOR
        for namespace in self._namespaces or ("",):
            version, found = await self._take(resource, namespace, selector)
            self._prune(resource, namespace, version, found)

    async def _take(self, resource: Resource, namespace: str, selector: str) -> tuple[int, set[str]]:
        """Put listed objects into the cache one by one, so that no whole list is held; returns the version of the list
        and the uids. Raises RestoredError for a list that is older than what was known before it was asked for."""
        known = self._cache.newest(resource.kind)
        for attempt in (1, 2):
            found: set[str] = set()
            version = 0
            try:
                async for version, items in self._kube.pages(resource, namespace, selector):
                    if 0 < version < known:
                        raise RestoredError(f"a list of {resource.plural} has version {version}, after {known}")
                    for body in items:
                        found.add(body["metadata"]["uid"])
                        key = self._cache.put(body, version)
                        if key is not None:
                            self._found.add(key)
            except ExpiredListError:
                if attempt == 2:
                    raise
            else:
                break
        return version, found

    def _prune(self, resource: Resource, namespace: str, version: int, found: set[str]) -> None:
        """Remove what is no newer than the list and not in it."""
        for uid, body in self._cache.objects_of(resource.kind).items():
            within = namespace in ("", body["metadata"]["namespace"])
            if uid in found or not within or version_of(body) > version:
                continue
            key = self._cache.remove(body)
            if key is None:
                continue
            log.info("found the missed deletion of %s %s/%s", resource.kind, *key_of(body))
            self._found.add(key)

    def start_over(self) -> None:
        """Count nothing as listed."""
        self._listed.clear()
