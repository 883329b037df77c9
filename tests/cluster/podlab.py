"""What the process node's tests do to a cluster: create, patch, read, await objects of one namespace, over HTTP."""

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from devcluster import Cluster
from devcluster.apiclient import MERGE, ApiError

Json = dict[str, Any]
_PATHS = {
    "pods": "/api/v1",
    "services": "/api/v1",
    "configmaps": "/api/v1",
    "secrets": "/api/v1",
    "persistentvolumeclaims": "/api/v1",
    "serviceaccounts": "/api/v1",
    "events": "/api/v1",
    "jobs": "/apis/batch/v1",
    "roles": "/apis/rbac.authorization.k8s.io/v1",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
}


class PodLab:
    """One administrator's connection; `namespace` is the test's."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.call = cluster.client.request
        self.namespace = ""

    def _path(self, kind: str, name: str = "") -> str:
        return f"{_PATHS[kind]}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def enter_namespace(self, name: str) -> None:
        """Create a namespace and use it, once its default account and root certificate are there."""
        self.namespace = name
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self.until(lambda: self.exists("serviceaccounts", "default") and self.exists("configmaps", "kube-root-ca.crt"))

    def exists(self, kind: str, name: str) -> bool:
        try:
            self.get(kind, name)
        except ApiError:
            return False
        return True

    def clear(self) -> None:
        """Kill all pods of the namespace, and let the rest of it go in the background."""
        for pod in self.list("pods"):
            try:
                self.delete("pods", pod["metadata"]["name"], 0)
            except ApiError as error:
                if error.status != 404:
                    raise
        self.call("DELETE", f"/api/v1/namespaces/{self.namespace}")

    def list(self, kind: str) -> list[Json]:
        return list(self.call("GET", self._path(kind))["items"])

    def get(self, kind: str, name: str) -> Json:
        return dict(self.call("GET", self._path(kind, name)))

    def create(self, kind: str, name: str, **body: Any) -> Json:
        labels = body.pop("labels", {})
        annotations = body.pop("annotations", {})
        meta = {"name": name, "labels": labels, "annotations": annotations}
        return dict(self.call("POST", self._path(kind), {"metadata": meta, **body}))

    def patch(self, kind: str, name: str, body: Json) -> Json:
        return dict(self.call("PATCH", self._path(kind, name), body, MERGE))

    def delete(self, kind: str, name: str, grace: int | None = None) -> None:
        self.call("DELETE", self._path(kind, name), None if grace is None else {"gracePeriodSeconds": grace})

    def pod(
        self, name: str, *containers: Json, labels: Json | None = None, annotations: Json | None = None, **spec: Any
    ) -> None:
        """Create a pod; a grace period of one second unless the test says otherwise."""
        whole = {"terminationGracePeriodSeconds": 1, "containers": list(containers), **spec}
        self.create("pods", name, labels=labels or {}, annotations=annotations or {}, spec=whole)

    def until(self, check: Callable[[], Any], seconds: float = 120.0) -> Any:
        """Wait until `check` returns something true, and return it."""
        deadline = time.monotonic() + seconds
        while not (found := check()):
            assert time.monotonic() < deadline, f"not within {seconds:g} s; pods: {self.describe()}"
            time.sleep(0.03)
        return found

    def describe(self) -> str:
        shown = {pod["metadata"]["name"]: pod.get("status", {}) for pod in self.list("pods")}
        return json.dumps(shown, indent=1)[:4000]

    def wait(self, name: str, check: Callable[[Json], Any], seconds: float = 120.0) -> Json:
        """Wait for a pod to satisfy `check`; the pod."""

        def found() -> Json | None:
            pod = self.get("pods", name)
            return pod if check(pod) else None

        return dict(self.until(found, seconds))

    def ready(self, name: str, seconds: float = 120.0) -> Json:
        return self.wait(name, is_ready, seconds)

    def wait_for_end(self, name: str, seconds: float = 120.0) -> Json:
        """Wait for the end of a pod that ends by itself."""
        return self.wait(name, lambda pod: pod["status"].get("phase") in ("Succeeded", "Failed"), seconds)

    def gone(self, name: str, seconds: float = 120.0) -> float:
        """Wait until a pod is gone; the seconds it took."""
        start = time.monotonic()
        self.until(lambda: not self.exists("pods", name), seconds)
        return time.monotonic() - start

    def log(self, pod: str, container: str = "c", **query: Any) -> str:
        """A container's log through the API server, as `kubectl logs` reads it."""
        parameters = {"container": container, **{key: str(value).lower() for key, value in query.items()}}
        return str(self.call("GET", f"{self._path('pods', pod)}/log?{urlencode(parameters)}"))

    def run(self, script: str, name: str = "probe", **spec: Any) -> str:
        """Run a shell script in a pod of its own to its end; its output."""
        extra = spec.pop("container", {})
        self.pod(name, shell(script, **extra), restartPolicy="Never", **spec)
        pod = self.wait_for_end(name)
        output = self.log(name)
        assert pod["status"]["phase"] == "Succeeded", output
        return output


def shell(script: str, name: str = "c", **more: Any) -> Json:
    """A container that runs a shell script."""
    return {"name": name, "image": "shell", "args": ["-c", script], **more}


def python(code: str, name: str = "c", **more: Any) -> Json:
    """A container that runs Python code."""
    return {"name": name, "image": "python", "args": ["-u", "-c", code], **more}


def is_ready(pod: Json) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))


def container(pod: Json, name: str = "c", kind: str = "containerStatuses") -> Json:
    """The status of one container."""
    return next((dict(c) for c in pod["status"].get(kind, ()) if c["name"] == name), {})
