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

import requests
from kubernetes import client, config

from bench.pure import example, percentiles
from devcluster.cluster import Cluster
from speculative_operator.domain import names

NAMESPACE = "bench"
CHILDREN = 5  # Deployment, Service, two ConfigMaps, NetworkPolicy; one replica has no disruption budget
RATE = 50.0
AGENT = "speculative-operator"
WATCHED = {
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
    "Service": f"/api/v1/namespaces/{NAMESPACE}/services",
    "ConfigMap": f"/api/v1/namespaces/{NAMESPACE}/configmaps",
    "NetworkPolicy": f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies",
    "PodDisruptionBudget": f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets",
}


@dataclass
class Seen:
    """When each object's children appeared, by object name; filled by watches."""

    deployment: dict[str, float] = field(default_factory=dict)
    children: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    complete: dict[str, float] = field(default_factory=dict)

    def note(self, kind: str, meta: dict[str, Any]) -> None:
        owner = meta.get("labels", {}).get(names.LABEL_DEPLOYMENT)
        if owner is None:
            return
        now = time.monotonic()
        if kind == "Deployment":
            self.deployment.setdefault(owner, now)
        kinds = self.children.setdefault(owner, set())
        kinds.add((kind, meta["name"]))
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
        self.cluster.wait_for_kinds()
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
                [sys.executable, "-m", "speculative_operator", "--kubeconfig", environment["KUBECONFIG"]],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                yield process.pid
            finally:
                self._stop.set()
                process.send_signal(signal.SIGTERM)
                process.wait(30)

    def create(self, prefix: str, count: int) -> dict[str, float]:
        """Create `count` objects at RATE a second; moment of creation by name."""
        spec = example()["spec"]
        session, server = _session(self.cluster.kubeconfig)
        url = f"{server}/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.PLURAL}"
        created = {}
        started = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, started + number / RATE - time.monotonic()))
            name = f"{prefix}-{number}"
            body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, "spec": spec}
            session.post(url, json=body, timeout=30).raise_for_status()
            created[name] = time.monotonic()
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
        for kind, path in WATCHED.items():
            threading.Thread(target=self._watch, args=(kind, path), daemon=True).start()

    def _watch(self, kind: str, path: str) -> None:
        for found in self._events(path, metadata_only=True):
            self.seen.note(kind, found["metadata"])

    def _events(self, path: str, metadata_only: bool) -> Iterator[dict[str, Any]]:
        """Objects of a watch as plain JSON, until the bench ends: the bench must not cost what it measures."""
        accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1" if metadata_only else "application/json"
        session, server = _session(self.cluster.kubeconfig)
        while not self._stop.is_set():
            try:
                with session.get(
                    f"{server}{path}?watch=1&timeoutSeconds=300", headers={"Accept": accept}, stream=True, timeout=330
                ) as answer:
                    for line in answer.iter_lines(chunk_size=None):
                        yield json.loads(line)["object"]
            except requests.RequestException:
                time.sleep(0.2)

    def _play_controller(self) -> None:
        """Say of every Deployment that all its replicas are there and ready, as its controller would."""
        session, server = _session(self.cluster.kubeconfig)
        for found in self._events(WATCHED["Deployment"], metadata_only=False):
            meta, replicas = found["metadata"], found["spec"].get("replicas", 1)
            if found.get("status", {}).get("observedGeneration", 0) >= meta["generation"]:
                continue
            status = {
                "observedGeneration": meta["generation"], "replicas": replicas, "updatedReplicas": replicas,
                "readyReplicas": replicas, "availableReplicas": replicas,
                "conditions": [{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}],
            }  # fmt: skip
            session.patch(
                f"{server}{WATCHED['Deployment']}/{meta['name']}/status",
                data=json.dumps({"status": status}),
                headers={"Content-Type": "application/merge-patch+json"},
                timeout=30,
            )


def _session(kubeconfig: Path) -> tuple[requests.Session, str]:
    """An HTTP session of the kubeconfig's user, and the server's address."""
    configuration = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    session = requests.Session()
    session.trust_env = False  # REQUESTS_CA_BUNDLE would win over the cluster's authority
    session.verify = configuration.ssl_ca_cert
    session.cert = (str(configuration.cert_file), str(configuration.key_file))
    return session, configuration.host


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
