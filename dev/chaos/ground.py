"""What the faults happen on: a development cluster, two objects that clients use, the operator behind two proxies.

`auto` is tuned, `fixed` has a constant K. Faults reach everything from here; `run` makes it and ends it.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from chaos.operators import Operator, write_kubeconfig
from chaos.proxy import Proxy
from chaos.sights import Observer, identities
from demo import scene
from demo.scene import NAMESPACE, OPERATOR_NAMESPACE, ROOT, is_ready, pods_of, until
from demo.sender import Sender, evenly, models
from devcluster.apiclient import Json
from devcluster.cluster import Cluster
from devcluster.controlplane import Files
from devcluster.objects import Objects
from speculative_operator.domain import names

AUTO, FIXED = "auto", "fixed"
K, MOST_K = 3, 5
"""K of `fixed`, where `auto` starts, and what engines prepare."""
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

    # -- what is there

    @property
    def objects(self) -> Objects:
        """Read and written as the administrator, past every proxy."""
        return self.cluster.objects

    def foreign(self) -> dict[str, str]:
        """Whatever belongs to others, as it is now."""
        mine = {NAMESPACE: "others=yes", "neighbour": ""}
        found: dict[str, str] = {}
        for namespace, selector in mine.items():
            for resource in ("configmaps", "secrets", "services", "deployments", "persistentvolumeclaims"):
                found |= identities(self.objects.list(resource, namespace, selector), resource)
        return found

    def second_operator(self, **variables: str) -> Operator:
        """One more, not started, at the same API server."""
        return Operator("second", self.folder, {**self.operator.variables, **variables})

    # -- what is done to it

    def edit_cost(self) -> None:
        """An edit that reaches the status and no pod."""
        spec = {"accelerator": {"hourlyCost": f"{self.rng.randint(1, 99)}.50"}}
        self.objects.merge(names.PLURAL, FIXED, NAMESPACE, {"spec": spec})

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

    def lease_holder(self) -> str:
        """Identity of the operator that leads."""
        return str(self.objects.get("lease", names.OPERATOR, OPERATOR_NAMESPACE)["spec"].get("holderIdentity") or "")

    def remove(self, name: str) -> None:
        """Delete a fault's own object and wait until its pods are gone."""
        self.objects.delete(names.PLURAL, name, NAMESPACE)
        until(
            f"{name} is gone", lambda: not self.objects.list("pods", NAMESPACE, f"{names.LABEL_DEPLOYMENT}={name}"), 120
        )


def lay(stack: ExitStack, seed: int, kills: int, *, short: bool, say: Say) -> Ground:
    """Start everything and wait until clients are served. `short` has a folder of its own."""
    folder = ROOT / "build" / ("chaos-short" if short else "chaos")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    say("starting a cluster")
    cluster = stack.enter_context(Cluster.start(scene.options(f"chaos-{os.getpid()}")))
    _install(cluster)
    api_proxy = stack.enter_context(Proxy(cluster.server, Files(Path(cluster.state_dir)).authority))
    prometheus_proxy = stack.enter_context(Proxy(cluster.prometheus_url))
    write_kubeconfig(cluster, api_proxy.url, folder / "kubeconfig")
    variables = {"KUBECONFIG": str(folder / "kubeconfig"), "SPECULATIVE_PROMETHEUS_URL": prometheus_proxy.url}
    operator = Operator("first", folder, variables)
    allowed = {AUTO: frozenset(range(MOST_K + 1)), FIXED: frozenset({K})}
    rng = random.Random(seed)  # noqa: S311  a die
    ground = Ground(cluster, folder, rng, api_proxy, prometheus_proxy, operator, allowed, kills, short)
    _others(ground)
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


def _ready(ground: Ground, name: str) -> bool:
    return is_ready(ground.objects.get(names.PLURAL, name, NAMESPACE))


def _serve(ground: Ground, stack: ExitStack, say: Say) -> None:
    """Apply the objects, wait until they are ready, and begin the load."""
    say("applying the objects")
    speculation = {"mode": "Auto", "numSpeculativeTokens": K, "maxSpeculativeTokens": MOST_K}
    ground.objects.apply(manifest(AUTO, replicas=2, speculation=speculation))
    ground.objects.apply(manifest(FIXED))
    for name in ground.allowed:
        until(f"{name} is ready", partial(_ready, ground, name), READY_SECONDS)
    arrivals = evenly(LONGEST_SECONDS, RATE, PROMPT, OUTPUT)
    load = stack.enter_context(
        Sender(ground.cluster, ground.folder / "requests.jsonl", models(*ground.allowed), arrivals)
    )
    load.out.touch()
    ground.observer = Observer(
        ground.objects, ground.cluster.prometheus_url, ground.cluster.audit_log, load.out, ground.allowed
    )
    stack.callback(ground.observer.end)
