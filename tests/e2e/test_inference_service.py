"""The loop with `target: InferenceService`: the objects of docs/openshift-ai.md, InferenceService, pods that a stand-in
for KServe makes, K tuned in them; with the rights of the installed roles and nothing more. A second writer plays the
platform's webhooks.

KServe's definitions are the real ones; its controller and the webhooks are tests/kserve.py. Two things are put in the
place of others: the project, and models that nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests import kserve
from tests.e2e.conftest import NAMESPACE, Stage, controlled, until
from tests.openshift_ai import shown

from demo import scene
from demo.load import read_records

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

NAME = "qwen3-8b-assist"
MADE = f"{NAME}-predictor"
KINDS = ("inferenceservice", "servingruntime")


def manifest(name: str = NAME) -> dict[str, Any]:
    """An object of the page."""
    found = shown("SpeculativeDeployment", name)
    found["metadata"]["namespace"] = NAMESPACE
    found["spec"] |= scene.UNREAD
    return found


@pytest.fixture(scope="module")
def platform(stage: Stage) -> Iterator[kserve.Controller]:
    """The object, applied before KServe is there; then KServe."""
    stage.apply(manifest())
    until(lambda: stage.condition(NAME, "Ready").get("reason") == "UnsupportedTarget", 180)
    assert "install KServe" in stage.condition(NAME, "Ready")["message"]
    assert stage.pods(NAME) == []
    kserve.install(stage.cluster)
    stage.cluster.kubectl("label", "node", "--all", "accelerator=h100", "--overwrite")
    stage.cluster.kubectl("rollout", "restart", scene.OPERATOR, "-n", scene.OPERATOR_NAMESPACE)
    with controlled(stage, kserve.Controller, NAME) as controller:
        yield controller


def test_the_loop_closes_through_pods_that_kserve_makes(stage: Stage, platform: kserve.Controller) -> None:
    scene.wait_ready(stage.cluster, NAME, 180)
    (pod,) = stage.pods(NAME)
    assert pod["metadata"]["labels"]["serving.kserve.io/inferenceservice"] == NAME
    assert pod["spec"]["nodeSelector"] == {"accelerator": "h100"}, "the webhooks' part reaches the pods"
    (container,) = pod["spec"]["containers"]
    assert (container["name"], container["args"][0]) == ("kserve-container", "--model=Qwen/Qwen3-8B")
    before, filled_in = stage.written(NAME, *KINDS), platform.filled_in

    stage.load_until_tuned(NAME, rate=8, service=MADE)
    status = stage.get("specdep", NAME)["status"]
    assert status["url"] == f"http://{MADE}.{NAMESPACE}.svc.cluster.local"
    stage.wait_available(NAME)
    (after,) = stage.pods(NAME)
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["metadata"]["annotations"]["serving.speculative.dev/table-version"]
    assert stage.written(NAME, *KINDS) == before, "K was tuned, and nothing else was written"
    assert platform.filled_in == filled_in <= 2, "the operator and the webhooks write against each other"


def test_a_release_of_the_platform_gets_another_k_by_a_rollout_and_its_status_says_so(
    stage: Stage, platform: kserve.Controller
) -> None:
    """vLLM 0.11 of OpenShift AI, whose pods read no table. The tuner waits ten minutes before it replaces pods, so the
    user asks for another K here; the unit tests of the target have what the tuner does."""
    name = "qwen3-8b-platform"
    stage.apply(manifest(name))
    try:
        scene.wait_ready(stage.cluster, name, 180)
        (before,) = stage.pods(name)
        (container,) = before["spec"]["containers"]
        assert container["image"] == "registry.redhat.io/rhaiis/vllm-cuda-rhel9:3"
        assert stage.table_config(name) == ""
        with stage.under_load({name: f"{name}-predictor"}, rate=8) as out:
            stage.wait_available(name)
        assert not [record for record in read_records(out) if record["failed"]]
        status = stage.get("specdep", name)["status"]
        assert status["speculation"]["actuator"] == "Restart"
        assert '"num_speculative_tokens":3' in container["args"][-1]
        until(lambda: stage.get("specdep", name)["status"]["speculation"].get("k") == "3", 180)

        wanted = manifest(name)
        wanted["spec"]["speculation"] = {"mode": "Static", "numSpeculativeTokens": 2, "maxSpeculativeTokens": 3}
        stage.apply(wanted)
        until(lambda: [one["metadata"]["uid"] for one in stage.pods(name)] != [before["metadata"]["uid"]], 180)
        until(lambda: len(stage.pods(name)) == 1, 180)
        scene.wait_ready(stage.cluster, name, 180)
        (after,) = stage.pods(name)
        assert '"num_speculative_tokens":2' in after["spec"]["containers"][0]["args"][-1]
        until(lambda: stage.get("specdep", name)["status"]["speculation"].get("k") == "2", 180)
    finally:
        stage.cluster.kubectl("delete", "specdep", name, "-n", NAMESPACE)
