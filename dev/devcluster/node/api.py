"""A small asynchronous Kubernetes API client: JSON in, JSON out.

Used by every part of the node that talks to the API server. Own code because the official client's models cost a
second of start time and 60 MB per node process, and the node only moves plain dicts.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
_TIMEOUT = aiohttp.ClientTimeout(total=20, sock_connect=5)


class ApiError(RuntimeError):
    """An answer of the API server that is not success, or none at all (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"API server: {message} (HTTP {status})" if status else f"API server not reached: {message}")
        self.status = status


class Api:
    """Requests with the identity of a kubeconfig of `devcluster.kubeconfig`. Create inside a running loop; close with
    ``close``."""

    def __init__(self, kubeconfig: Path, server: str) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        tls = _tls(content["clusters"][0]["cluster"], content["users"][0]["user"])
        self._server = server
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=200),
            headers={"User-Agent": "devcluster-node"},
            timeout=_TIMEOUT,
        )

    async def close(self) -> None:
        await self._session.close()

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        """One object or list. Raises ApiError."""
        return await self._call("GET", path, params=params)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create. Raises ApiError."""
        return await self._call("POST", path, body=body)

    async def patch(
        self, path: str, body: Mapping[str, Any], kind: str = MERGE, params: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Patch with the media type `kind`. Raises ApiError."""
        return await self._call("PATCH", path, body=body, media=kind, params=params)

    async def delete(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Delete, with the DeleteOptions in `body`. Raises ApiError."""
        return await self._call("DELETE", path, body=body)

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        media: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": media} if data is not None else {}
        try:
            async with self._session.request(
                method, self._server + path, data=data, headers=headers, params=params
            ) as response:
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiError(0, f"{method} {path}: {error or type(error).__name__}") from error
        if response.status >= 400:
            raise ApiError(response.status, _message(text))
        try:
            parsed = json.loads(text) if text.startswith("{") else {"text": text}
        except ValueError as error:
            raise ApiError(response.status, f"{method} {path}: answer is not JSON") from error
        return dict(parsed)

    async def watch(self, path: str, params: Mapping[str, str], seconds: int) -> AsyncIterator[dict[str, Any]]:
        """Watch events until the server ends the watch after `seconds`. Raises ApiError."""
        query = {**params, "watch": "1", "allowWatchBookmarks": "1", "timeoutSeconds": str(seconds)}
        limits = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=seconds + 30)
        try:
            async with self._session.get(self._server + path, params=query, timeout=limits) as response:
                if response.status >= 400:
                    raise ApiError(response.status, _message(await response.text()))
                pending = b""
                async for chunk in response.content.iter_any():
                    *lines, pending = (pending + chunk).split(b"\n")
                    for line in lines:
                        yield json.loads(line)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ApiError(0, f"watch {path}: {error or type(error).__name__}") from error


async def wait_ready(api: Api, seconds: float = 120.0) -> None:
    """Wait until the API server says it is ready. Raises ApiError when it does not in time."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            await api.get("/readyz")
        except ApiError:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.2)
        else:
            return


def _message(text: str) -> str:
    try:
        return str(json.loads(text).get("message", text))
    except (ValueError, AttributeError):
        return text[:500]


def _decoded(entry: Mapping[str, str], key: str) -> bytes:
    """A certificate or key that a kubeconfig holds."""
    return base64.b64decode(entry[f"{key}-data"])


def _tls(cluster: Mapping[str, str], user: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=_decoded(cluster, "certificate-authority").decode())
    with tempfile.NamedTemporaryFile() as pair:  # ssl reads certificates from files only
        pair.write(_decoded(user, "client-certificate") + b"\n" + _decoded(user, "client-key"))
        pair.flush()
        context.load_cert_chain(pair.name)
    return context
