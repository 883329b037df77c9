"""A connection to the bench's API server: plain JSON, because the bench must not cost what it measures."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import requests
from kubernetes import client, config

from devcluster.cluster import Cluster
from speculative_operator.domain import names

NAMESPACE = "bench"
OWN_KIND = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.PLURAL}"
MERGE, PATCH = "application/merge-patch+json", "application/json-patch+json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class Client:
    """Safe to use from several threads: each has a connection of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._given = client.Configuration()
        config.load_kube_config(str(cluster.kubeconfig), client_configuration=self._given)
        self._mine = threading.local()

    def _session(self) -> requests.Session:
        found: requests.Session | None = getattr(self._mine, "session", None)
        if found is None:
            found = requests.Session()
            found.trust_env = False  # REQUESTS_CA_BUNDLE would win over the cluster's authority
            found.verify = self._given.ssl_ca_cert
            found.cert = (str(self._given.cert_file), str(self._given.key_file))
            self._mine.session = found
        return found

    def call(self, method: str, path: str, body: Any = None, media: str = "application/json") -> dict[str, Any]:
        """One request; raises requests.RequestException for an error answer."""
        data = None if body is None else json.dumps(body)
        answer = self._session().request(
            method, self._given.host + path, data=data, headers={"Content-Type": media}, timeout=30
        )
        answer.raise_for_status()
        return dict(answer.json())

    def events(self, path: str, stopped: threading.Event, accept: str = "application/json") -> Iterator[bytes]:
        """Lines of a watch that begins with all that there is, anew whenever it ends."""
        while not stopped.is_set():
            try:
                with self._session().get(
                    f"{self._given.host}{path}?watch=1&timeoutSeconds=300",
                    headers={"Accept": accept},
                    stream=True,
                    timeout=(5, 330),
                ) as answer:
                    answer.raise_for_status()
                    for line in answer.iter_lines(chunk_size=None):
                        if stopped.is_set():
                            return
                        yield line
            except requests.RequestException:
                time.sleep(0.1)
