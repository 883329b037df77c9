"""Objects of a cluster, read and changed over kept connections by the names that kubectl takes.

For what is done again and again: a kubectl for each look takes a tenth of a second of a core.
"""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from kubernetes import client, config

from devcluster.errors import DevClusterError

Json = dict[str, Any]
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_PATIENCE = urllib3.Retry(total=8, backoff_factor=0.2, status_forcelist=(429, 500, 502, 503, 504))
"""A busy machine's API server may not answer at once."""


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
    """Asks as the user of a kubeconfig; any thread may. What the server refuses raises DevClusterError."""

    def __init__(self, kubeconfig: Path) -> None:
        loaded = client.Configuration()
        load: Any = config.load_kube_config
        load(str(kubeconfig), client_configuration=loaded)
        loaded.retries = _PATIENCE
        self._api = client.ApiClient(loaded)
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
        self._read("PATCH", f"{where}?fieldManager=devcluster&force=true", body, APPLY)

    def merge(self, resource: str, name: str, namespace: str, change: Json) -> None:
        """Merge a change into an object."""
        self._read("PATCH", self._path(resource, namespace, name), change, MERGE)

    def delete(self, resource: str, name: str, namespace: str) -> None:
        """Delete an object; one that is gone already is none to complain of."""
        self._read("DELETE", self._path(resource, namespace, name), {"propagationPolicy": "Background"})

    def watch(self, resource: str, namespace: str, stopped: Event) -> Iterator[Json]:
        """Every version of every object from now on, until `stopped`: all that there is comes first, and comes again
        when the server has ended the watch."""
        path = f"{self._path(resource, namespace)}?watch=1&timeoutSeconds=120"
        while not stopped.is_set():
            try:
                with closing(self._call("GET", path, timeout=(5.0, 150.0)).response) as lines:
                    for line in lines:
                        if stopped.is_set():
                            return
                        yield json.loads(line)["object"]
            except (DevClusterError, urllib3.exceptions.HTTPError, ValueError):
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

    def _answer(self, path: str, accept: str = "application/json") -> Json | None:
        """What the server has there; None where there is nothing."""
        return self._read("GET", path, accept=accept)

    def _read(
        self, method: str, path: str, body: Json | None = None, media: str = "", accept: str = "application/json"
    ) -> Json | None:
        """The answer to one request; None where there is nothing at this path."""
        answer = self._call(method, path, body, media, accept)
        text = answer.read()
        if answer.status == 404:
            return None
        if answer.status >= 400:
            raise DevClusterError(f"{method} {path}: {answer.status} {text[:500]!r}")
        found: Json = json.loads(text)
        return found

    def _call(
        self, method: str, path: str, body: Json | None = None, media: str = "", accept: str = "application/json",
        timeout: Any = 60,
    ) -> Any:  # fmt: skip
        headers = {"Accept": accept, "Content-Type": media or "application/json"}
        self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
        url = f"{self._api.configuration.host}{path}"
        try:
            return self._api.call_api(method, url, headers, body, _request_timeout=timeout)
        except urllib3.exceptions.HTTPError as error:
            raise DevClusterError(f"{method} {path}: {error}") from error
