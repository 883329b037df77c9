"""What the demo puts on the cluster: the operator from manifests/, the example, and the same model untuned."""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from devcluster.cluster import Cluster
from devcluster.options import ClusterOptions, Image
from speculative_lab.emulator.commands import lay
from speculative_operator import __version__
from speculative_operator.domain import names
from speculative_operator.trial import verdict

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "models"
IMAGE = f"speculative-operator:{__version__}"
EXAMPLE = ROOT / "examples" / "emulator" / "speculative-deployment.yaml"
OPERATOR_NAMESPACE = "speculative-system"
OPERATOR = "deployment/speculative-operator"
CHECK_PAIRS = "SPECULATIVE_CHECK_PAIRS"
UNREAD = {"weights": {"check": "Disabled"}}
"""In the spec of objects whose models are names only."""

STEP_NOISE = {"name": "EMULATOR_STEP_NOISE", "value": "0.01"}
"""In the engines' environment: by how much a step varies by itself. At the emulator's own 0.05 two copies without
speculation differ by up to 6 % in ten seconds of the peak, where who runs slower has more to run; at 0.01 by 1.6 %."""
OTHER_CHANCE = {"name": "EMULATOR_SEED", "value": "1"}
"""For the second copy without speculation: with one seed both would take the same steps where nothing disturbs them,
and tell too little of what chance does to a queue. Lengths of answers come with the requests."""
AUTO, STATIC, BEST, OFF, AGAIN = "auto", "static5", "static-best", "off", "again"
"""Roles. The last is a second copy without speculation: what it differs by from the first is chance."""
STATIC_K = 5
BEST_K = 1
"""The K of 1 to 5 with the lowest mean TPOT over the whole replay, which nobody knows beforehand. At low load K = 2 is
faster, at the peak K = 0."""
STATICS = {STATIC: STATIC_K, BEST: BEST_K}


class SceneError(RuntimeError):
    """The cluster did not get where the demo needs it. The message says what was waited for and what was seen."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One object of the demo: its role in the comparison and its name in the cluster."""

    role: str
    name: str
    manifest: dict[str, Any]

    @property
    def model(self) -> str:
        """Name under which the API serves it."""
        return str(self.manifest["spec"]["verifier"].get("servedName") or self.name)


def images() -> dict[str, Image]:
    """Image names of the manifests, each a program of this virtual environment."""
    scripts = Path(sys.executable).parent
    # Jobs name a command of the operator's image, which is found where a container runtime would find it.
    path = {"PATH": f"{scripts}:/usr/local/bin:/usr/bin:/bin"}
    engines = {"PATH": lay(ROOT / "build" / "engines")["PATH"]}
    return {
        IMAGE: Image((str(scripts / "speculative-operator"),), path),
        "speculative-operator/vllm-emulator:0.32.0": Image((str(scripts / "vllm-emulator"), "serve"), engines),
    }


def options(name: str = "demo", more: Mapping[str, Image] | None = None) -> ClusterOptions:
    """A node with twelve accelerators that has these images, and `more`."""
    known = {**images(), **(more or {})}
    return ClusterOptions(name=name, images=known, accelerators={"nvidia.com/gpu": 12}, scrape_interval_seconds=5)


def variants() -> list[Variant]:
    """The example as it is, with speculation fixed at two K, and twice without; its models are not looked at."""
    example = yaml.safe_load(EXAMPLE.read_text())
    example["spec"] |= UNREAD
    example["spec"]["engine"]["env"].append(STEP_NOISE)
    name = example["metadata"]["name"]

    def variant(role: str, suffix: str, **speculation: Any) -> Variant:
        manifest = copy.deepcopy(example)
        manifest["metadata"]["name"] = name + suffix
        manifest["spec"]["speculation"] = (manifest["spec"].get("speculation") or {}) | speculation
        return Variant(role, name + suffix, manifest)

    again = variant(AGAIN, "-off-again", mode="Disabled")
    again.manifest["spec"]["engine"]["env"].append(OTHER_CHANCE)
    return [
        Variant(AUTO, name, example),
        *(
            variant(role, f"-static{k}", mode="Static", numSpeculativeTokens=k, maxSpeculativeTokens=k)
            for role, k in STATICS.items()
        ),
        variant(OFF, "-off", mode="Disabled"),
        again,
    ]


