"""What the faults happen on: a development cluster, three objects that clients use, the operator behind two proxies.

`auto` is tuned, `fixed` has a constant K, `cached` loads its weights from a small volume that others use, too. Faults
reach everything from here; `run` makes it and ends it.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from chaos.operators import Operator, write_kubeconfig
from chaos.proxy import Proxy
from chaos.sights import Observer, checksums, identities
from demo import hub, scene
from demo.pairs import SPECULATORS
from demo.scene import NAMESPACE, OPERATOR_NAMESPACE, ROOT, SceneError, condition, pods_of, until
from demo.sender import Sender, evenly, models
from devcluster.apiclient import Json
from devcluster.cluster import Cluster
from devcluster.controlplane import Files
from devcluster.objects import Objects
from devcluster.options import ClusterOptions, Image
from speculative_operator.domain import names

AUTO, FIXED, CACHED = "auto", "fixed", "cached"
K, MOST_K = 3, 5
"""K of `fixed` and `cached`, where `auto` starts, and what engines of `auto` and `fixed` prepare."""
CLAIM, STORE_MIB = "store", 64
RATE, PROMPT, OUTPUT = 2.0, 200, 60
"""Requests a second of each object, and their tokens."""
LONGEST_SECONDS = 3600
READY_SECONDS = 240.0
Say = Callable[[str], None]


def manifest(name: str, **changes: Any) -> Json:
    """A SpeculativeDeployment of this run."""
    spec = {
        "verifier": {"model": "hf://Qwen/Qwen3-8B", "servedName": name, "maxModelLen": 4096, "maxNumSeqs": 64},
        "speculator": {"method": "draft_model", "model": "hf://Qwen/Qwen3-0.6B"},
        "speculation": {"mode": "Static", "numSpeculativeTokens": K, "maxSpeculativeTokens": MOST_K},
        "engine": {
            "version": "0.32.0",
            "image": "speculative-operator/vllm-emulator:0.32.0",
            "env": [{"name": "EMULATOR_ACCELERATOR", "value": "H100-SXM"}],
        },
        "accelerator": {"product": "H100-SXM"},
        "rollout": {"strategy": "RollingUpdate"},
        **scene.UNREAD,
        **changes,
    }
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": spec}


def cached(name: str, speculator: str) -> Json:
    """One whose weights a Job brings from the hub into the store, and removes there what nobody uses any more."""
    return manifest(
        name,
        verifier={"model": f"hf://tiny/{hub.TARGET}", "servedName": name, "maxModelLen": 2048, "maxNumSeqs": 8},
        speculator=SPECULATORS[speculator],
        speculation={"mode": "Static", "numSpeculativeTokens": K, "maxSpeculativeTokens": K},
        weights={"hubEndpoint": hub.URL, "cache": {"claimName": CLAIM, "collect": True}},
    )


def _images() -> dict[str, Image]:
    return {**hub.images(), "python": Image((sys.executable,))}


@dataclass
class Ground:
    """Everything that a fault may need."""

    cluster: Cluster
    folder: Path
    rng: random.Random
    api_proxy: Proxy
    prometheus_proxy: Proxy
    operator: Operator
    allowed: dict[str, frozenset[int]]
    kills: int
    short: bool
    observer: Observer = field(init=False)
    foreign_files: list[str] = field(default_factory=list)
    """Below the store: what the judge holds to be others'."""

    # -- what is there

    @property
    def objects(self) -> Objects:
        """Read and written as the administrator, past every proxy."""
        return self.cluster.objects

    @property
    def store(self) -> Path:
        """The volume that `cached` loads from, as this machine reaches it: it is mounted in the enclosure alone."""
        assert self.cluster.enclosure is not None
        return Path(f"/proc/{self.cluster.enclosure.first}/root{self.folder / 'store'}")

    def foreign(self) -> dict[str, str]:
        """Whatever belongs to others, as it is now."""
        mine = {NAMESPACE: "others=yes", "neighbour": ""}
        found = checksums(self.store, self.foreign_files)
        for namespace, selector in mine.items():
            for resource in ("configmaps", "secrets", "services", "deployments", "persistentvolumeclaims"):
                found |= identities(self.objects.list(resource, namespace, selector), resource)
        return found

    def second_operator(self, **variables: str) -> Operator:
        """One more, not started, at the same API server."""
        return Operator("second", self.folder, {**self.operator.variables, **variables})

    # -- what is done to it

    def edit(self, name: str, spec: Json) -> None:
        """As a user would."""
        self.objects.merge(names.PLURAL, name, NAMESPACE, {"spec": spec})

    def edit_cost(self) -> None:
        """An edit that reaches the status and no pod."""
        self.edit(FIXED, {"accelerator": {"hourlyCost": f"{self.rng.randint(1, 99)}.50"}})

    def lose_policy(self) -> None:
        self.objects.delete("networkpolicies", AUTO, NAMESPACE)

    def lose_table(self) -> None:
        """Delete the ConfigMap that holds the table of `auto`."""
        for body in self.objects.list("configmaps", NAMESPACE, f"{names.LABEL_DEPLOYMENT}={AUTO}"):
            if names.TABLE_KEY in (body.get("data") or {}):
                self.objects.delete("configmaps", body["metadata"]["name"], NAMESPACE)

    def edit_deployment(self) -> None:
        """Change by hand what the operator rendered, though not the pods."""
        self.objects.merge("deployments", FIXED, NAMESPACE, {"spec": {"progressDeadlineSeconds": 7777}})

    def set_clock(self, seconds: float) -> None:
        """How wrong the operator's wall clock is from now on."""
        partial = self.operator.clock.with_suffix(".partial")
        partial.write_text(str(seconds))
        partial.rename(self.operator.clock)

    def pods(self, name: str) -> list[str]:
        """Names of an object's serving pods."""
        return sorted(pod["metadata"]["name"] for pod in pods_of(self.cluster, name))

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        """Status and reason of a condition, empty where it has none."""
        found = condition(self.objects.get(names.PLURAL, name, NAMESPACE), kind)
        return found.get("status", ""), found.get("reason", "")

    def lease_holder(self) -> str:
        """Identity of the operator that leads."""
        return str(self.objects.get("lease", names.OPERATOR, OPERATOR_NAMESPACE)["spec"].get("holderIdentity") or "")

    def remove(self, name: str) -> None:
        """Delete a fault's own object and wait until its pods are gone."""
        self.objects.delete(names.PLURAL, name, NAMESPACE)
        until(
            f"{name} is gone", lambda: not self.objects.list("pods", NAMESPACE, f"{names.LABEL_DEPLOYMENT}={name}"), 120
        )


