"""A vLLM of OpenShift AI under `target: InferenceService`: K is fixed when a pod starts; another is a rollout."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.reconcile.observed.test_inference_service import SERVED, Platform, args, serve
from tests.unit.reconcile.worlds import observed

from speculative_operator.domain.spec import EngineSettings, Method, ModelSource, Scheme, Speculator

IMAGE = "registry.redhat.io/rhaiis/vllm-cuda-rhel9:3"
HEAD = Speculator(Method.EAGLE3, ModelSource(Scheme.HF, "RedHatAI/Qwen3-8B-speculator.eagle3"))
RELEASES = ("0.11.0+rhai5", "0.13.0", "0.18.0", "0.21.0")


def given(version: str, speculator: Speculator | None = HEAD) -> Platform:
    engine = EngineSettings(version=version, version_named=True, image=IMAGE)
    return serve(spec=replace(SERVED, engine=engine, speculator=speculator))


def tuned(platform: Platform) -> None:
    """At a load where drafts lose, until pods are replaced or that is proposed; half an hour at most."""
    for _ in range(180):
        platform.tick(observed(platform, batch=200, survival=0.2))
        platform.roll()
        if platform.rollouts > 1 or "rollout" in platform.status:
            break
    platform.settle()


@pytest.mark.parametrize("version", RELEASES)
def test_its_pods_read_no_table_and_the_status_says_so(version: str) -> None:
    platform = given(version)
    assert platform.status["speculation"] | {"actuator": "Restart", "k": "3"} == platform.status["speculation"]
    assert not any("/etc/speculative" in one or "scheduler" in one for one in args(platform))
    assert '"num_speculative_tokens":3' in args(platform)[-1]
    assert {kind for kind, name in platform.children if "table" in name or "payload" in name} == set()


@pytest.mark.parametrize("version", RELEASES)
def test_another_k_is_a_rollout_that_keeps_capacity(version: str) -> None:
    platform = given(version)
    tuned(platform)
    assert platform.rollouts == 2
    assert '"num_speculative_tokens":1' in args(platform)[-1]
    strategy = platform.children["InferenceService", "demo"]["spec"]["predictor"]["deploymentStrategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert platform.status["rollout"]["last"]["keepsCapacity"]


def test_a_method_that_it_does_not_know_is_served_without_and_the_remedy_is_named() -> None:
    """OpenShift AI's vLLM 0.11 takes no draft model."""
    platform = given(RELEASES[0], SERVED.speculator)
    assert platform.condition("Ready")["status"] == "True"
    active = platform.condition("SpeculationActive")
    assert (active["status"], active["reason"]) == ("False", "UnsupportedByEngine")
    assert "needs engine.version 0.15.0 or newer, not 0.11.0; set engine.version and engine.image" in active["message"]
