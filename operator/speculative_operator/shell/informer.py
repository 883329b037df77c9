"""kopf as the informer: watches of our kind, its children and pods, feeding the cache and marking owners due.

kopf opens the watches and opens them again; `watches` reads them. Nothing else of kopf is used: no handlers, timers,
daemons or indexes (docs/decisions/0001-one-pure-reconcile.md). Made and run by `operator`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import kopf

from speculative_operator.settings import Settings
from speculative_operator.shell import login
from speculative_operator.shell.bodies import Key, key_of
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.kube import CONNECT_SECONDS
from speculative_operator.shell.queue import Queue
from speculative_operator.shell.resources import CHILD_SELECTOR, OWNER, Resource
from speculative_operator.shell.telemetry import Telemetry
from speculative_operator.shell.watches import Watches

BACKOFFS = (1.0, 2.0, 4.0, 8.0)
"""seconds between the tries of a list or watch that gets no answer; then kopf begins it anew."""


class Informer:
    """Watches, as long as `run` runs. `relisted` is told when a watch began anew: all must be listed after it.
    `leading_to` says which objects lead requests to one, and so must hear of it."""

    def __init__(
        self,
        settings: Settings,
        cache: Cache,
        queue: Queue[Key],
        telemetry: Telemetry,
        relisted: Callable[[], None],
        leading_to: Callable[[Key], Iterable[Key]],
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._queue = queue
        self._telemetry = telemetry
        self._relisted = relisted
        self._leading_to = leading_to
        self.watches = Watches(self.take, self._note_watch, relisted)
        self.started = asyncio.Event()

    async def run(self, resources: Sequence[Resource], stop: asyncio.Event) -> None:
        """Watch `resources` until `stop` is set. Raises when kopf gives up."""
        namespaces = self._settings.namespace_list
        await kopf.operator(
            registry=self._registry(resources),
            settings=kopf_settings(self._settings, resources),
            clusterwide=not namespaces,
            namespaces=namespaces,
            standalone=True,
            ready_flag=self.started,
            stop_flag=stop,
        )

    def _registry(self, resources: Iterable[Resource]) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        for resource in resources:
            on_event = kopf.on.event(
                resource.group, resource.version, resource.plural, id=f"see-{resource.plural}", registry=registry
            )
            on_event(_see_nothing)
        return registry

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        return self.watches.session(await login.connection())

    def _note_watch(self, plural: str, fails: bool) -> None:
        self._telemetry.note_watch(plural, fails=fails)
        # What is not watched is listed now and then, and its kind may be gone.
        self._relisted()

    def take(self, event: str, body: dict[str, Any]) -> None:
        """Handle one watch event."""
        self._telemetry.note_event(body["kind"], time.monotonic())
        if event == "DELETED":
            removed = self._cache.remove(body)
            if removed is not None:
                self._queue.add(removed)
                self._tell_leading(removed)
            return
        known = self._cache.owner(key_of(body)) if body["kind"] == OWNER.kind else None
        key = self._cache.put(body)
        if key is not None or body["kind"] == OWNER.kind:
            self._tell_leading(key or key_of(body))  # of its status too, which is no news to the object itself
        if key is not None:
            self._queue.add(key, urgent=body["kind"] == OWNER.kind and not _same_generation(known, body))

    def _tell_leading(self, key: Key) -> None:
        for leading in self._leading_to(key):
            self._queue.add(leading)


async def _see_nothing(**_: Any) -> None:
    """What kopf is to do with the objects that it is never shown."""


def _same_generation(known: Any, body: dict[str, Any]) -> bool:
    return known is not None and known["metadata"].get("generation") == body["metadata"].get("generation")


def kopf_settings(settings: Settings, resources: Iterable[Resource]) -> kopf.OperatorSettings:
    """Settings with which kopf watches and does nothing else."""
    made = kopf.OperatorSettings()
    made.posting.enabled = False
    # Which kinds exist is asked by resync; scanning would list definitions and namespaces of the whole cluster.
    made.scanning.disabled = True
    # Of a list it gets the version alone.
    made.watching.chunk_size = 1
    for resource in resources:
        if resource is not OWNER:
            made.watching.label_selectors[resource.group, resource.version, resource.plural] = CHILD_SELECTOR
    made.networking.request_timeout = settings.read_timeout_seconds
    made.networking.connect_timeout = CONNECT_SECONDS
    made.networking.error_backoffs = BACKOFFS
    # Signals are ours; this is for the case that kopf hangs at the end.
    made.process.ultimate_exiting_timeout = 25.0
    return made
