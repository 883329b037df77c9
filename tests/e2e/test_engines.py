"""The whole loop with SGLang and TensorRT-LLM, emulated: apply, serve, measure, change K by a rollout.

One cluster for both, under load together. The images are the public ones' names, mapped to the emulators.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from tests.e2e.conftest import LONG, NAMESPACE, Stage, until

from demo import scene
from demo.engines import images
from demo.load import read_records
from devcluster.cluster import Cluster
from devcluster.options import ClusterOptions
from speculative_operator.domain import names

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

RATE = 6
"""Of load on each engine: about 10 requests are under way at any time."""


@dataclass(frozen=True)
class Case:
    """One object, what its K is changed to, and how that shows in the pod."""

    name: str
    engine: dict[str, Any]
    speculator: dict[str, Any]
    before: dict[str, Any]
    after: dict[str, Any]
    text: str
    """Found, quotes left out, in the pod's command, arguments or files once the change has arrived."""

    def manifest(self, speculation: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": self.name},
            "spec": {
                "verifier": {
                    "model": "hf://Qwen/Qwen3-8B",
                    "servedName": self.name,
                    "maxModelLen": 8192,
                    "maxNumSeqs": 64,
                },
                "speculator": copy.deepcopy(self.speculator),
                "speculation": speculation,
                "engine": self.engine,
                "accelerator": {"product": "H100-SXM"},
                "rollout": {"strategy": "RollingUpdate", "tuning": "Interrupt"},
            },
        }


HEAD = {"method": "eagle3", "model": "hf://example/qwen3-8b-eagle3"}
CASES = (
    Case(
        "sglang",
        {"type": "SGLang"},
        HEAD,
        {"mode": "Static", "schedule": [[1, 64, 5]]},
        {"mode": "Static", "schedule": [[1, 8, 4], [9, 64, 2]]},
        "9:{candidate_steps:[2]}",
    ),
    Case(
        "tensorrt",
        {"type": "TensorRTLLM"},
        HEAD,
        {"mode": "Static", "schedule": [[1, 64, 5]]},
        {"mode": "Static", "schedule": [[1, 8, 4], [9, 64, 2]]},
        "draft_len_schedule: {8: 4, 64: 2}",
    ),
)
NAMES = [case.name for case in CASES]


@pytest.fixture(scope="module")
def engines(enclosures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Operator and both objects, Ready."""
    folder = tmp_path_factory.mktemp("engines")
    usual = scene.options(f"engines-{os.getpid()}")
    options = ClusterOptions(
        name=usual.name,
        images={**usual.images, **images(folder)},
        accelerators=usual.accelerators,
        scrape_interval_seconds=usual.scrape_interval_seconds,
        node_settings={"visible": [str(folder)]},
    )
    with Cluster.start(options) as cluster:
        scene.install_operator(cluster)
        cluster.kubectl("create", "namespace", NAMESPACE)
        stage = Stage(cluster, folder)
        for case in CASES:
            stage.apply(case.manifest(case.before))
        for case in CASES:
            scene.wait_ready(cluster, case.name, 180)
        yield stage


def start_of(pod: dict[str, Any]) -> str:
    """Everything that decides how the engine of a pod starts."""
    (container,) = pod["spec"]["containers"]
    files = {
        key: value
        for key, value in pod["metadata"].get("annotations", {}).items()
        if key.startswith(names.ANNOTATION_FILE)
    }
    return "\n".join([" ".join([*container.get("command", ()), *container["args"]]), *files.values()])


def test_k_changes_under_load_without_a_failed_request(engines: Stage) -> None:
    """Figures of all three first; then the change, which is a rollout of each, while requests go on."""
    before = {name: engines.pods(name)[0]["metadata"]["uid"] for name in NAMES}
    with engines.under_load(dict(zip(NAMES, NAMES, strict=True)), RATE, prompt=200) as out:
        for case in CASES:
            until(partial(tells, engines, case), LONG)
        for case in CASES:
            engines.apply(case.manifest(case.after))
        for case in CASES:
            until(partial(arrived, engines, case, before[case.name]), LONG)
    records = read_records(out)
    failed = [record for record in records if record["failed"]]
    assert not failed, failed[:3]
    assert {record["target"] for record in records} == set(NAMES)


def tells(stage: Stage, case: Case) -> bool:
    """True when MetricsAvailable is True, with figures in the status."""
    found = stage.condition(case.name, "MetricsAvailable")
    figures = stage.get("specdep", case.name).get("status", {}).get("speculation", {})
    return bool(found.get("status") == "True" and float(figures.get("acceptanceLength", "0")) > 1)


def arrived(stage: Stage, case: Case, old: str) -> bool:
    """True when one pod is left, a new and ready one that was told the new K."""
    pods = stage.pods(case.name)
    if len(pods) != 1 or pods[0]["metadata"]["uid"] == old or case.text not in start_of(pods[0]).replace('"', ""):
        return False
    return scene.is_ready(pods[0])