def install_operator(cluster: Cluster, *, check_pairs: bool = False) -> None:
    """`kubectl apply` of manifests/, and wait until the operator's pod is ready.

    `check_pairs` as the chart's value pairs.check. Off where all models of a scene are names only: nothing in the
    cluster's network can be asked for them.
    """
    documents = list(yaml.safe_load_all((ROOT / "manifests" / "install.yaml").read_text()))
    (operator,) = [one for one in documents if one["kind"] == "Deployment"]
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    (setting,) = [one for one in container["env"] if one["name"] == CHECK_PAIRS]
    setting["value"] = str(check_pairs).lower()
    cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(documents))
    cluster.wait_for_kinds()
    _rollout(cluster, OPERATOR_NAMESPACE, OPERATOR, 180)


def have_operator_scraped(cluster: Cluster) -> None:
    """Have Prometheus scrape the operator's pod, as the chart's PodMonitor does elsewhere."""
    scrape = ("prometheus.io/scrape=true", "prometheus.io/port=8080")
    for pod in cluster.objects.list("pods", OPERATOR_NAMESPACE):
        if "deletionTimestamp" not in pod["metadata"]:
            cluster.kubectl(
                "annotate", "--overwrite", "pod", pod["metadata"]["name"], "-n", OPERATOR_NAMESPACE, *scrape
            )


def apply(cluster: Cluster, objects: Iterable[Variant]) -> None:
    """`kubectl apply` of the objects, all in one call."""
    documents = json.dumps({"apiVersion": "v1", "kind": "List", "items": [one.manifest for one in objects]})
    cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", input=documents)


def wait_ready(cluster: Cluster, name: str, timeout: float, tick: Callable[[str], None] = lambda _: None) -> float:
    """Wait for `Ready=True` of an object as its spec is now; seconds waited. Raises SceneError with the conditions
    seen. After an edit, what is Ready as the spec was before does not count."""
    started = time.monotonic()
    conditions: dict[str, Any] = {}
    while time.monotonic() - started < timeout:
        found = cluster.objects.get("specdep", name, NAMESPACE)
        conditions = {entry["type"]: entry for entry in (found.get("status") or {}).get("conditions", [])}
        if verdict(found):
            return time.monotonic() - started
        ready = conditions.get("Ready", {})
        tick(f"{ready.get('reason', 'waiting')}: {ready.get('message', '')}")
        time.sleep(0.25)
    seen = "; ".join(f"{kind}={entry['status']} {entry['message']}" for kind, entry in conditions.items())
    raise SceneError(f"{name} was not ready after {timeout:.0f} s: {seen or 'nothing is said of it'}")


def until(what: str, look: Callable[[], Any], seconds: float, every: float = 0.25) -> Any:
    """Look until there is something, and return it. Raises SceneError."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise SceneError(f"not within {seconds:.0f} s: {what}")
        time.sleep(every)
    return found


def condition(found: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """One condition of an object or a pod; empty where it has none."""
    entries = (found.get("status") or {}).get("conditions") or ()
    return next((dict(one) for one in entries if one["type"] == kind), {})


def is_ready(found: Mapping[str, Any]) -> bool:
    """Whether an object or a pod says that it serves."""
    return condition(found, "Ready").get("status") == "True"


def pods_of(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """Serving pods of an object that are not on their way out."""
    found = cluster.objects.list("pods", NAMESPACE, f"{names.LABEL_DEPLOYMENT}={name}")
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def service_url(cluster: Cluster, name: str) -> str:
    """Address of an object's Service inside the cluster's network."""
    found = cluster.objects.get("service", name, NAMESPACE)
    if not found:
        raise SceneError(f"there is no Service {name}")
    spec = found["spec"]
    return f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"


def _rollout(cluster: Cluster, namespace: str, what: str, timeout: int) -> None:
    done = cluster.kubectl("rollout", "status", "-n", namespace, what, f"--timeout={timeout}s", check=False)
    if done.returncode:
        pods = cluster.kubectl("get", "pods", "-n", namespace, "-o", "wide", check=False).stdout
        logs = cluster.kubectl("logs", "-n", namespace, what, "--tail=20", check=False)
        raise SceneError(f"{what} did not become ready: {done.stderr.strip()}\n{pods}{logs.stdout}{logs.stderr}")
