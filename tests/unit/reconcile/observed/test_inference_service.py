"""`target: InferenceService`: everything that holds for a Deployment holds for pods that KServe makes, and nothing that
others write beside the operator moves it. KServe and webhooks are a stand-in (tests/kserve.py)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests import kserve
from tests.unit.reconcile.worlds import SPEC, Cluster, applies, observed, pod, restart

from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild
from speculative_operator.domain.platform import InferenceServiceSettings
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import (
    DeploymentSpec,
    EngineSettings,
    Method,
    ModelSource,
    Scheme,
    Speculator,
    Target,
)
from speculative_operator.render import Capabilities

TOLD = InferenceServiceSettings(hardware_profile="gpu", connection="registry", authenticated=True)
SERVED = replace(SPEC, target=Target.INFERENCE_SERVICE, inference_service=TOLD)
SERVICE, RUNTIME, MADE = ("InferenceService", "demo"), ("ServingRuntime", "demo"), ("Deployment", "demo-predictor")
OBJECT, ENGINE = SERVICE, "kserve-container"


@dataclass
class Platform(Cluster):
    """A cluster with KServe and the webhooks of OpenShift AI."""

    spec: DeploymentSpec = SERVED
    capabilities: Capabilities = field(default_factory=lambda: Capabilities(inference_service=True))
    rollouts: int = 0
    """Times that the pods' template changed."""

    def carry_out(self, action: Any) -> None:
        super().carry_out(action)
        if isinstance(action, ApplyChild) and action.manifest["kind"] == "InferenceService":
            self.children[SERVICE] |= kserve.admitted(self.children[SERVICE])
            self.applied[SERVICE] = deepcopy(self.children[SERVICE])

    def roll(self) -> None:
        """KServe, the Deployment controller and kubelets catch up."""
        if not {SERVICE, RUNTIME} <= set(self.children):
            return
        made = kserve.deployment_of(self.children[SERVICE], self.children[RUNTIME])
        old = self.children.get(MADE)
        new = old is None or old["spec"]["template"] != made["spec"]["template"]
        self.rollouts += int(new)
        wanted, mark = made["spec"]["replicas"], f"t{self.rollouts}"
        labels = {**made["spec"]["template"]["metadata"]["labels"], "template": mark}
        kept = [one for one in self.pods if one["metadata"]["labels"]["template"] == mark][:wanted]
        self.pods = [*kept, *(pod(f"demo-{mark}-{number}", labels) for number in range(len(kept), wanted))]
        made["metadata"] |= {"uid": "kserves", "generation": self.rollouts}
        made["status"] = {
            "observedGeneration": self.rollouts,
            "replicas": wanted, "updatedReplicas": wanted, "readyReplicas": wanted, "availableReplicas": wanted,
        }  # fmt: skip
        self.children[MADE] = made
        self.children[SERVICE]["status"] = kserve.status_of(self.children[SERVICE], ready=True)


def serve(**change: Any) -> Platform:
    platform = Platform(**change)
    assert platform.settle().actions == ()
    return platform


