"""Objects of a cluster, read over one kept connection by the names that kubectl takes.

For what is looked at again and again: a kubectl for each look takes a tenth of a second of a core.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from kubernetes import client, config

from devcluster.errors import DevClusterError

Json = dict[str, Any]
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
    """Reads as the user of a kubeconfig; any thread may ask."""

    def __init__(self, kubeconfig: Path) -> None:
        loaded = client.Configuration()
        load: Any = config.load_kube_config
        load(str(kubeconfig), client_configuration=loaded)
        loaded.retries = _PATIENCE
        self._api = client.ApiClient(loaded)
        self._kinds: dict[str, _Kind] = {}

    def get(self, resource: str, name: str, namespace: str) -> Json:
        """An object; empty where there is none, or no such kind."""
        kind = self._kind(resource)
        if kind is None:
            return {}
        return self._answer(f"{kind.path(namespace)}/{quote(name)}") or {}

    def list(self, resources: str, namespace: str, selector: str = "") -> list[Json]:
        """Objects of one or several kinds, between commas, that bear the labels of `selector`."""
        return [one for resource in resources.split(",") for one in self._listed(resource, namespace, selector)]

    def _listed(self, resource: str, namespace: str, selector: str) -> Iterator[Json]:
        kind = self._kind(resource)
        if kind is None:
            raise DevClusterError(f"the cluster knows no kind {resource!r}")
        found = self._answer(f"{kind.path(namespace)}?{urlencode({'labelSelector': selector})}") or {}
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
        headers = {"Accept": accept}
        self._api.update_params_for_auth(headers, [], ["BearerToken"], path, "GET", None)
        answer = self._api.call_api("GET", f"{self._api.configuration.host}{path}", headers, _request_timeout=60)
        text = answer.read()
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise DevClusterError(f"GET {path}: {answer.status} {text[:500]!r}")
        found: Json = json.loads(text)
        return found
