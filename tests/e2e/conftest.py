"""A whole scene: cluster with a node, the operator from manifests/, and what the tests need to look at it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any, Protocol, TypeVar

import pytest
from kubernetes import client, config

from demo import hub, scene
from demo.load import read_records
from devcluster.cluster import Cluster

NAMESPACE = scene.NAMESPACE
PUBLIC = ("vllm/vllm-openai:v0.32.0", "registry.redhat.io/rhaiis/vllm-cuda-rhel9:3")
"""Images of engines that pages name; the emulator plays them."""


@dataclass(frozen=True)
class Stage:
    """The cluster with the operator on it."""

    cluster: Cluster
    directory: Path

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """An object as JSON; empty when it does not exist."""
        found = self.cluster.kubectl("get", kind, name, "-n", NAMESPACE, "-o", "json", check=False)
        return json.loads(found.stdout) if found.returncode == 0 else {}

    def items(self, kind: str, *args: str) -> list[dict[str, Any]]:
        found = self.cluster.kubectl("get", kind, "-n", NAMESPACE, "-o", "json", *args)
        return list(json.loads(found.stdout)["items"])

    def pods(self, name: str) -> list[dict[str, Any]]:
        """Serving pods of an object that are not being deleted."""
        found = self.items("pods", "-l", f"serving.speculative.dev/deployment={name}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def table_config(self, name: str) -> str:
        """Name of the ConfigMap that an object's pods read their table from: it belongs to their pair."""
        found = (one["metadata"]["name"] for one in self.items("configmap"))
        return next((one for one in found if one.startswith(f"{name}-table-")), "")

    def apply(self, manifest: dict[str, Any]) -> None:
        self.cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", input=json.dumps(manifest))

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        entries = (self.get("specdep", name).get("status") or {}).get("conditions", [])
        return next((entry for entry in entries if entry["type"] == kind), {})

    def load(self, name: str, seconds: float, rate: float, service: str = "") -> Path:
        """Send requests evenly for a while and wait for the answers; the file of records. `service`: another one than
        that by the object's name."""
        count = int(seconds * rate)
        plan = {
            "timeout": 120.0,
            "targets": [{"name": name, "model": name, "url": scene.service_url(self.cluster, service or name)}],
            "arrivals": [{"number": n, "at": n / rate, "prompt": 400, "output": 150} for n in range(count)],
        }
        path, out = self.directory / "plan.json", self.directory / f"load-{time.monotonic_ns()}.jsonl"
        path.write_text(json.dumps(plan))
        environment = {"PYTHONPATH": str(scene.ROOT / "dev")}
        argv = [sys.executable, "-m", "demo.load", "--plan", str(path), "--out", str(out)]
        assert self.cluster.inside(argv, env=environment).wait(seconds + 120) == 0
        return out

    def load_until_tuned(self, name: str, rate: float, service: str = "") -> None:
        """Send requests evenly until pods follow a table changed live, for four minutes at most; none may fail.

        Decisions are not waited for: where the first table is right already, the tuner only changes what is tried.
        """
        for _ in range(8):
            out = self.load(name, seconds=30, rate=rate, service=service)
            assert not [record for record in read_records(out) if record["failed"]]
            status = self.get("specdep", name)["status"]
            if status["engine"].get("tableVersionInPods", 0) >= 2 and status["speculation"].get("acceptanceLength"):
                return
        raise AssertionError(f"no table came into force: {status}")


def until(what: Callable[[], Any], timeout: float, every: float = 0.3) -> Any:
    """Wait until `what` gives something true, and give that; fail with what it gave last."""
    deadline = time.monotonic() + timeout
    while True:
        found = what()
        if found or time.monotonic() > deadline:
            assert found, f"not within {timeout:.0f} s; last seen: {found!r}"
            return found
        time.sleep(every)


@pytest.fixture(scope="session")
def stage(enclosures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The operator, installed and running as a pod under its own ServiceAccount."""
    emulator = scene.images()["speculative-operator/vllm-emulator:0.32.0"]
    with Cluster.start(scene.options(f"e2e-{os.getpid()}", dict.fromkeys(PUBLIC, emulator))) as cluster:
        scene.install_operator(cluster)
        cluster.kubectl("create", "namespace", NAMESPACE)
        yield Stage(cluster, tmp_path_factory.mktemp("stage"))


class Controller(Protocol):
    """A stand-in for the controller of another project's kind."""

    def run(self, stop: Event) -> None:
        """Reconcile until told to stop."""


C = TypeVar("C", bound=Controller)


@contextmanager
def controlled(stage: Stage, kind: Callable[[client.ApiClient, str], C], name: str) -> Iterator[C]:
    """A stand-in at work; the object by this name is deleted before it ends."""
    loaded, stop = client.Configuration(), Event()
    load: Any = config.load_kube_config
    load(str(stage.cluster.kubeconfig), client_configuration=loaded)
    with client.ApiClient(loaded) as api:
        controller = kind(api, NAMESPACE)
        thread = Thread(target=controller.run, args=(stop,), daemon=True)
        thread.start()
        try:
            yield controller
        finally:
            stage.cluster.kubectl("delete", "specdep", name, "-n", NAMESPACE)
            stop.set()
            thread.join(10.0)


@contextmanager
def with_hub(
    name: str, directory: Path, *hub_args: str, node_settings: Mapping[str, Any] | None = None
) -> Iterator[tuple[Stage, Path]]:
    """A stage whose operator inspects pairs, with a hub; and the folder that it serves."""
    folder = scene.ROOT / "build" / f"hub-{name}-{os.getpid()}"  # what is below /tmp, pods have of their own
    options = scene.options(f"{name}-{os.getpid()}", hub.images())
    if node_settings is not None:
        options = replace(options, node_settings=node_settings)
    with Cluster.start(options) as cluster:
        scene.install_operator(cluster, check_pairs=True)
        cluster.kubectl("create", "namespace", NAMESPACE)
        try:
            hub.serve(cluster, folder, *hub_args)
            yield Stage(cluster, directory), folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