def options(name: str) -> ClusterOptions:
    """A cluster with the images of the run."""
    return scene.options(name, _images())


def lay(stack: ExitStack, seed: int, kills: int, *, short: bool, say: Say) -> Ground:
    """Start everything and wait until clients are served. `short` leaves `cached` and its hub out."""
    folder = ROOT / "build" / ("chaos-short" if short else "chaos")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "store").mkdir(parents=True)
    say("starting a cluster")
    cluster = stack.enter_context(Cluster.start(options(f"chaos-{os.getpid()}")))
    _install(cluster)
    api_proxy = stack.enter_context(Proxy(cluster.server, Files(Path(cluster.state_dir)).authority))
    prometheus_proxy = stack.enter_context(Proxy(cluster.prometheus_url))
    write_kubeconfig(cluster, api_proxy.url, folder / "kubeconfig")
    variables = {"KUBECONFIG": str(folder / "kubeconfig"), "SPECULATIVE_PROMETHEUS_URL": prometheus_proxy.url}
    operator = Operator("first", folder, variables)
    prepared = frozenset(range(MOST_K + 1))
    allowed = {AUTO: prepared, FIXED: frozenset({K}), CACHED: frozenset({K})}
    if short:
        del allowed[CACHED]
    rng = random.Random(seed)  # noqa: S311  a die
    ground = Ground(cluster, folder, rng, api_proxy, prometheus_proxy, operator, allowed, kills, short)
    _others(ground)
    if CACHED in allowed:
        _store(ground)
        hub.serve(cluster, folder / "hub", models=hub.MODELS)
    stack.callback(operator.stop)
    operator.start()
    _serve(ground, stack, say)
    return ground


