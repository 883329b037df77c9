"""Events about pods, as ``kubectl describe pod`` shows them. Sparing: a repeated one only once per half minute."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Mapping
from typing import Any, Literal

from .api import Api, ApiError
from .status import timestamp

_QUIET_SECONDS = 30.0
_REMEMBERED = 2000


class Events:
    """Posts events in the background; losing one harms nobody."""

    def __init__(self, api: Api, node: str) -> None:
        self._api = api
        self._node = node
        self._last: dict[tuple[str, str, str], float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def emit(self, pod: Mapping[str, Any], kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Tell about a pod, unless the same was told just now."""
        key = (pod["metadata"]["uid"], reason, message)
        now = time.monotonic()
        if now - self._last.get(key, -_QUIET_SECONDS) < _QUIET_SECONDS:
            return
        if len(self._last) > _REMEMBERED:
            self._last.clear()
        self._last[key] = now
        task = asyncio.create_task(self._post(pod, kind, reason, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _post(self, pod: Mapping[str, Any], kind: str, reason: str, message: str) -> None:
        meta = pod["metadata"]
        stamp = timestamp(time.time())
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name'][:200]}.{uuid.uuid4().hex[:16]}", "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message[:1000],
            "source": {"component": "process-node", "host": self._node},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
            "reportingComponent": "process-node",
            "reportingInstance": self._node,
        }
        with contextlib.suppress(ApiError):
            await self._api.post(f"/api/v1/namespaces/{meta['namespace']}/events", body)
