"""What a fleet is measured on: an API server with Kubernetes' own controllers, a played node, and one operator.

The operator runs as a process of its own, of the source it is told, and is started again when it ends, as by a kubelet.
It talks to the API server directly; Prometheus does not answer it, and no address of a pod leads anywhere. `phases` and
`soak` act on it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.scale.client import METADATA, NAMESPACE, OWN_KIND, Client
from bench.scale.node import Node
from devcluster.cluster import Cluster
from devcluster.options import ClusterOptions
from speculative_operator.domain import names

AGENT = b'"userAgent":"speculative-operator'
WRITES = frozenset({"create", "update", "patch", "delete"})
RATE = 50.0
"""Objects made or edited in a second."""
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
CHILDREN = {
    "Deployment": DEPLOYMENTS,
    "Service": f"/api/v1/namespaces/{NAMESPACE}/services",
    "ConfigMap": f"/api/v1/namespaces/{NAMESPACE}/configmaps",
    "NetworkPolicy": f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies",
}
"""An object has all its children when it has one of each; one replica has no disruption budget."""
SPEC = {
    "verifier": {"model": "hf://Qwen/Qwen3-8B", "maxModelLen": 8192, "maxNumSeqs": 256},
    "speculator": {"method": "draft_model", "model": "hf://Qwen/Qwen3-1.7B"},
    "speculation": {"mode": "Auto", "numSpeculativeTokens": 3, "maxSpeculativeTokens": 5},
    "engine": {"type": "vLLM", "version": "0.32.0", "image": "bench/vllm:0.32.0"},
    "accelerator": {"product": "A100-80GB"},
    "replicas": 1,
}
"""Of each object: what earlier revisions take, too."""
ARGUMENT, IMAGE, BY_HAND = "--seed=7", "bench/edited:1", "--by-hand"
MARKS = (ARGUMENT, IMAGE, BY_HAND)
"""What edits put into a Deployment, to be found there again."""


@dataclass(frozen=True)
class Version:
    """One version of a child, as a watch told it."""

    at: float
    uid: str
    marks: frozenset[str]


class Bed:
    """A cluster with one operator; `opened` makes and ends it."""

    def __init__(self, cluster: Cluster, source: Path, log: Path) -> None:
        self.cluster, self._source, self._log = cluster, source, log
        self.api = Client(cluster)
        self.exits = 0
        self._versions: dict[str, dict[str, list[Version]]] = {kind: defaultdict(list) for kind in CHILDREN}
        self._stopped = threading.Event()
        self._audited = 0

    @classmethod
    @contextmanager
    def opened(cls, source: Path, log: Path, say: Callable[[str], None]) -> Iterator[Bed]:
        """`source` is a checkout whose operator and definitions are used."""
        options = ClusterOptions(name=f"bench-{os.getpid()}", node=False, prometheus=False)
        with Cluster.start(options, say) as cluster:
            bed = cls(cluster, source, log)
            bed._prepare()
            bed.start_operator()
            try:
                yield bed
            finally:
                bed._stopped.set()
                bed._shim.terminate()
                bed._shim.wait(30)

    def _prepare(self) -> None:
        self.cluster.kubectl("apply", "--server-side", "-f", str(self._source / "crds"))
        self.cluster.wait_for_kinds()
        for namespace in (NAMESPACE, "speculative-system"):
            self.cluster.kubectl("create", "namespace", namespace)
        Node(self.api, self._stopped).start()
        for kind in CHILDREN:
            threading.Thread(target=self._watch, args=(kind,), daemon=True).start()

    # -- the operator

    def start_operator(self) -> None:
        environment = {
            "PYTHONPATH": str(self._source / "operator"),
            "SPECULATIVE_PROMETHEUS_URL": "http://127.0.0.1:9",
            "SPECULATIVE_HTTP_PORT": "0",
            "SPECULATIVE_NAMESPACE_MEBIBYTES": "2048",  # a thousand objects and more are in one namespace here
            "SPECULATIVE_LEASE_NAMESPACE": "speculative-system",
            "POD_NAME": "bench",
        }
        command = ["sh", "-c", 'exec "$0" -m speculative_operator --kubeconfig "$KUBECONFIG"', sys.executable]
        with self._log.open("ab") as log:
            self._shim = self.cluster.inside(command, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 10.0
        children = Path(f"/proc/{self._shim.pid}/task/{self._shim.pid}/children")
        while not (found := children.read_text().split()) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.pid = int(found[0])

    def keep_operator(self) -> None:
        """Start it again if it has ended."""
        if self._shim.poll() is not None:
            self.exits += 1
            self.start_operator()

    # -- what is seen

    def _watch(self, kind: str) -> None:
        accept = "application/json" if kind == "Deployment" else METADATA
        for line in self.api.events(CHILDREN[kind], self._stopped, accept):
            at, found = time.monotonic(), json.loads(line)
            meta = found["object"].get("metadata") or {}
            owner = (meta.get("labels") or {}).get(names.LABEL_DEPLOYMENT)
            if owner and found["type"] != "DELETED":
                marks = frozenset(mark for mark in MARKS if mark.encode() in line)
                self._versions[kind][owner].append(Version(at, meta["uid"], marks))

    def first(self, kind: str, owner: str, wanted: Callable[[Version], bool], since: float = 0.0) -> float | None:
        """When a version of a child was seen that is as wanted."""
        found = self._versions[kind].get(owner, ())
        return next((one.at for one in list(found) if one.at >= since and wanted(one)), None)

    def uid(self, owner: str) -> str:
        """Of its Deployment."""
        return self._versions["Deployment"][owner][-1].uid

    def complete(self, owner: str) -> float | None:
        """When an object had all its children."""
        moments = [self.first(kind, owner, lambda _: True) for kind in CHILDREN]
        return max(one for one in moments if one is not None) if None not in moments else None

    def wait_for(
        self, owners: Collection[str], look: Callable[[str], float | None], seconds: float, what: str
    ) -> dict[str, float]:
        """What `look` finds for each. Raises TimeoutError where it does not find something for all."""
        found: dict[str, float] = {}
        deadline = time.monotonic() + seconds
        while True:
            self.keep_operator()
            found |= {one: at for one in owners if one not in found and (at := look(one)) is not None}
            if len(found) == len(owners):
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(owners) - len(found)} of {len(owners)}: not {what} within {seconds:.0f} s")
            time.sleep(0.02 + 0.0002 * (len(owners) - len(found)))  # a look takes time from the watches

    def audited(self) -> list[dict[str, Any]]:
        """The operator's requests since the last call, without those of the Lease and watches that still run."""
        with self.cluster.audit_log.open("rb") as file:
            file.seek(self._audited)
            lines = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
        self._audited += sum(map(len, lines))
        events = (json.loads(line) for line in lines if AGENT in line)
        return [one for one in events if one["stage"] == "ResponseComplete" and _resource(one) != "leases"]

    def settle(self, seconds: float, quiet: float = 10.0) -> None:
        """Wait until the operator wrote nothing for a while. Raises TimeoutError."""
        last = deadline = time.monotonic()
        self.audited()
        while time.monotonic() < last + quiet:
            time.sleep(1.0)
            if self.writes():
                last = time.monotonic()
            if time.monotonic() > deadline + seconds:
                raise TimeoutError(f"the operator still writes after {seconds:.0f} s")

    def writes(self) -> int:
        """The operator's writes since the last call of this or of `audited`."""
        return sum(one["verb"] in WRITES for one in self.audited())

    # -- what is done

    def paced(self, owners: Collection[str], work: Callable[[str], object], rate: float = RATE) -> dict[str, float]:
        """Do something to each at a rate; when it was done."""
        done, started = {}, time.monotonic()
        for number, name in enumerate(owners):
            time.sleep(max(0.0, started + number / rate - time.monotonic()))
            work(name)
            done[name] = time.monotonic()
        return done

    def create(self, name: str) -> None:
        body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, "spec": SPEC}
        self.api.call("POST", OWN_KIND, body)

    def ready(self) -> int:
        """How many objects are Ready."""
        items: list[Mapping[str, Any]] = self.api.call("GET", OWN_KIND)["items"]
        conditions = ((one.get("status") or {}).get("conditions") or () for one in items)
        return sum(any((c["type"], c["status"]) == ("Ready", "True") for c in found) for found in conditions)


def _resource(event: Mapping[str, Any]) -> str:
    return str((event.get("objectRef") or {}).get("resource") or "")
