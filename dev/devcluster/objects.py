"""Objects of a cluster, read and changed over kept connections by the names that kubectl takes.

For what is done again and again: a kubectl for each look takes a tenth of a second of a core.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from urllib.parse import quote, urlencode

from devcluster.apiclient import APPLY, MERGE, PLAIN, ApiClient, ApiError, Json
from devcluster.errors import DevClusterError

_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True)
class _Kind:
    kind: str
    api_version: str
    plural: str
    namespaced: bool

    def path(self, namespace: str) -> str:
        prefix = "apis" if "/" in self.api_version else "api"
        within = f"namespaces/{namespace}/" if self.namespaced else ""
        return f"/{prefix}/{self.api_version}/{within}{self.plural}"


class Objects:
    """Asks as the user of `client`; any thread may. What the server refuses raises ApiError."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._kinds: dict[str, _Kind] = {}

    def get(self, resource: str, name: str, namespace: str) -> Json:
        """An object; empty where there is none, or no such kind."""
        if self._kind(resource) is None:
            return {}
        return self._answer(self._path(resource, namespace, name)) or {}

    def list(self, resources: str, namespace: str, selector: str = "") -> list[Json]:
        """Objects of one or several kinds, between commas, that bear the labels of `selector`."""
        return [one for resource in resources.split(",") for one in self._listed(resource, namespace, selector)]

    def apply(self, body: Json) -> None:
        """Server-side apply of a whole object."""
        where = self._path(body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"])
        self._client.request("PATCH", f"{where}?fieldManager=devcluster&force=true", body, APPLY)

    def merge(self, resource: str, name: str, namespace: str, change: Json) -> None:
        """Merge a change into an object."""
        self._client.request("PATCH", self._path(resource, namespace, name), change, MERGE)

    def put(self, body: Json) -> None:
        """Create an object, or make it exactly this one."""
        meta = body["metadata"]
        namespace = meta.get("namespace", "")
        known = self.get(body["kind"], meta["name"], namespace)
        if known:
            version = {"resourceVersion": known["metadata"]["resourceVersion"]}
            where = self._path(body["kind"], namespace, meta["name"])
            self._client.request("PUT", where, {**body, "metadata": {**meta, **version}})
        else:
            self._client.request("POST", self._path(body["kind"], namespace), body)

    def delete(self, resource: str, name: str, namespace: str, grace_seconds: int | None = None) -> None:
        """Delete an object; one that is gone already is none to complain of."""
        how = {"propagationPolicy": "Background", "gracePeriodSeconds": grace_seconds}
        try:
            self._client.request("DELETE", self._path(resource, namespace, name), how)
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(self, resource: str, namespace: str, stopped: Event) -> Iterator[Json]:
        """Every version of every object from now on, until `stopped`: all that there is comes first, and comes again
        when the server has ended the watch."""
        path = f"{self._path(resource, namespace)}?watch=1&timeoutSeconds=120"
        while not stopped.is_set():
            try:
                for event in self._client.lines(path, silent_seconds=150.0):
                    if stopped.is_set():
                        return
                    yield event["object"]
            except ApiError:
                time.sleep(0.2)

    def _path(self, resource: str, namespace: str, name: str = "") -> str:
        kind = self._kind(resource)
        if kind is None:
            raise DevClusterError(f"the cluster knows no kind {resource!r}")
        return kind.path(namespace) + (f"/{quote(name)}" if name else "")

    def _listed(self, resource: str, namespace: str, selector: str) -> Iterator[Json]:
        path = self._path(resource, namespace)
        kind = self._kinds[resource.lower()]
        found = self._answer(f"{path}?{urlencode({'labelSelector': selector})}") or {}
        for one in found.get("items", ()):  # lists say of what kind they are once
            yield {"kind": kind.kind, "apiVersion": kind.api_version, **one}

    def _kind(self, resource: str) -> _Kind | None:
        """The kind by any of its names; kinds that came since are looked for."""
        if resource.lower() not in self._kinds:
            self._kinds = dict(reversed(list(self._discovered())))
        return self._kinds.get(resource.lower())

    def _discovered(self) -> Iterator[tuple[str, _Kind]]:
        """Names and what they stand for; of several kinds by one name the first is meant."""
        for path in ("/api", "/apis"):
            for group in (self._answer(path, _DISCOVERY) or {})["items"]:
                name = group["metadata"].get("name", "")
                for version in group["versions"]:
                    api_version = f"{name}/{version['version']}" if name else version["version"]
                    for one in version["resources"]:
                        plural, told = one["resource"], one["responseKind"]["kind"]
                        kind = _Kind(told, api_version, plural, one["scope"] == "Namespaced")
                        known = (plural, told, f"{plural}.{name}", *one.get("shortNames", ()))
                        yield from ((word.lower(), kind) for word in known)

    def _answer(self, path: str, accept: str = PLAIN) -> Json | None:
        """What the server has there; None where there is nothing."""
        try:
            found: Json = self._client.request("GET", path, accept=accept)
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        return found
