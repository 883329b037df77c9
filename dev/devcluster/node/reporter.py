"""Reports a pod's status: one patch per change, changes of the same moment in one. A PodWorker owns one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from .api import STRATEGIC, Api, ApiError
from .status import PodView, compute

_log = logging.getLogger(__name__)

_TOGETHER_SECONDS = 0.02
_GONE = (404, 409)


class Reporter:
    """Patches ``status`` of one pod whenever `notify` has been called and the computed status differs."""

    def __init__(self, api: Api, pod: Callable[[], Mapping[str, Any]], view: Callable[[], PodView]) -> None:
        self._api = api
        self._pod = pod
        self._view = view
        self._dirty = asyncio.Event()
        self._lock = asyncio.Lock()
        self._sent: dict[str, Any] = {}

    def notify(self) -> None:
        """Something changed."""
        self._dirty.set()

    async def run(self) -> None:
        """Report until cancelled."""
        delay = 0.5
        while True:
            await self._dirty.wait()
            await asyncio.sleep(_TOGETHER_SECONDS)
            try:
                await self.flush()
                delay = 0.5
            except ApiError as error:
                _log.warning("status of %s not reported: %s", self._pod()["metadata"]["name"], error)
                self._dirty.set()
                await asyncio.sleep(delay)
                delay = min(delay * 2, 10.0)

    async def flush(self) -> None:
        """Report now what has changed. Raises ApiError; a pod that is gone is no error."""
        async with self._lock:
            self._dirty.clear()
            pod = self._pod()
            previous = self._sent.get("conditions") or (pod.get("status") or {}).get("conditions") or ()
            status = compute(pod, self._view(), previous, time.time())
            if status == self._sent:
                return
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
            # Merged by address otherwise, and a pod whose node process was restarted has a new one.
            addresses = {"podIPs": [*status["podIPs"], {"$patch": "replace"}]} if "podIPs" in status else {}
            body = {"metadata": {"uid": meta["uid"]}, "status": {**status, **addresses}}
            try:
                await self._api.patch(path, body, STRATEGIC)
            except ApiError as error:
                if error.status not in _GONE:
                    raise
            self._sent = status
