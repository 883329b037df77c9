"""A node that runs nothing: it says of every pod bound to it that it is ready, as a kubelet would.

Deployments, ReplicaSets and bindings are made by Kubernetes' own controllers and scheduler; `bed` starts this.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests

from bench.scale.client import MERGE, NAMESPACE, Client

NAME = "bench-node"
MANY = "1000000"
HEARTBEAT_SECONDS = 10.0
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class Node:
    """Lives until `stopped`."""

    def __init__(self, api: Client, stopped: threading.Event) -> None:
        self._api, self._stopped = api, stopped
        self._addresses = itertools.count(1)
        self._known: set[str] = set()
        """`uid` of each pod that was told to be ready, and `uid-` of each that was removed."""

    def start(self) -> None:
        self._api.call("POST", "/api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": NAME}})
        for work in (self._beat, self._serve):
            threading.Thread(target=work, daemon=True).start()

    def _beat(self) -> None:
        """Say that the node lives; without that, its pods would be taken for lost."""
        capacity = dict.fromkeys(("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "pods"), MANY)
        capacity |= {"memory": f"{MANY}Gi", "ephemeral-storage": f"{MANY}Gi"}
        while not self._stopped.is_set():
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": _now()}
            status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
            with contextlib.suppress(requests.RequestException):  # an API server that is gone hears the next one
                self._api.call("PATCH", f"/api/v1/nodes/{NAME}/status", {"status": status}, MERGE)
            self._stopped.wait(HEARTBEAT_SECONDS)

    def _serve(self) -> None:
        with ThreadPoolExecutor(4) as pool:
            for line in self._api.events(PODS, self._stopped):
                found = json.loads(line)
                pod = found["object"]
                if found["type"] == "DELETED" or not pod.get("spec", {}).get("nodeName"):
                    continue
                meta = pod["metadata"]
                gone = "deletionTimestamp" in meta
                key = meta["uid"] + "-" * gone
                if key not in self._known:
                    self._known.add(key)
                    pool.submit(self._remove if gone else self._run, key, pod)

    def _remove(self, key: str, pod: dict[str, Any]) -> None:
        self._try(key, "DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})

    def _run(self, key: str, pod: dict[str, Any]) -> None:
        number = next(self._addresses)
        # The range that is reserved for benchmarks: nothing answers there.
        address = f"198.{18 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        now = _now()
        containers = [
            {"name": one["name"], "image": one["image"], "imageID": "", "ready": True, "started": True,
             "restartCount": 0, "state": {"running": {"startedAt": now}}}
            for one in pod["spec"]["containers"]
        ]  # fmt: skip
        status = {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": now,
            "conditions": [{"type": one, "status": "True", "lastTransitionTime": now}
                           for one in ("PodScheduled", "Initialized", "ContainersReady", "Ready")],
            "containerStatuses": containers,
        }  # fmt: skip
        self._try(key, "PATCH", f"{PODS}/{pod['metadata']['name']}/status", {"status": status}, MERGE)

    def _try(self, key: str, method: str, path: str, body: Any, media: str = "application/json") -> None:
        try:
            self._api.call(method, path, body, media)
        except requests.HTTPError:
            return  # it is gone already
        except requests.RequestException:
            self._known.discard(key)  # the watch begins anew once the API server is back, and tells it again


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
