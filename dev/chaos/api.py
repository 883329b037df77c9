"""The administrator's connection to the API server, past every proxy; and watches that miss nothing."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

from devcluster.cluster import Cluster
from devcluster.controlplane import Files
from speculative_operator.domain import names

Json = dict[str, Any]
GROUPS = {"deployments": "/apis/apps/v1", "networkpolicies": "/apis/networking.k8s.io/v1",
          "jobs": "/apis/batch/v1", names.PLURAL: f"/apis/{names.API_VERSION}"}  # fmt: skip
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


def path(resource: str, namespace: str = "", name: str = "") -> str:
    """URL path of an object, or of all of a namespace."""
    base = GROUPS.get(resource, "/api/v1")
    return base + (f"/namespaces/{namespace}" if namespace else "") + f"/{resource}" + (f"/{name}" if name else "")


class Api:
    """Safe to use from several threads: each request is on its own."""

    def __init__(self, cluster: Cluster) -> None:
        files = Files(Path(cluster.state_dir))
        self._server = cluster.server
        self._verify, self._cert = str(files.authority), (str(files.admin.certificate), str(files.admin.key))

    def _session(self) -> requests.Session:
        session = requests.Session()
        session.trust_env, session.verify, session.cert = False, self._verify, self._cert
        return session

    def call(self, method: str, where: str, body: Any = None, media: str = "application/json") -> Json:
        """One request; raises requests.HTTPError for an error answer."""
        with self._session() as session:
            data = None if body is None else json.dumps(body)
            answer = session.request(
                method, self._server + where, data=data, headers={"Content-Type": media}, timeout=30
            )
        if answer.status_code >= 400:
            raise requests.HTTPError(f"{method} {where}: {answer.status_code} {answer.text[:300]}", response=answer)
        return dict(answer.json())

    def items(self, resource: str, namespace: str = "", selector: str = "") -> list[Json]:
        return list(self.call("GET", f"{path(resource, namespace)}?labelSelector={selector}")["items"])

    def get(self, resource: str, namespace: str, name: str) -> Json:
        """An object; empty where there is none."""
        try:
            return self.call("GET", path(resource, namespace, name))
        except requests.HTTPError as error:
            if error.response is not None and error.response.status_code == 404:
                return {}
            raise

    def apply(self, resource: str, body: Json) -> Json:
        """Server-side apply of a whole object."""
        meta = body["metadata"]
        where = path(resource, meta.get("namespace", ""), meta["name"])
        return self.call("PATCH", f"{where}?fieldManager=chaos&force=true", body, APPLY)

    def merge(self, resource: str, namespace: str, name: str, change: Json) -> Json:
        return self.call("PATCH", path(resource, namespace, name), change, MERGE)

    def delete(self, resource: str, namespace: str, name: str) -> None:
        """Delete an object; one that is gone already is none to complain of."""
        try:
            self.call("DELETE", path(resource, namespace, name), {"propagationPolicy": "Background"})
        except requests.HTTPError as error:
            if error.response is None or error.response.status_code != 404:
                raise

    def watch(self, resource: str, namespace: str, note: Callable[[Json], None], stopped: threading.Event) -> None:
        """Call `note` with every version of every object from now on, in a thread, until `stopped`."""
        name = f"watch-{resource}"
        work = (resource, namespace, note, stopped)
        threading.Thread(target=self._watch, args=work, name=name, daemon=True).start()

    def _watch(
        self, resource: str, namespace: str, note: Callable[[Json], None], stopped: threading.Event
    ) -> None:  # fmt: skip
        url = f"{self._server}{path(resource, namespace)}?watch=1&timeoutSeconds=120"
        with self._session() as session:
            while not stopped.is_set():
                # Without a version a watch begins with all that there is: what is seen twice is noted twice.
                try:
                    with session.get(url, stream=True, timeout=(5, 150)) as answer:
                        answer.raise_for_status()
                        for line in answer.iter_lines(chunk_size=None):
                            if stopped.is_set():
                                return
                            note(json.loads(line)["object"])
                except (requests.RequestException, ValueError):
                    time.sleep(0.2)
