"""An API server on loopback, as far as the shell uses one: objects by kind, versions, LIST in pages, WATCH with replay,
server-side apply as replacement, merge patches, preconditions. Faults are put in `failures`."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aiohttp import web

from speculative_operator.shell.resources import (
    CHILDREN,
    EVENT,
    LEASE,
    OWNER,
    POD,
    REPLICA_SET,
    REVIEW,
    STATEFUL_SET,
    Resource,
)

T = TypeVar("T")
Json = dict[str, Any]
DEEP = "nested without end"
ALSO = (
    Resource("v1", "Namespace", "namespaces"),
    Resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions"),
)
"""Kinds that kopf looks for in discovery."""
Ref = tuple[str, str, str]
"""(plural, namespace, name)."""


@dataclass
class Call:
    """One request as it came."""

    method: str
    plural: str
    namespace: str
    name: str
    subresource: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]

    @property
    def write(self) -> bool:
        return self.method != "GET"


class FaultError(Exception):
    """Answers the request with a Status."""

    def __init__(self, code: int, message: str = "", reason: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.reason, self.headers = code, message or f"HTTP {code}", reason, headers


@dataclass
class FakeApi:
    """State of the server; tests read and write it directly."""

    resources: tuple[Resource, ...] = (
        OWNER,
        POD,
        LEASE,
        EVENT,
        REVIEW,
        REPLICA_SET,
        STATEFUL_SET,
        *(kind for kind in CHILDREN if not kind.optional),
    )
    objects: dict[Ref, Json] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    failures: list[Callable[[Call], FaultError | None]] = field(default_factory=list)
    """Asked in turn for each request; the first failure is the answer."""
    drops_images: bool = False
    """As API servers do that have no image volumes."""
    undeclared: tuple[str, ...] = ()
    """Fields of status that the CRD does not declare: a merge patch loses them."""
    allowed: set[tuple[str, str]] = field(default_factory=set)
    """(plural, namespace) of which a review says that the operator may list it."""
    logs: dict[str, str] = field(default_factory=dict)
    """Name of a pod -> what it has logged."""
    levels: int = 0
    """Each string DEEP in an object is given out as a value that nests so deep; json could not write it."""
    url: str = ""
    page: int = 500
    token: str = ""
    delay: float = 0.0
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def __post_init__(self) -> None:
        self._versions = itertools.count(1001)
        self._uids = itertools.count(1)
        self._log: list[tuple[int, str, str, Json]] = []
        self._news = asyncio.Condition()
        self.version = 1000

    # -- for tests

    def find(self, kind: str, name: str = "", namespace: str = "ns") -> list[Json]:
        plural = next(resource.plural for resource in self.resources if resource.kind == kind)
        found = (body for (p, n, _), body in list(self.objects.items()) if p == plural and n == namespace)
        return [body for body in found if not name or body["metadata"]["name"] == name]

    def writes(self, plural: str = "") -> list[Call]:
        return [call for call in self.calls if call.write and call.plural != "leases" and plural in ("", call.plural)]

    async def inside(self, work: Coroutine[Any, Any, T]) -> T:
        """Run in the server's loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def put(self, resource: Resource, body: Json) -> Json:
        """Create or change an object as somebody else would."""
        return await self.inside(self._put(resource, body))

    async def drop(self, resource: Resource, name: str, namespace: str = "ns", *, silently: bool = False) -> None:
        """Delete; `silently`: no watch ever hears of it."""
        await self.inside(self._drop(resource, name, namespace, silently))

    async def _put(self, resource: Resource, body: Json) -> Json:
        meta = body["metadata"]
        ref = (resource.plural, meta["namespace"], meta["name"])
        known = self.objects.get(ref)
        event = "MODIFIED" if known else "ADDED"
        meta = {**body["metadata"], "uid": known["metadata"]["uid"] if known else f"uid-{next(self._uids)}"}
        return await self._store(event, ref, {**body, "metadata": meta})

    async def _drop(self, resource: Resource, name: str, namespace: str, silently: bool) -> None:
        ref = (resource.plural, namespace, name)
        body = self.objects.pop(ref)
        if not silently:
            await self._tell("DELETED", ref, body)

    # -- storage

    async def _store(self, event: str, ref: Ref, body: Json) -> Json:
        stored = {**body, "metadata": {**body["metadata"], "resourceVersion": str(next(self._versions))}}
        self.objects[ref] = stored
        await self._tell(event, ref, stored)
        return stored

    async def _tell(self, event: str, ref: Ref, body: Json) -> None:
        self.version = next(self._versions)
        told = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        self._log.append((self.version, event, ref[0], told if event == "DELETED" else body))
        async with self._news:
            self._news.notify_all()

    def _selected(self, plural: str, namespace: str, selector: str) -> list[Json]:
        wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
        return [
            body
            for (kind, space, _), body in sorted(self.objects.items())
            if kind == plural
            and namespace in ("", space)
            and wanted.items() <= (body["metadata"].get("labels") or {}).items()
        ]

    def _text(self, value: Any) -> str:
        return json.dumps(value).replace(f'"{DEEP}"', '{"a":' * self.levels + "1" + "}" * self.levels)

    # -- requests

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.token and request.headers.get("Authorization", "") != f"Bearer {self.token}":
            return _status(FaultError(401, "Unauthorized"))
        parts = [part for part in request.path.split("/") if part]
        try:
            return await self._route(request, parts)
        except FaultError as failure:
            return _status(failure)

    async def _route(self, request: web.Request, parts: list[str]) -> web.StreamResponse:
        if parts in (["api"], ["apis"]):
            return web.json_response(self._discovery(parts))
        length = 2 if parts[0] == "api" else 3
        root, rest = "/" + "/".join(parts[:length]), parts[length:]
        if not rest:
            return web.json_response(self._group(root))
        namespace = rest[1] if rest[0] == "namespaces" else ""
        rest = rest[2:] if namespace else rest
        resource = next((r for r in self.resources if r.root == root and r.plural == rest[0]), None)
        if resource is None:
            raise FaultError(404, "the server could not find the requested resource", "NotFound")
        text = await request.text()
        call = Call(
            request.method,
            resource.plural,
            namespace,
            rest[1] if len(rest) > 1 else "",
            rest[2] if len(rest) > 2 else "",
            dict(request.query),
            json.loads(text) if text else None,
            dict(request.headers),
        )
        self.calls.append(call)
        for failing in self.failures:
            failure = failing(call)
            if failure is not None:
                raise failure
        if "watch" in call.query:
            return await self._watch(request, call)
        return await self._answer(resource, call)

    def _discovery(self, parts: list[str]) -> Json:
        if parts == ["api"]:
            return {"versions": ["v1"]}
        versions: dict[str, set[str]] = {}
        for resource in (*self.resources, *ALSO):
            if resource.group:
                versions.setdefault(resource.group, set()).add(resource.version)
        listed = {
            group: [{"version": version, "groupVersion": f"{group}/{version}"} for version in sorted(found)]
            for group, found in versions.items()
        }
        return {"groups": [{"name": g, "versions": v, "preferredVersion": v[0]} for g, v in listed.items()]}

    def _group(self, root: str) -> Json:
        found = [resource for resource in (*self.resources, *ALSO) if resource.root == root]
        if not found:
            raise FaultError(404, "the server could not find the requested resource", "NotFound")
        verbs = ["get", "list", "watch", "create", "patch", "update", "delete"]
        return {
            "resources": [
                {"name": r.plural, "singularName": r.kind.lower(), "kind": r.kind, "namespaced": True, "verbs": verbs}
                for r in found
            ]
        }

    async def _answer(self, resource: Resource, call: Call) -> web.Response:
        ref = (call.plural, call.namespace, call.name)
        known = self.objects.get(ref)
        if call.subresource == "log":
            lines = self.logs.get(call.name, "").splitlines()[-int(call.query["tailLines"]) :]
            return web.Response(text="\n".join(lines))
        if resource is REVIEW:
            asked = call.body["spec"]["resourceAttributes"]
            allowed = asked["verb"] == "list" and (asked["resource"], asked["namespace"]) in self.allowed
            return web.json_response({**call.body, "status": {"allowed": allowed}}, status=201)
        if call.method == "GET" and not call.name:
            return web.json_response(self._list(resource, call), dumps=self._text)
        if call.method == "POST":
            return web.json_response(await self._create(resource, call), status=201)
        if call.method == "PATCH" and "apply" in call.headers["Content-Type"]:
            stored = await self._apply(ref, call, known)
            return web.json_response(stored, status=200 if known else 201, dumps=self._text)
        if known is None:
            raise FaultError(404, f'{call.plural} "{call.name}" not found', "NotFound")
        return web.json_response(await self._existing(ref, call, known))

    async def _existing(self, ref: Ref, call: Call, known: Json) -> Json:
        if call.method == "GET":
            return known
        if call.method == "DELETE":
            return await self._delete(ref, call, known)
        if call.method == "PUT":
            _precondition(known, call.body, "resourceVersion")
            return await self._store("MODIFIED", ref, call.body)
        _precondition(known, call.body, "uid")
        changed = merged(known, call.body)
        if call.subresource == "status":
            kept = {name: part for name, part in changed["status"].items() if name not in self.undeclared}
            changed = {**changed, "status": kept}
        return await self._store("MODIFIED", ref, changed)

    def _list(self, resource: Resource, call: Call) -> Json:
        found = self._selected(call.plural, call.namespace, call.query.get("labelSelector", ""))
        start, size = int(call.query.get("continue") or 0), min(int(call.query.get("limit") or 10**9), self.page)
        following = str(start + size) if start + size < len(found) else ""
        items = [{k: v for k, v in body.items() if k not in ("kind", "apiVersion")} for body in found]
        meta = {"resourceVersion": str(self.version), "continue": following}
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": meta,
            "items": items[start : start + size],
        }

    async def _create(self, resource: Resource, call: Call) -> Json:
        meta = {**call.body["metadata"], "namespace": call.namespace, "uid": f"uid-{next(self._uids)}"}
        ref = (call.plural, call.namespace, meta["name"])
        if ref in self.objects:
            raise FaultError(409, f'{call.plural} "{meta["name"]}" already exists', "AlreadyExists")
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **call.body, "metadata": meta}
        return await self._store("ADDED", ref, body)

    async def _apply(self, ref: Ref, call: Call, known: Json | None) -> Json:
        if self.drops_images and call.plural == "deployments":
            pod = call.body["spec"]["template"]["spec"]
            pod["volumes"] = [volume for volume in pod["volumes"] if "image" not in volume]
        if call.query.get("dryRun"):
            return {**(known or {}), **call.body}
        if known is None and "uid" in call.body["metadata"]:
            raise FaultError(409, "uid mismatch: no existing object was found", "Conflict")
        if known is None:
            return await self._store(
                "ADDED", ref, {**call.body, "metadata": {**call.body["metadata"], "uid": f"uid-{next(self._uids)}"}}
            )
        _precondition(known, call.body, "uid")
        _precondition(known, call.body, "resourceVersion")
        meta = {**known["metadata"], **call.body["metadata"]}
        return await self._store("MODIFIED", ref, {**known, **call.body, "metadata": meta})

    async def _delete(self, ref: Ref, call: Call, known: Json) -> Json:
        uid = ((call.body or {}).get("preconditions") or {}).get("uid")
        if uid not in (None, known["metadata"]["uid"]):
            raise FaultError(409, "the UID in the precondition does not match", "Conflict")
        del self.objects[ref]
        await self._tell("DELETED", ref, known)
        return known

    async def _watch(self, request: web.Request, call: Call) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        selector = dict(part.split("=", 1) for part in call.query.get("labelSelector", "").split(",") if part)
        since = int(call.query.get("resourceVersion") or self.version)
        while True:
            for version, event, plural, body in [entry for entry in self._log if entry[0] > since]:
                since = version
                labels = body["metadata"].get("labels") or {}
                fits = call.namespace in ("", body["metadata"]["namespace"]) and selector.items() <= labels.items()
                if plural == call.plural and fits:
                    try:
                        await response.write(self._text({"type": event, "object": body}).encode() + b"\n")
                    except ConnectionError:
                        return response
            async with self._news:
                if not any(entry[0] > since for entry in self._log):
                    await self._news.wait()


