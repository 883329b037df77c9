"""Looks whether one more replica fits on nodes, at the moment at which it matters. Used by `reconciler`.

Nodes are listed, then the pods of those where its pods might fit, one node after the other until all have room: nothing
is watched or kept. What it finds it sets aside for a while, so that many objects do not count on the same accelerator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.reconcile.room import Need, is_large_enough, may_run_on, most, need_of, places
from speculative_operator.reconcile.room import Room as Found
from speculative_operator.shell.bodies import Key, is_of_group, is_serving
from speculative_operator.shell.errors import ApiError, ForbiddenError
from speculative_operator.shell.kube import Json, Kube
from speculative_operator.shell.resources import NODE, POD

log = logging.getLogger(__name__)

GOOD_SECONDS = 10.0
"""Seconds for which an answer may be acted on; after them the operator looks again."""
SET_ASIDE_SECONDS = 60.0
"""Seconds for which room that was found is set aside for its object; after them the new pod counts by itself."""
AGAIN_SECONDS = 300.0
"""Seconds between looks for one object for which there was no room, where nothing waits for the answer."""
FORBIDDEN_SECONDS = 600.0
"""Seconds without a look after one was forbidden: permissions change by hand."""
PATIENCE = 10.0
"""seconds that a look may take, the wait for its turn included."""
MOST_NODES = 50
"""Most nodes whose pods are listed for one answer."""
MOST_PODS = 1000
"""Most pods of one LIST: each takes some kilobytes while the answer is worked out."""
WAITING = "spec.nodeName=,status.phase=Pending"


class Room:
    """Looks for room, one look at a time in the process. `everywhere`: the operator serves all namespaces; otherwise it
    may not see the pods of others, and every answer is None."""

    def __init__(self, kube: Kube, clock: Callable[[], float], *, everywhere: bool) -> None:
        self._kube = kube
        self._clock = clock
        self._everywhere = everywhere
        self._turn = asyncio.Lock()
        self._next: dict[Key, float] = {}
        self._aside: dict[str, dict[Key, tuple[Need, int, float]]] = {}
        self._forbidden_until = 0.0

    async def fits(self, key: Key, template: Mapping[str, Any], *, waits: bool, pods: int = 1) -> Found | None:
        """The room that there is now for one more replica of `pods` pods of `template`; None where that cannot be told.
        `waits`: pods are about to be replaced whatever the answer, so it is worth waiting for."""
        need, now = need_of(template), self._clock()
        if not self._everywhere or need is None or now < self._forbidden_until:
            return None
        if not waits and (self._turn.locked() or now < self._next.get(key, 0.0)):
            return None
        try:
            async with asyncio.timeout(PATIENCE), self._turn:
                found = await self._look(key, need, pods)
        except ForbiddenError as error:
            self._forbidden_until = self._clock() + FORBIDDEN_SECONDS
            log.info("cannot count free accelerators: %s", error)
            return None
        except (ApiError, TimeoutError) as error:
            log.debug("cannot count free accelerators for now: %s", error)
            found = None
        if found is not Found.FREE:
            self._next[key] = self._clock() + AGAIN_SECONDS
        return found

    def forget(self, key: Key) -> None:
        """Forget an object that is gone."""
        self._next.pop(key, None)

    async def _look(self, key: Key, need: Need, count: int) -> Found | None:
        nodes = [
            one
            async for one in self._kube.list(NODE, selector=need.selector)
            if may_run_on(need, one) and is_large_enough(need, one)
        ]
        if not nodes:
            return Found.NOWHERE
        waiting = await self._pods(WAITING)
        if waiting is None:
            return None
        left = freed = count
        found: dict[str, int] = {}
        nodes.sort(key=lambda one: (-most(one, need), one["metadata"]["name"]))
        for node in nodes[:MOST_NODES]:
            name = node["metadata"]["name"]
            pods = await self._pods(f"spec.nodeName={name}")
            if pods is None:
                return None
            found[name] = places(need, node, pods, (*waiting, *self._promised_pods(name, key)), left)
            left -= found[name]
            if not left:
                self._set_aside(key, need, found)
                return Found.FREE
            others = [one for one in pods if not _is_own(one, key)]
            first = [one for one in (*waiting, *self._promised_pods(name, key)) if not _is_own(one, key)]
            freed -= places(need, node, others, first, freed)
        if len(nodes) > MOST_NODES:
            return None
        return Found.NOWHERE if freed else Found.TAKEN

    def _set_aside(self, key: Key, need: Need, found: Mapping[str, int]) -> None:
        until = self._clock() + SET_ASIDE_SECONDS
        for name, count in found.items():
            if count:
                self._aside.setdefault(name, {})[key] = (need, count, until)

    async def _pods(self, fields: str) -> list[Json] | None:
        """The pods that `fields` selects; None where there are too many to be held."""
        found: list[Json] = []
        async for one in self._kube.list(POD, fields=fields):
            if len(found) == MOST_PODS:
                return None
            found.append(one)
        return found

    def _promised_pods(self, node: str, key: Key) -> Iterator[Json]:
        """Pods of other objects for which room on the node was found a moment ago."""
        now = self._clock()
        held = {other: one for other, one in self._aside.get(node, {}).items() if one[2] > now}
        self._aside[node] = held
        for other, (need, count, _) in held.items():
            yield from ({"spec": need.pod} for _ in range(count if other != key else 0))


def _is_own(pod: Json, key: Key) -> bool:
    """True for a pod that serves the object: its end may make room."""
    makers = names.child(key[1]), names.kserve_deployment(key[1]), names.kserve_llm_deployment(key[1])
    inside = (pod.get("metadata") or {}).get("namespace") == key[0]
    return inside and (is_serving(pod, makers) or is_of_group(pod, key[1]))
