"""A fleet on a real API server: apply to children, calls per object, writes at rest, memory.

No kubelet and no controllers: the bench plays the Deployment controller, so that what is timed is the operator and the
API server, not pods. The operator runs as a process of its own, as its image starts it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from kubernetes import client, config, watch

from bench.pure import example, percentiles
from devcluster.cluster import Cluster
from speculative_operator.domain import names

NAMESPACE = "bench"
CHILDREN = 5  # Deployment, Service, two ConfigMaps, NetworkPolicy; one replica has no disruption budget
RATE = 50.0
AGENT = "speculative-operator"


@dataclass
class Seen:
    """When each object's children appeared, by object name; filled by watches."""

    deployment: dict[str, float] = field(default_factory=dict)
    children: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    complete: dict[str, float] = field(default_factory=dict)

    def note(self, kind: str, meta: Any) -> None:
        owner = (meta.labels or {}).get(names.LABEL_DEPLOYMENT)
        if owner is None:
            return
        now = time.monotonic()
        if kind == "Deployment":
            self.deployment.setdefault(owner, now)
        kinds = self.children.setdefault(owner, set())
        kinds.add((kind, meta.name))
        if len(kinds) >= CHILDREN:
            self.complete.setdefault(owner, now)


class Fleet:
    """Creates objects and measures what the operator does about them."""

    def __init__(self, cluster: Cluster, out: Path) -> None:
        self.cluster = cluster
        self.out = out
        self._api = config.new_client_from_config(str(cluster.kubeconfig))
        self._objects = client.CustomObjectsApi(self._api)
        self.seen = Seen()
        self._stop = threading.Event()

    def prepare(self) -> None:
        root = Path(__file__).resolve().parents[2]
        self.cluster.kubectl("apply", "--server-side", "-f", str(root / "crds"))
        self.cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
        for namespace in (NAMESPACE, "speculative-system"):
            self.cluster.kubectl("create", "namespace", namespace)
        for target in (self._watch_children, self._play_controller):
            threading.Thread(target=target, daemon=True).start()

    @contextmanager
    def operator(self) -> Iterator[int]:
        """The operator as a process; its pid."""
        environment = os.environ | {
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "SPECULATIVE_PROMETHEUS_URL": "http://127.0.0.1:9",
            "SPECULATIVE_HTTP_PORT": "0",
            "SPECULATIVE_LEASE_NAMESPACE": "speculative-system",
        }
        with (self.out / "operator.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "speculative_operator"], env=environment, stdout=log, stderr=subprocess.STDOUT
            )
            try:
                yield process.pid
            finally:
                self._stop.set()
                process.send_signal(signal.SIGTERM)
                process.wait(30)

    def create(self, prefix: str, count: int) -> dict[str, float]:
        """Create `count` objects at RATE a second; moment of creation by name."""
        created = {}
        started = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, started + number / RATE - time.monotonic()))
            body = example(f"{prefix}-{number}")
            for key in ("uid", "generation"):
                del body["metadata"][key]
            self._objects.create_namespaced_custom_object(
                names.GROUP, names.VERSION, NAMESPACE, names.PLURAL, body, _request_timeout=(5, 30)
            )
            created[body["metadata"]["name"]] = time.monotonic()
        return created

    def apply_to_children(self, prefix: str, count: int, timeout: float = 240.0) -> dict[str, Any]:
        """Seconds from creation to the Deployment, p50 and p99, and to the last child of the last object."""
        created = self.create(prefix, count)
        deadline = time.monotonic() + timeout
        while not created.keys() <= self.seen.complete.keys():
            if time.monotonic() > deadline:
                missing = len(created.keys() - self.seen.complete.keys())
                raise TimeoutError(f"{missing} of {count} objects have no complete children after {timeout:.0f} s")
            time.sleep(0.05)
        deployment = [max(0.0, self.seen.deployment[name] - at) for name, at in created.items()]
        last = max(self.seen.complete[name] for name in created) - max(created.values())
        return percentiles(deployment) | {"all_children": round(max(0.0, last), 3)}

    def wait_ready(self, count: int, timeout: float = 120.0) -> None:
        """Wait until `count` objects are Ready=True."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            found: Any = self._objects.list_namespaced_custom_object(
                names.GROUP, names.VERSION, NAMESPACE, names.PLURAL, _request_timeout=(5, 60)
            )
            if sum(map(_ready, found["items"])) >= count:
                return
            time.sleep(1.0)
        raise TimeoutError(f"fewer than {count} objects are Ready after {timeout:.0f} s")

    def audited(self, since: float, until: float) -> list[dict[str, Any]]:
        """The operator's requests between two moments (unix seconds), leases aside."""
        return [
            event
            for line in self.cluster.audit_log.read_text().splitlines()
            if (event := json.loads(line)).get("userAgent", "").startswith(AGENT)
            and event.get("stage") == "ResponseComplete"
            and event.get("objectRef", {}).get("resource") != "leases"
            and since <= _moment(event["requestReceivedTimestamp"]) <= until
        ]

    def _watch_children(self) -> None:
        apps, core = client.AppsV1Api(self._api), client.CoreV1Api(self._api)
        network, policy = client.NetworkingV1Api(self._api), client.PolicyV1Api(self._api)
        lists = {
            "Deployment": apps.list_namespaced_deployment,
            "Service": core.list_namespaced_service,
            "ConfigMap": core.list_namespaced_config_map,
            "NetworkPolicy": network.list_namespaced_network_policy,
            "PodDisruptionBudget": policy.list_namespaced_pod_disruption_budget,
        }
        for kind, call in lists.items():
            threading.Thread(target=self._watch, args=(kind, call), daemon=True).start()

    def _watch(self, kind: str, call: Any) -> None:
        while not self._stop.is_set():
            for event in watch.Watch().stream(call, NAMESPACE, timeout_seconds=300):
                self.seen.note(kind, event["object"].metadata)

    def _play_controller(self) -> None:
        """Say of every Deployment that all its replicas are there and ready, as its controller would."""
        apps = client.AppsV1Api(self._api)
        while not self._stop.is_set():
            for event in watch.Watch().stream(apps.list_namespaced_deployment, NAMESPACE, timeout_seconds=300):
                found = event["object"]
                if (found.status.observed_generation or 0) >= found.metadata.generation:
                    continue
                replicas = found.spec.replicas or 1
                status = {
                    "observedGeneration": found.metadata.generation, "replicas": replicas, "updatedReplicas": replicas,
                    "readyReplicas": replicas, "availableReplicas": replicas,
                    "conditions": [{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}],
                }  # fmt: skip
                apps.patch_namespaced_deployment_status(found.metadata.name, NAMESPACE, {"status": status})


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    raise ProcessLookupError(pid)


def _ready(item: dict[str, Any]) -> bool:
    conditions = (item.get("status") or {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
