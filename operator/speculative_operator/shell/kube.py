"""Requests to the API server with plain dicts, timeouts and our errors: the only writer of the cluster.

Transport, TLS, tokens and kubeconfig are those of `kubernetes.aio`; its models are not used, because reading an object
into them drops fields newer than the client (and importing them costs memory). Used by worker, resync, leader.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.api_client import ApiClient

from speculative_operator import __version__
from speculative_operator.domain import names
from speculative_operator.settings import Settings
from speculative_operator.shell import login
from speculative_operator.shell.errors import (
    ApiError,
    OutdatedError,
    UnauthorizedError,
    UnavailableError,
    from_response,
    parse,
)
from speculative_operator.shell.gate import Gate
from speculative_operator.shell.resources import POD, REVIEW, Resource
from speculative_operator.shell.telemetry import Telemetry

CONNECT_SECONDS = 5.0
"""Limit for connecting to the API server; a healthy one accepts at once."""
CHUNK = 500
"""Most objects per page of a LIST."""
FIRST_CHUNK = 50
PAGE_BYTES = 2 * 2**20
"""Most bytes of a page of more than one object: parsed, they take some ten times as much memory. A larger page is not
read to its end, and asked for anew with fewer objects."""
SLOW = 2.0
"""seconds after which a write lends its slot: a healthy API server takes some hundredths, so a webhook holds it."""
LENDABLE = 16
"""Number of slots that may be lent, as a multiple of all slots: each is a request that the API server keeps waiting."""
LINE_BYTES = 4096
"""Most bytes that are read of a line of a log."""
JSON = "application/json"
CONTENT = {"apply": "application/apply-patch+yaml; charset=utf-8", "patch": "application/merge-patch+json"}
"""Media type of the body that a verb sends, where it is not plain JSON. With its parameter the client sends our text of
an apply instead of making its own."""
NEVER_A_VERSION = "1"
"""A resourceVersion that no object has: an apply that carries it creates, or fails with a conflict."""

Json = dict[str, Any]
Still = Callable[[], bool]
"""Asked at the last moment, once a write has its slot, for it may have waited long: on False the write is not sent."""


class TooLongError(Exception):
    """A page has more bytes than it may."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One request. An answer of more than `most` bytes is not read to its end."""

    verb: str
    path: str
    what: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    most: int | None = None


