"""What a user does by kubectl in the namespace of the models, for `realengine.e2e.train` and `promote`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from demo.scene import SceneError
from devcluster.cluster import Cluster
from devcluster.progress import Reporter
from realengine import counters, scene

Json = dict[str, Any]
READY_SECONDS = 300.0


class Hands:
    """On one cluster."""

    def __init__(self, cluster: Cluster, report: Reporter) -> None:
        self.cluster, self.report, self._began = cluster, report, time.monotonic()

    @property
    def seconds(self) -> int:
        """Since the first thing that the user did."""
        return round(time.monotonic() - self._began)

    def apply(self, *objects: Json) -> None:
        """kubectl apply."""
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.cluster.kubectl("apply", "-n", scene.NAMESPACE, "-f", "-", input=items)

    def get(self, kind: str, name: str) -> Json:
        """kubectl get; empty where there is none."""
        words = ("get", kind, name, "-n", scene.NAMESPACE, "--ignore-not-found", "-o", "json")
        return dict(json.loads(self.cluster.kubectl(*words).stdout or "{}"))

    def delete(self, name: str) -> None:
        """Delete a SpeculativeDeployment, and wait until it is gone."""
        self.cluster.kubectl("delete", "specdep", name, "-n", scene.NAMESPACE)

    def until(self, what: str, seconds: float, found: Callable[[], Any]) -> Any:
        """What `found` returns, once it is not empty. Raises SceneError."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if got := found():
                return got
            time.sleep(2)
        raise SceneError(f"{what}: not within {seconds:.0f} s")

    def ready(self, name: str) -> None:
        """Wait until an object serves. Raises SceneError."""

        def serves() -> bool:
            conditions = (self.get("specdep", name).get("status") or {}).get("conditions") or ()
            return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

        self.until(f"{name} serves", READY_SECONDS, serves)

    def accepted(self, name: str) -> float:
        """Share of drafts that the verifier has accepted since the object's one pod began."""
        port = self.get("service", name)["spec"]["ports"][0]["port"]
        path = f"/api/v1/namespaces/{scene.NAMESPACE}/services/{name}:{port}/proxy/metrics"
        found = counters.read(self.cluster.kubectl("get", "--raw", path).stdout)
        return round(found.accepted / found.draft_tokens, 3)
