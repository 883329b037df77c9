"""ConfigMaps, Secrets, tokens and claims that pods refer to, fetched when a pod starts or syncs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from .api import Api, ApiError
from .payloads import TokenWish

_PLURAL = {"ConfigMap": "configmaps", "Secret": "secrets", "PersistentVolumeClaim": "persistentvolumeclaims"}

Key = tuple[str, str]


class Objects:
    """Reads objects of a pod's namespace. One GET each: at the pace of syncs this is less traffic than watches."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """The object, or None where there is none. Raises ApiError."""
        try:
            return await self._api.get(f"/api/v1/namespaces/{namespace}/{_PLURAL[kind]}/{name}")
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def get_all(self, namespace: str, keys: Iterable[Key]) -> dict[Key, Mapping[str, Any] | None]:
        """Objects by (kind, name). Raises ApiError."""
        ordered = sorted(keys)
        found = await asyncio.gather(*(self.get(kind, namespace, name) for kind, name in ordered))
        return dict(zip(ordered, found, strict=True))

    async def volume(self, name: str) -> dict[str, Any]:
        """A PersistentVolume. Raises ApiError."""
        return await self._api.get(f"/api/v1/persistentvolumes/{name}")

    async def token(self, pod: Mapping[str, Any], wish: TokenWish) -> tuple[str, float]:
        """A new token bound to the pod, and when it expires (seconds since the epoch). Raises ApiError."""
        meta = pod["metadata"]
        account = pod["spec"].get("serviceAccountName") or "default"
        spec: dict[str, Any] = {
            "expirationSeconds": wish.seconds,
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]},
        }
        if wish.audience:
            spec["audiences"] = [wish.audience]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await self._api.post(f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{account}/token", body)
        expires = datetime.fromisoformat(answer["status"]["expirationTimestamp"])
        return str(answer["status"]["token"]), expires.timestamp()
