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
from demo.sender import Sender, evenly
from devcluster.cluster import Cluster
from speculative_operator.domain import names

NAMESPACE = scene.NAMESPACE
LONG = 240.0
"""seconds for which a state is waited for: a machine that does much else at the same time takes its time."""
LOAD_SECONDS = 600.0
"""seconds for which requests come at most."""
PUBLIC = ("vllm/vllm-openai:v0.32.0", "registry.redhat.io/rhaiis/vllm-cuda-rhel9:3")
"""Images of engines that pages name; the emulator plays them."""
SLOWER = "speculative-operator/vllm-emulator:0.32.0-slower"
"""Image of an engine whose every step takes 10 % longer."""
LONGEST = (
    "canary_decides", "rights", "bench", "quick_starts", "quick_start_laptop", "verify", "chaos", "inference_service",
    "pairs", "pod_weights", "loop", "leader_worker_set", "llm_inference_service", "auto",
)  # fmt: skip
"""Files that take two minutes and more, the longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, each of which keeps one worker busy: none of them shall be left over at the end."""
    order = {f"test_{name}": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@dataclass(frozen=True)
class Stage:
    """The cluster with the operator on it."""

    cluster: Cluster
    directory: Path

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """An object as JSON; empty when it does not exist."""
        return self.cluster.objects.get(kind, name, NAMESPACE)

    def items(self, kinds: str, selector: str = "") -> list[dict[str, Any]]:
        """Objects of one or several kinds that bear the labels."""
        return self.cluster.objects.list(kinds, NAMESPACE, selector)

    def pods(self, name: str) -> list[dict[str, Any]]:
        """Serving pods of an object that are not being deleted."""
        return scene.pods_of(self.cluster, name)

    def table_config(self, name: str) -> str:
        """Name of the ConfigMap that an object's pods read their table from: it belongs to their pair."""
        found = (one["metadata"]["name"] for one in self.items("configmap"))
        return next((one for one in found if one.startswith(f"{name}-table-")), "")

    def apply(self, manifest: dict[str, Any]) -> None:
        self.cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", input=json.dumps(manifest))

    def clear(self) -> None:
        """Delete all objects, and their pods whatever they still do: accelerators are few."""
        self.cluster.kubectl("delete", "specdep", "--all", "-n", NAMESPACE)
        force = ("-l", names.LABEL_DEPLOYMENT, "--grace-period=0", "--force")

        def gone() -> bool:
            if not self.items("pods", names.LABEL_DEPLOYMENT):
                return True
            self.cluster.kubectl("delete", "pods", "-n", NAMESPACE, *force, check=False)
            return False

        until(gone, LONG, 1.0)

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        return scene.condition(self.get("specdep", name), kind)

    def load(self, name: str, seconds: float, rate: float) -> Path:
        """Send requests evenly for a while and wait for the answers; the file of records."""
        with self.under_load({name: name}, rate) as out:
            time.sleep(seconds)
        return out

    @contextmanager
    def under_load(self, services: Mapping[str, str], rate: float, prompt: int = 400) -> Iterator[Path]:
        """Send requests evenly to objects by their Services until the block is left, and wait for the answers; the file
        of records, which are complete then."""
        targets = {name: (name, service) for name, service in services.items()}
        out = self.directory / f"load-{time.monotonic_ns()}.jsonl"
        with Sender(self.cluster, out, targets, evenly(LOAD_SECONDS, rate, prompt, output=150)) as sender:
            until(lambda: not sender.sending or sender.records(), LONG)
            yield out
            sender.finish(LONG)

    def load_until_tuned(
        self, name: str, rate: float, service: str = "", also: Callable[[dict[str, Any]], Any] = bool
    ) -> None:
        """Send requests evenly until pods follow a table changed live and the status is as `also` wants it; none may
        fail.

        Decisions are not waited for: where the first table is right already, the tuner only changes what is tried.
        """

        def tuned() -> bool:
            status = self.get("specdep", name)["status"]
            followed = (status.get("engine") or {}).get("tableVersionInPods", 0) >= 2
            return bool(followed and (status.get("speculation") or {}).get("acceptanceLength") and also(status))

        with self.under_load({name: service or name}, rate) as out:
            until(tuned, LONG)
        assert not [record for record in read_records(out) if record["failed"]]

    def order(self, *faults: dict[str, Any]) -> None:
        """What the hub does wrong from now on."""
        code = "import sys, urllib.request as r; r.urlopen(r.Request(sys.argv[1], sys.argv[2].encode(), method='PUT'))"
        url = f"{scene.service_url(self.cluster, hub.NAME)}/_control"
        assert self.cluster.inside([sys.executable, "-c", code, url, json.dumps(faults)]).wait(60) == 0

    def sent(self, model: str) -> float:
        """How often the hub has sent a model's weights, by bytes."""
        weights = hub.MODELS / model / "model.safetensors"
        told = hub.asked(self.cluster)["bytesByPath"].items()
        through: int = sum(count for path, count in told if f"tiny/{model}" in path and weights.name in path)
        return through / weights.stat().st_size

    def written(self, name: str, *kinds: str) -> dict[str, tuple[int, list[Any]]]:
        """Of the objects by this name, how often anybody changed each, and what the operator wrote of it."""
        found = {}
        for kind in kinds:
            words = ("get", kind, name, "-n", NAMESPACE, "-o", "json", "--show-managed-fields")
            metadata = json.loads(self.cluster.kubectl(*words).stdout)["metadata"]
            ours = [one for one in metadata["managedFields"] if one["manager"] == names.FIELD_MANAGER]
            found[kind] = (metadata["generation"], ours)
        return found

    def wait_available(self, name: str) -> None:
        """Wait until figures of the object are found."""
        until(lambda: self.condition(name, "MetricsAvailable").get("status") == "True", LONG)


def until(what: Callable[[], Any], timeout: float, every: float = 0.3) -> Any:
    """Wait until `what` gives something true, and give that; fail with what it gave last."""
    deadline = time.monotonic() + timeout
    while True:
        found = what()
        if found or time.monotonic() > deadline:
            assert found, f"not within {timeout:.0f} s; last seen: {found!r}"
            return found
        time.sleep(every)


def until_none(what: Callable[[], list[Any]], timeout: float, every: float = 0.3) -> None:
    """Wait until `what` gives nothing more; fail with what it still gave last."""
    deadline = time.monotonic() + timeout
    while left := what():
        assert time.monotonic() < deadline, f"not gone within {timeout:.0f} s: {left}"
        time.sleep(every)


def less_than(k: int) -> Callable[[dict[str, Any]], bool]:
    """Whether a status shows a smaller K; it shows none before there are figures."""

    def shown(status: dict[str, Any]) -> bool:
        now = str((status.get("speculation") or {}).get("k"))
        return now.isdecimal() and int(now) < k

    return shown


@pytest.fixture(scope="session")
def stage(enclosures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The operator, installed and running as a pod under its own ServiceAccount."""
    emulator = scene.images()["speculative-operator/vllm-emulator:0.32.0"]
    slower = replace(emulator, env={**emulator.env, "EMULATOR_SLOWER_PERCENT": "10"})
    images = {**dict.fromkeys(PUBLIC, emulator), SLOWER: slower}
    with Cluster.start(scene.options(f"e2e-{os.getpid()}", images)) as cluster:
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