def _install(cluster: Cluster) -> None:
    """Everything of manifests/ but the Deployment, whose place a process of this machine takes."""
    documents = yaml.safe_load_all((ROOT / "manifests" / "install.yaml").read_text())
    wanted = [document for document in documents if document["kind"] != "Deployment"]
    cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(wanted))
    cluster.wait_for_kinds()
    for namespace in (NAMESPACE, "neighbour"):
        cluster.kubectl("create", "namespace", namespace)


def _others(ground: Ground) -> None:
    """Objects of somebody else, some under names and labels that look like ours."""
    for namespace in (NAMESPACE, "neighbour"):
        labels = {"others": "yes", names.LABEL_MANAGED_BY: names.OPERATOR, names.LABEL_DEPLOYMENT: AUTO}
        meta = {"namespace": namespace, "labels": labels}
        for kind, name in (
            ("ConfigMap", f"{AUTO}-notes"),
            ("ConfigMap", f"{FIXED}-table-of-somebody"),
            ("Secret", "passwords"),
        ):
            ground.objects.apply({"apiVersion": "v1", "kind": kind, "metadata": {**meta, "name": name}})
        service = {"selector": {"app": "others"}, "ports": [{"port": 80}]}
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {**meta, "name": "others"}, "spec": service}
        ground.objects.apply(body)


def _store(ground: Ground) -> None:
    """A claim on a small volume of its own, in memory, that is mounted where the node's pods will find it."""
    path = ground.folder / "store"
    mount = ["mount", "-t", "tmpfs", "-o", f"size={STORE_MIB}m,mode=777", "store", str(path)]
    if ground.cluster.inside(mount).wait(30) != 0:
        raise SceneError(f"no file system could be mounted at {path}")
    size = {"storage": f"{STORE_MIB}Mi"}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    claim = {**common, "volumeName": "chaos-store", "resources": {"requests": size}}
    volume = {**common, "capacity": size, "hostPath": {"path": str(path)},
              "claimRef": {"namespace": NAMESPACE, "name": CLAIM}}  # fmt: skip
    meta = {"name": "chaos-store"}
    ground.objects.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": volume})
    meta = {"name": CLAIM, "namespace": NAMESPACE}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim}
    ground.objects.apply(body)


def _serve(ground: Ground, stack: ExitStack, say: Say) -> None:
    """Apply the objects, wait until they are ready, and begin the load."""
    say("applying the objects")
    speculation = {"mode": "Auto", "numSpeculativeTokens": K, "maxSpeculativeTokens": MOST_K}
    ground.objects.apply(manifest(AUTO, replicas=2, speculation=speculation))
    ground.objects.apply(manifest(FIXED))
    if CACHED in ground.allowed:
        ground.objects.apply(cached(CACHED, hub.DRAFT))
    for name in ground.allowed:
        until(f"{name} is ready", lambda name=name: ground.condition(name, "Ready")[0] == "True", READY_SECONDS)  # type: ignore[misc]  # a default binds the loop's value
    arrivals = evenly(LONGEST_SECONDS, RATE, PROMPT, OUTPUT)
    load = stack.enter_context(
        Sender(ground.cluster, ground.folder / "requests.jsonl", models(*ground.allowed), arrivals)
    )
    load.out.touch()
    ground.observer = Observer(
        ground.objects, ground.cluster.prometheus_url, ground.cluster.audit_log, load.out, ground.allowed
    )
    stack.callback(ground.observer.end)
