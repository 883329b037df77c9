"""List and watch: a local copy of a kind, and a call for every change. Used by ``agent`` and ``provisioner``."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

from .api import Api, ApiError

Handler = Callable[[str, dict[str, Any]], None]
_WATCH_SECONDS = 300
_PAGE = "500"

_log = logging.getLogger(__name__)


class Informer:
    """Keeps ``objects`` (by (namespace, name)) equal to what the API server has.

    The handler gets ("ADDED" | "MODIFIED" | "DELETED", object), in the loop, after ``objects`` has changed.
    """

    def __init__(self, api: Api, path: str, handler: Handler, params: Mapping[str, str] | None = None) -> None:
        self._api = api
        self._path = path
        self._params = dict(params or {})
        self._handler = handler
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """List and watch until cancelled; back off while the API server does not answer."""
        delay = 0.2
        while True:
            try:
                version = await self._list()
                delay = 0.2
                while True:
                    version = await self._follow(version)
            except ApiError as error:
                if error.status != 410:  # too old a version: list again at once
                    _log.warning("%s: %s", self._path, error)
                    await asyncio.sleep(delay * random.uniform(0.5, 1.5))  # noqa: S311 - spreads retries, no secret
                    delay = min(delay * 2, 10.0)

    async def _list(self) -> str:
        items: list[dict[str, Any]] = []
        params = {**self._params, "limit": _PAGE}
        while True:
            page = await self._api.get(self._path, params)
            items += page.get("items") or []
            token = page["metadata"].get("continue")
            if not token:
                break
            params["continue"] = token
        self._replace({key_of(item): item for item in items})
        self.synced.set()
        return str(page["metadata"]["resourceVersion"])

    def _replace(self, fresh: dict[tuple[str, str], dict[str, Any]]) -> None:
        for key, old in list(self.objects.items()):
            new = fresh.get(key)
            if new is None or new["metadata"]["uid"] != old["metadata"]["uid"]:
                del self.objects[key]
                self._handler("DELETED", old)
        for key, new in fresh.items():
            known = self.objects.get(key)
            if known is None or known["metadata"]["resourceVersion"] != new["metadata"]["resourceVersion"]:
                self.objects[key] = new
                self._handler("ADDED" if known is None else "MODIFIED", new)

    async def _follow(self, version: str) -> str:
        """One watch; returns the version to go on from."""
        params = {**self._params, "resourceVersion": version}
        async for event in self._api.watch(self._path, params, _WATCH_SECONDS):
            found = event["object"]
            if event["type"] == "ERROR":
                raise ApiError(int(found.get("code", 500)), str(found.get("message", "watch error")))
            version = str(found["metadata"]["resourceVersion"])
            if event["type"] == "BOOKMARK":
                continue
            if event["type"] == "DELETED":
                self.objects.pop(key_of(found), None)
            else:
                self.objects[key_of(found)] = found
            self._handler(event["type"], found)
        return version


def key_of(found: Mapping[str, Any]) -> tuple[str, str]:
    """(namespace, name); the namespace of a cluster-scoped object is ""."""
    meta = found["metadata"]
    return str(meta.get("namespace", "")), str(meta["name"])