class Kube:
    """A client for one API server. Every method raises ApiError or one of its kinds, nothing else; methods with `still`
    raise OutdatedError where `still` returns False."""

    def __init__(self, settings: Settings, telemetry: Telemetry) -> None:
        self._timeout = aiohttp.ClientTimeout(total=settings.read_timeout_seconds, sock_connect=CONNECT_SECONDS)
        slots, lendable = settings.write_slots, LENDABLE * settings.write_slots
        self._gate = Gate(slots, most=slots, lendable=lendable, slow=SLOW)
        self._connections = slots + lendable + 8
        self._telemetry = telemetry
        self._client: Any = None
        self._logging_in = asyncio.Lock()

    async def start(self) -> None:
        """Find credentials. Raises LoginError. Opens no connection yet."""
        await self._login(None)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    # -- reading

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        return await self._request("get", resource, namespace, name)

    async def list(self, resource: Resource, namespace: str = "", selector: str = "") -> AsyncIterator[Json]:
        """Yield every object. Raises ExpiredListError when the list grows too old: the caller starts again."""
        async for _, items in self.pages(resource, namespace, selector):
            for item in items:
                yield item

    async def pages(
        self, resource: Resource, namespace: str = "", selector: str = ""
    ) -> AsyncIterator[tuple[int, Sequence[Json]]]:
        """Yield the version of the list and its objects, page by page. Raises ExpiredListError when the list grows
        too old: the caller starts again."""
        what = f"{resource.plural} {namespace}".rstrip()
        following, limit = "", FIRST_CHUNK
        while True:
            query = {"limit": str(limit), "labelSelector": selector, "continue": following}
            most = PAGE_BYTES if limit > 1 else None
            try:
                data = await self._data(_Call("list", resource.path(namespace), what, query, most=most))
            except TooLongError:
                limit = max(1, limit // 4)
                continue
            page = _decode("list", what, data)
            items = page.get("items") or []
            for item in items:
                item["kind"], item["apiVersion"] = resource.kind, resource.api_version
            meta = page.get("metadata") or {}
            version = str(meta.get("resourceVersion") or "")
            yield int(version) if version.isdecimal() else 0, items
            following = meta.get("continue") or ""
            if not following:
                return
            if len(data) < PAGE_BYTES // 4:
                limit = min(2 * limit, CHUNK)

    async def last_line(self, namespace: str, pod: str, container: str, lines: int = 1) -> str:
        """Last line of a container's log, or its last lines, cut at LINE_BYTES for each."""
        path = POD.path(namespace, pod, "log")
        query = {"container": container, "tailLines": str(lines), "limitBytes": str(lines * LINE_BYTES)}
        data = await self._data(_Call("get", path, f"pods/log {namespace}/{pod}", query))
        return data.decode(errors="replace").strip()

    async def is_served(self, resource: Resource) -> bool:
        """True when the API server knows the kind. Discovery is open to every ServiceAccount."""
        try:
            answer = await self._send(_Call("get", resource.root, "discovery"))
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return any(entry.get("name") == resource.plural for entry in answer.get("resources") or ())

    async def groups(self) -> frozenset[str]:
        """Names of the API groups that are served."""
        answer = await self._send(_Call("get", "/apis", "discovery"))
        return frozenset(entry.get("name", "") for entry in answer.get("groups") or ())

    async def may(self, verb: str, resource: Resource, namespace: str = "") -> bool:
        """True where the operator's roles allow the verb. Every ServiceAccount may ask this of itself; nothing is
        stored."""
        asked = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace}
        body = {"apiVersion": REVIEW.api_version, "kind": REVIEW.kind, "spec": {"resourceAttributes": asked}}
        answer = await self._send(_Call("create", REVIEW.path(), REVIEW.plural, body=body))
        return (answer.get("status") or {}).get("allowed") is True

    # -- writing

    async def apply(
        self,
        resource: Resource,
        manifest: Mapping[str, Any],
        *,
        uid: str | None = None,
        version: str | None = None,
        dry: bool = False,
        still: Still | None = None,
    ) -> Json:
        """Apply the whole intent server-side; fields of other managers that are in it are taken over.

        With `uid` the object must still be that one; without, it must not exist yet, so that an object of somebody else
        by the same name is never touched. Raises ConflictError otherwise. With `dry` nothing is stored, and the object
        that would be stored is returned.
        """
        metadata = dict(manifest["metadata"])
        metadata |= {"uid": uid} if uid else {"resourceVersion": NEVER_A_VERSION}
        metadata |= {"resourceVersion": version} if uid and version else {}
        body = {**manifest, "metadata": metadata}
        query = {"fieldManager": names.FIELD_MANAGER, "force": "true"} | ({"dryRun": "All"} if dry else {})
        name = metadata["name"]
        return await self._request("apply", resource, metadata["namespace"], name, query=query, body=body, still=still)

    async def merge(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        subresource: str = "",
        *,
        still: Still | None = None,
    ) -> Json:
        """Send a merge patch; a `metadata.uid` in it is a precondition. The API server leaves out fields that its
        definition of the kind lacks."""
        query = {"fieldManager": names.FIELD_MANAGER}
        return await self._request(
            "patch", resource, namespace, name, subresource, query=query, body=patch, still=still
        )

    async def create(self, resource: Resource, namespace: str, body: Mapping[str, Any]) -> Json:
        return await self._request("create", resource, namespace, body=body)

    async def replace(self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]) -> Json:
        """PUT; the resourceVersion in `body` is a precondition."""
        return await self._request("update", resource, namespace, name, body=body)

    async def delete(
        self, resource: Resource, namespace: str, name: str, uid: str, *, still: Still | None = None
    ) -> Json:
        """Delete the object, only if its uid still is `uid`."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        return await self._request("delete", resource, namespace, name, body=body, still=still)

    # -- one request

    async def _request(
        self,
        verb: str,
        resource: Resource,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        still: Still | None = None,
    ) -> Json:
        what = f"{resource.plural}{'/' + subresource if subresource else ''} {namespace}/{name}".rstrip("/ ")
        path = resource.path(namespace, name, subresource)
        async with AsyncExitStack() as stack:
            # Whoever renews the lease must not queue behind a burst of children.
            if body is not None and resource.plural != "leases":
                await stack.enter_async_context(self._gate.slot(resource.rank, namespace))
            if still is not None and not still():
                raise OutdatedError(verb, what, "the write is no longer wanted")
            return await self._send(_Call(verb, path, what, query or {}, body))

    async def _send(self, call: _Call) -> Json:
        return _decode(call.verb, call.what, await self._data(call))

    async def _data(self, call: _Call) -> bytes:
        """The bytes of the answer, asked for with fresh credentials where the old ones are refused."""
        client = self._client
        try:
            return await self._exchange(client, call)
        except UnauthorizedError:
            await self._login(client)
            return await self._exchange(self._client, call)

    async def _exchange(self, client: Any, call: _Call) -> bytes:
        verb, what, body, host = call.verb, call.what, call.body, client.configuration.host
        headers = {"Accept": JSON, "User-Agent": f"{names.OPERATOR}/{__version__}"}
        if body is not None:
            headers["Content-Type"] = CONTENT.get(verb, JSON)
        asked = urlencode({key: value for key, value in call.query.items() if value})
        url = f"{host}{call.path}" + (f"?{asked}" if asked else "")
        sent = yaml_text(body) if verb == "apply" else body
        started, status = time.monotonic(), 0
        try:
            await client.update_params_for_auth(headers, [], ["BearerToken"], call.path, METHODS[verb], body)
            answer = await client.call_api(
                METHODS[verb], url, header_params=headers, body=sent, _request_timeout=self._timeout
            )
            status, data = answer.status, await _read(answer, call.most)
        except (TimeoutError, aiohttp.ClientError, OSError, ssl.SSLError) as error:
            raise UnavailableError(verb, what, f"no answer from {host}: {_name(error)}") from error
        finally:
            self._telemetry.api_request(verb, status, time.monotonic() - started)
        if not 200 <= status < 300:
            raise from_response(verb, what, status, answer.headers, data)
        return data

    async def _login(self, failed: Any) -> None:
        """Make a client with fresh credentials, once for all requests that failed with the same old one."""
        async with self._logging_in:
            if self._client is not failed:
                return
            config = await login.configuration()
            config.connection_pool_maxsize = self._connections
            # Proxies and ~/.netrc of the environment are not for the way to our own API server.
            config.client_session_kwargs = {"trust_env": False}
            old, self._client = self._client, ApiClient(config)
            if old is not None:
                await old.close()


METHODS = {
    "get": "GET", "list": "GET", "apply": "PATCH", "patch": "PATCH", "create": "POST", "update": "PUT",
    "delete": "DELETE",
}  # fmt: skip


_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""What YAML takes only escaped, beside what JSON escapes too."""


def yaml_text(body: Any) -> str:
    """`body` as JSON that is YAML as well, which is what an apply is read as: YAML knows no pairs of surrogates, by
    which JSON escapes what lies beyond the first 65,536 characters."""
    text = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace").decode()
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


async def _read(answer: Any, most: int | None) -> bytes:
    if most is None:
        found: bytes = await answer.read()
        return found
    data = bytearray()
    async for chunk in answer.response.content.iter_any():
        data += chunk
        if len(data) > most:
            answer.response.close()
            raise TooLongError
    return bytes(data)


def _decode(verb: str, what: str, data: bytes) -> Json:
    try:
        answer = parse(data)
    except ValueError as error:
        raise UnavailableError(verb, what, "the answer is not JSON") from error
    if not isinstance(answer, dict):
        raise UnavailableError(verb, what, "the answer is not an object")
    return answer


def _name(error: BaseException) -> str:
    return "timed out" if isinstance(error, TimeoutError) else f"{type(error).__name__} {error}".strip()