def args(platform: Platform) -> list[str]:
    container, *_ = platform.children[MADE]["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


def meddle(platform: Platform) -> None:
    """Others write beside the operator."""
    found = platform.children[SERVICE]
    found["metadata"]["labels"]["team"] = "a"
    found["metadata"]["annotations"]["note"] = "b"
    found["spec"]["predictor"]["priorityClassName"] = "high"
    found["spec"]["predictor"]["model"]["env"].append({"name": "PROXY", "value": "http://proxy"})


def test_it_is_made_served_and_left_alone() -> None:
    platform = serve()
    assert {kind for kind, _ in platform.children} == {
        "ConfigMap", "ServingRuntime", "InferenceService", "Deployment", "PodDisruptionBudget",
    }  # fmt: skip
    assert platform.condition("Ready")["status"] == "True"
    assert platform.status["ready"] == "2/2"
    assert platform.status["url"] == "http://demo-predictor.models.svc.cluster.local"
    assert (platform.rollouts, len(platform.pods)) == (1, 2)
    assert args(platform)[0] == "--model=Qwen/Qwen3-8B"
    assert platform.children[SERVICE]["spec"]["predictor"]["nodeSelector"] == {"accelerator": "h100"}, "of a webhook"


def test_the_runtime_comes_before_the_service_that_names_it() -> None:
    kinds = [kind for kind, _, _ in applies(Platform().look())]
    assert kinds.index("ServingRuntime") < kinds.index("InferenceService")


def test_a_hand_edit_of_what_is_ours_is_put_back_and_the_rest_stays() -> None:
    platform = serve()
    predictor = platform.children[SERVICE]["spec"]["predictor"]
    predictor["model"]["args"] = ["--model=other"]
    outcome = platform.tick()
    assert ("InferenceService", "demo", Reason.REPAIRED) in applies(outcome)
    assert "InferenceService demo: spec.template.spec.containers[engine].args" in str(outcome.events)


def test_an_annotation_that_only_the_operator_reads_replaces_no_pod() -> None:
    """KServe copies annotations of the InferenceService to its pods, and none of the ServingRuntime's."""
    platform = serve()
    annotations = platform.children[SERVICE]["metadata"]["annotations"]
    ours = {names.ANNOTATION_HASH, names.ANNOTATION_MADE_OF, names.ANNOTATION_RESOLVED, names.ANNOTATION_TABLE}
    assert not ours & annotations.keys()
    assert ours - {names.ANNOTATION_TABLE} <= platform.children[RUNTIME]["metadata"]["annotations"].keys()


def test_an_edit_of_engine_and_pair_is_one_rollout() -> None:
    """Even where KServe sees the new runtime before the new InferenceService."""
    platform = serve()
    before = deepcopy(platform.children[SERVICE])
    platform.edit(engine=EngineSettings(version="0.31.0", version_named=True, image="registry/vllm:0.31.0"))
    outcome = platform.tick()
    services = [one for one in outcome.actions if isinstance(one, ApplyChild) and one.manifest["kind"] == SERVICE[0]]
    assert services
    late, platform.children[SERVICE] = platform.children[SERVICE], before
    platform.roll()
    assert platform.rollouts == 1, "the new runtime alone replaced pods"
    platform.children[SERVICE] = late
    platform.settle()
    assert platform.rollouts == 2
    assert platform.children[MADE]["spec"]["template"]["spec"]["containers"][0]["image"] == "registry/vllm:0.31.0"


def test_a_table_of_a_rollout_is_found_by_the_operator_after_one_that_was_killed() -> None:
    """Between the ServingRuntime, which says which table pods are made for, and the InferenceService."""
    platform = serve(spec=restart(SERVED))
    service, before = deepcopy(platform.children[SERVICE]), deepcopy(platform.status)
    for _ in range(200):
        outcome = platform.tick(observed(platform, batch=200, survival=0.2))
        if any(kind == "InferenceService" for kind, _, _ in applies(outcome)):
            break
        before = deepcopy(platform.status)
        platform.roll()
    else:
        raise AssertionError("the tuner never wanted another K")
    version = platform.status["speculation"]["tableVersion"]
    platform.status, platform.children[SERVICE] = before, service | {"status": platform.children[SERVICE].get("status")}
    platform.forget()
    platform.settle()
    assert platform.status["speculation"]["tableVersion"] == version
    assert platform.rollouts == 2


@pytest.mark.parametrize("key", ["app", "component", "serving.kserve.io/inferenceservice"])
def test_labels_that_kserve_sets_itself_are_not_waited_for(key: str) -> None:
    platform = serve(spec=replace(SERVED, template={"metadata": {"labels": {key: "chat"}}}))
    assert (platform.rollouts, platform.condition("Ready")["status"]) == (1, "True")


def test_pods_of_a_canary_that_somebody_added_are_not_ours() -> None:
    """From release 0.20 on: Deployments NAME-CANARY-predictor, whose pods bear the InferenceService's labels."""
    platform = serve()
    theirs = deepcopy(platform.pods[0])
    theirs["metadata"] |= {"name": "demo-v2-predictor-1", "uid": "of-the-canary"}
    theirs["metadata"]["labels"]["app"] = "isvc.demo-v2-predictor"
    own = {one.name for one in platform.snapshot().pods}
    platform.pods = [*platform.pods, theirs]
    assert {one.name for one in platform.snapshot().pods} == own


def test_kserves_short_deadline_is_not_ours() -> None:
    """Its Deployments are held for stalled after ten minutes; a large model takes longer."""
    platform = serve()
    made = platform.children[MADE]
    made["spec"]["progressDeadlineSeconds"] = 600
    made["status"] |= {"readyReplicas": 0, "availableReplicas": 0}
    stamp = "2027-01-15T08:00:00Z"  # NOW
    made["status"]["conditions"] = [
        {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "x",
         "lastUpdateTime": stamp},
    ]  # fmt: skip
    platform.tick()
    assert platform.condition("Ready")["reason"] != Reason.ROLLOUT_STALLED.value
    platform.now += 3600.0
    platform.tick()
    assert platform.condition("Ready")["reason"] == Reason.ROLLOUT_STALLED.value


def test_what_is_read_back_is_what_was_rendered() -> None:
    platform = serve()
    workload = platform.snapshot().children["Deployment", "demo"].body
    assert workload["spec"]["progressDeadlineSeconds"] > 600
    assert workload["metadata"]["annotations"][names.ANNOTATION_MADE_OF]
    assert "kserve" not in str(workload["spec"]["template"]["spec"]["containers"][0]["name"])


# -- a vLLM of OpenShift AI, whose K is fixed when a pod starts

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
