"""Quick starts as they are written (`pages`), the README's until the object is tuned.

Put in the place of what this machine lacks, beside docker and port-forward:

- vLLM's image runs the emulator;
- the hub is one in the cluster that has the pages' models without their weights (`modelservers.large`: configuration,
  tokenizer and headers of their tensors); the operator's image has its address as HF_ENDPOINT, and Jobs do read them;
- Prometheus is real and scrapes what a stand-in for prometheus-operator makes of PodMonitors (`monitored`).

So what is not tested is that images build, and that the hub has the models.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e import monitored
from tests.e2e.pages import REGISTRY, ROOT, answered, blocks, typed

from demo import hub, scene
from devcluster import Cluster, Image
from modelservers import large

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("curl") is None, reason="the pages use curl"),
]

README, HELM, KUBECTL = "README.md", "docs/quick-start-helm.md", "docs/quick-start-kubectl.md"
NAME, VERIFIER, HEAD = "qwen3-8b", "Qwen/Qwen3-8B", "RedHatAI/Qwen3-8B-speculator.eagle3"


def _images() -> dict[str, Image]:
    """The images that the pages name and the development cluster lacks."""
    known = scene.images()
    operator = replace(known[scene.IMAGE])
    operator = replace(operator, env={**operator.env, "HF_ENDPOINT": hub.URL})
    emulator = known["speculative-operator/vllm-emulator:0.32.0"]
    more: dict[str, Image] = {f"{REGISTRY}/{scene.IMAGE}": operator, "vllm/vllm-openai:v0.32.0": emulator}
    return more | hub.images()


@pytest.fixture(scope="module")
def cluster(enclosures: None) -> Iterator[Cluster]:
    """With kube-prometheus-stack as far as the operator meets it, and a hub that has the pages' models."""
    folder = ROOT / "build" / f"hub-quick-{os.getpid()}"  # what is below /tmp, pods have of their own
    with Cluster.start(scene.options(f"quick-{os.getpid()}", _images())) as started:
        started.kubectl("create", "namespace", scene.NAMESPACE)
        try:
            hub.serve(started, folder)
            large.lay_out(folder / VERIFIER, large.QWEN3_8B, tokens=1000)
            large.lay_out_head(folder / HEAD, VERIFIER, large.QWEN3_8B)
            with monitored.stack(started):
                yield started
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def test_the_readme_leads_to_a_tuned_object(cluster: Cluster, tmp_path: Path) -> None:
    """Another table than the first one, by figures that reach Prometheus through the PodMonitor alone."""
    assert answered(typed(cluster, blocks(README), tmp_path))
    try:
        found = json.loads(cluster.kubectl("get", "specdep", NAME, "-n", "default", "-o", "json").stdout)["status"]
        assert found["speculation"]["tableVersion"] > 1, found["speculation"]
        seen = {one["type"]: one for one in found["conditions"]}
        assert (seen["PairCompatible"]["reason"], seen["MemoryFits"]["status"]) == ("PairMatches", "True"), seen
        assert seen["MetricsAvailable"]["status"] == "True", seen
        assert "reads them from the pods" not in seen["MetricsAvailable"]["message"]
    finally:
        typed(cluster, blocks(HELM)[-3:], tmp_path)


@pytest.mark.parametrize("page", [KUBECTL, HELM])
def test_a_page_works_as_it_is_written(cluster: Cluster, tmp_path: Path, page: str) -> None:
    said = typed(cluster, blocks(page), tmp_path)
    assert answered(said)
    if page == HELM:
        assert "the operator reconciles" in said
