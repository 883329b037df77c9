"""The loop with `target: LLMInferenceService`: apply, LLMInferenceService, pods that a stand-in for KServe makes, K
tuned in them; with the rights of the installed roles and nothing more. A second writer plays the platform's webhooks.

KServe's definition is the real one; its controller and the webhooks are tests/kserve_llm.py.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests import kserve, kserve_llm
from tests.e2e.conftest import NAMESPACE, Stage, controlled, less_than, until

from demo import scene

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

NAME = "granite-llm"
MADE = f"{NAME}-kserve"


def manifest() -> dict[str, Any]:
    found = copy.deepcopy(scene.variants()[0].manifest)
    found["metadata"]["name"] = NAME
    # so many that fewer are faster at any load
    found["spec"]["speculation"] |= {"numSpeculativeTokens": 8, "maxSpeculativeTokens": 8}
    found["spec"] |= {"target": "LLMInferenceService"}
    found["spec"]["inferenceService"] = {"hardwareProfile": {"name": "gpu"}, "connection": "registry", "exposed": True}
    return found


@pytest.fixture(scope="module")
def platform(stage: Stage) -> Iterator[kserve_llm.Controller]:
    """The object, applied where KServe may not be there yet; then KServe."""
    if stage.cluster.kubectl("get", kserve_llm.Controller.plural, "-A", check=False).returncode != 0:
        stage.apply(manifest())
        until(lambda: stage.condition(NAME, "Ready").get("reason") == "UnsupportedTarget", 180)
        assert "serving.kserve.io/v1alpha2" in stage.condition(NAME, "Ready")["message"]
        assert stage.pods(NAME) == []
        kserve.install(stage.cluster)
        stage.cluster.kubectl("rollout", "restart", scene.OPERATOR, "-n", scene.OPERATOR_NAMESPACE)
    stage.cluster.kubectl("label", "node", "--all", "accelerator=h100", "--overwrite")
    with controlled(stage, kserve_llm.Controller, NAME) as controller:
        stage.apply(manifest())
        yield controller


def test_the_loop_closes_through_pods_that_kserve_makes(stage: Stage, platform: kserve_llm.Controller) -> None:
    scene.wait_ready(stage.cluster, NAME, 180)
    (pod,) = stage.pods(NAME)
    assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "llminferenceservice-workload"
    assert pod["spec"]["nodeSelector"] == {"accelerator": "h100"}, "the webhooks' part reaches the pods"
    (container,) = pod["spec"]["containers"]
    assert (container["name"], container["args"][0]) == ("main", "--model=Qwen/Qwen3-8B")
    before, filled_in = stage.written(NAME, platform.plural), platform.filled_in

    stage.load_until_tuned(NAME, 8, f"{MADE}-workload-svc", less_than(8))
    status = stage.get("specdep", NAME)["status"]
    assert status["url"] == f"http://{MADE}-workload-svc.{NAMESPACE}.svc.cluster.local"
    stage.wait_available(NAME)
    asked = {"model": f"publishers/{NAMESPACE}/models/{NAME}", "prompt": "hello", "max_tokens": 4}
    code = (
        "import sys, urllib.request as r; "
        "r.urlopen(r.Request(sys.argv[1], sys.argv[2].encode(), {'Content-Type': 'application/json'}))"
    )
    url = f"{scene.service_url(stage.cluster, f'{MADE}-workload-svc')}/v1/completions"
    assert stage.cluster.inside([sys.executable, "-c", code, url, json.dumps(asked)]).wait(60) == 0, "KServe's name"
    (after,) = stage.pods(NAME)
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["metadata"]["annotations"]["serving.speculative.dev/table-version"]
    assert stage.written(NAME, platform.plural) == before, "K was tuned, and nothing else was written"
    assert platform.filled_in == filled_in <= 2, "the operator and the webhooks write against each other"


def test_pods_answer_by_https_where_the_platform_encrypts(stage: Stage, platform: kserve_llm.Controller) -> None:
    """Probes by the kubelet, and metrics that only come where both speak TLS."""
    (before,) = stage.pods(NAME)
    platform.tls = True
    wanted = manifest()
    wanted["spec"]["inferenceService"]["tls"] = True
    stage.apply(wanted)
    until(lambda: [pod for pod in stage.pods(NAME) if pod["metadata"]["name"] != before["metadata"]["name"]], 180)
    until(lambda: len(stage.pods(NAME)) == 1, 180)
    scene.wait_ready(stage.cluster, NAME, 180)
    (pod,) = stage.pods(NAME)
    assert pod["spec"]["containers"][0]["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    stage.wait_available(NAME)
    until(lambda: stage.get("specdep", NAME)["status"].get("url", "").startswith("https://"), 180)