def _precondition(known: Json, body: Json, name: str) -> None:
    wanted = body["metadata"].get(name)
    if wanted is not None and wanted != known["metadata"].get(name):
        raise FaultError(409, "the object has been modified", "Conflict")


def merged(known: Any, patch: Any) -> Any:
    """`known` after a merge patch."""
    if not isinstance(patch, dict) or not isinstance(known, dict):
        return patch
    found = dict(known)
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name, {}), value)
    return found


def _status(failure: FaultError) -> web.Response:
    body = {"kind": "Status", "code": failure.code, "message": failure.message, "reason": failure.reason}
    return web.json_response(body, status=failure.code, headers=failure.headers)


@asynccontextmanager
async def serving(**state: Any) -> AsyncIterator[FakeApi]:
    """A server on a free port of 127.0.0.1, in a loop of its own: kopf ends by cancelling all tasks of the loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    api = FakeApi(**state)
    api.loop = loop
    runner = await api.inside(_start(api))
    try:
        yield api
    finally:
        await api.inside(_stop(runner))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()


async def _start(api: FakeApi) -> web.AppRunner:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    return runner


async def _stop(runner: web.AppRunner) -> None:
    await runner.cleanup()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until it is so. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  what is waited for knows nothing of tests
            await asyncio.sleep(0.01)


def kubeconfig(api: FakeApi, token: str = "t") -> str:
    """A kubeconfig for the server, as JSON (which is YAML)."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": api.url}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
    )
