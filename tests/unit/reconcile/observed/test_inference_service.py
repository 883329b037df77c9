"""`target: InferenceService`: everything that holds for a Deployment holds for pods that KServe makes, and nothing that
others write beside the operator moves it. KServe and webhooks are a stand-in (tests/kserve.py)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests import kserve
from tests.unit.reconcile.worlds import SPEC, Cluster, applies, observed, pod, reasons, restart

from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild, DeleteChild
from speculative_operator.domain.platform import InferenceServiceSettings
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineSettings, Target
from speculative_operator.reconcile.pair.arrival import stuck
from speculative_operator.reconcile.tick import Outcome
from speculative_operator.render import Capabilities

TOLD = InferenceServiceSettings(hardware_profile="gpu", connection="registry", authenticated=True)
SERVED = replace(SPEC, target=Target.INFERENCE_SERVICE, inference_service=TOLD)
SERVICE, RUNTIME, MADE = ("InferenceService", "demo"), ("ServingRuntime", "demo"), ("Deployment", "demo-predictor")


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


def test_the_runtime_comes_before_the_service_that_names_it() -> None:
    kinds = [kind for kind, _, _ in applies(Platform().look())]
    assert kinds.index("ServingRuntime") < kinds.index("InferenceService")


def test_nothing_is_written_beside_webhooks_and_after_a_restart_of_the_operator() -> None:
    platform = serve()
    predictor = platform.children[SERVICE]["spec"]["predictor"]
    assert predictor["nodeSelector"] == {"accelerator": "h100"}
    assert platform.children[SERVICE]["metadata"]["annotations"][kserve.MODE] == "Standard"
    platform.forget()
    for _ in range(5):
        assert platform.tick().actions == ()
    assert platform.rollouts == 1


def test_what_others_add_later_stays() -> None:
    platform = serve()
    service = platform.children[SERVICE]
    service["metadata"]["labels"]["team"] = "a"
    service["metadata"]["annotations"]["note"] = "b"
    service["spec"]["predictor"]["priorityClassName"] = "high"
    service["spec"]["predictor"]["model"]["env"].append({"name": "PROXY", "value": "http://proxy"})
    platform.roll()
    for _ in range(3):
        assert platform.tick().actions == ()
        platform.roll()
    assert platform.condition("Ready")["status"] == "True"


def test_a_hand_edit_of_what_is_ours_is_put_back_and_the_rest_stays() -> None:
    platform = serve()
    predictor = platform.children[SERVICE]["spec"]["predictor"]
    predictor["model"]["args"] = ["--model=other"]
    outcome = platform.tick()
    assert ("InferenceService", "demo", Reason.REPAIRED) in applies(outcome)
    assert "InferenceService demo: spec.template.spec.containers[engine].args" in str(outcome.events)


def test_scaling_replaces_no_pod() -> None:
    platform = serve()
    before = [one["metadata"]["name"] for one in platform.pods]
    platform.edit(replicas=3)
    platform.settle()
    assert [one["metadata"]["name"] for one in platform.pods][:2] == before
    assert (platform.rollouts, len(platform.pods)) == (1, 3)


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


def test_live_tables_replace_no_pod() -> None:
    platform = serve()
    for _ in range(60):
        outcome = platform.tick(observed(platform, batch=200, survival=0.2))
        platform.roll()
        if any(kind == "ConfigMap" for kind, _, _ in applies(outcome)):
            break
    else:
        raise AssertionError("the tuner never changed the table at a load where drafts lose")
    assert (platform.rollouts, platform.status["speculation"]["tableVersion"]) == (1, 2)
    assert not [one for one in applies(outcome) if one[0] in ("InferenceService", "ServingRuntime")]


def test_a_pod_that_does_not_start_is_seen_by_what_kserve_calls_its_engine() -> None:
    platform = serve()
    (one, _) = platform.pods
    waiting = {"waiting": {"reason": "CreateContainerConfigError"}}
    engine = {"name": "kserve-container", "ready": False, "restartCount": 0, "state": waiting}
    one["status"]["containerStatuses"] = [engine]
    pods = platform.snapshot().pods
    assert "does not start (CreateContainerConfigError)" in stuck(pods, {pods[0].pair})


def test_how_long_pods_take_to_start_is_measured_and_replaces_none() -> None:
    platform = serve()
    (one, other) = platform.pods
    for found in (one, other):
        begun = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        found["spec"] = {"containers": platform.children[MADE]["spec"]["template"]["spec"]["containers"]}
        found["status"]["containerStatuses"] = [{"name": "kserve-container", "ready": True, "state": begun}]
        found["status"]["conditions"] += [
            {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:01:30Z"}
        ]
    for _ in range(3):
        platform.tick()
        platform.roll()
    assert [start["seconds"] for start in platform.status["startup"]["starts"]] == [90, 90]
    assert platform.rollouts == 1


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


def test_pods_of_the_spec_before_are_no_complete_rollout() -> None:
    platform = serve()
    platform.edit(engine=EngineSettings(args=("--enable-prefix-caching",)))
    platform.tick()
    platform.tick()
    assert platform.condition("Ready")["status"] == "False"
    platform.roll()
    platform.tick()
    assert platform.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("key", ["app", "component", "serving.kserve.io/inferenceservice"])
def test_labels_that_kserve_sets_itself_are_not_waited_for(key: str) -> None:
    platform = serve(spec=replace(SERVED, template={"metadata": {"labels": {key: "chat"}}}))
    assert (platform.rollouts, platform.condition("Ready")["status"]) == (1, "True")


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


def test_what_keeps_kserve_from_making_pods_is_told() -> None:
    platform = Platform()
    platform.tick()
    failed = {"type": "PredictorReady", "status": "False", "reason": "ReconcileFailed", "message": "quota exceeded"}
    platform.children[SERVICE]["status"] = {"conditions": [failed, {"type": "Ready", "status": "False"}]}
    platform.tick()
    assert "PredictorReady: ReconcileFailed: quota exceeded" in platform.condition("Ready")["message"]


def test_what_keeps_ready_pods_from_being_reached_is_told() -> None:
    platform = serve()
    ingress = {"type": "IngressReady", "status": "False", "reason": "NoRoute", "message": "the router is down"}
    platform.children[SERVICE]["status"]["conditions"] = [ingress, {"type": "Ready", "status": "False"}]
    outcome = platform.tick()
    (warning,) = [one for one in outcome.status["warnings"] if one["reason"] == "InferenceServiceNotReady"]
    assert "IngressReady: NoRoute: the router is down" in warning["message"]
    assert platform.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("key", [SERVICE, RUNTIME])
def test_an_object_of_somebody_else_by_its_name_is_left_alone(key: tuple[str, str]) -> None:
    platform = Platform(upgraded=True)  # pods of others have no table
    platform.children[key] = {"kind": key[0], "metadata": {"name": "demo", "uid": "theirs"}, "spec": {}}
    outcome = platform.tick()
    assert not {"InferenceService", "ServingRuntime"} & {kind for kind, _, _ in applies(outcome)}
    assert f"{key[0]} demo exists and has no owner" in platform.condition("Ready")["message"]


def test_nothing_that_kserve_made_is_ever_written_or_deleted() -> None:
    platform = serve()
    platform.children["Service", "demo-predictor"] = {
        "kind": "Service", "metadata": {"name": "demo-predictor", "uid": "kserves", "labels": names.selector("demo")},
    }  # fmt: skip
    for change in ({"replicas": 1}, {"engine": EngineSettings(args=("--x",))}, {"replicas": 3}):
        platform.edit(**change)
        for _ in range(4):
            _touches_no_platform_object(platform.tick())
            platform.roll()


def _touches_no_platform_object(outcome: Outcome) -> None:
    for action in outcome.actions:
        if isinstance(action, ApplyChild):
            assert not action.manifest["metadata"]["name"].endswith("-predictor")
        elif isinstance(action, DeleteChild):
            assert not action.name.endswith("-predictor")


def test_a_cluster_without_kserve_is_told_and_keeps_everything() -> None:
    platform = serve()
    children = deepcopy(platform.children)
    platform.capabilities = Capabilities()
    outcome = platform.tick()
    assert outcome.actions == ()
    ready = platform.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "UnsupportedTarget")
    assert "install KServe or OpenShift AI" in ready["message"]
    assert Reason.UNSUPPORTED_TARGET in reasons(outcome)
    assert platform.children == children
    platform.capabilities = Capabilities(inference_service=True)
    platform.settle()
    assert (platform.rollouts, platform.condition("Ready")["status"]) == (1, "True")


def test_arguments_that_look_like_a_go_template_reach_the_engine_as_written() -> None:
    odd = '--chat-template={{ "{{" }} {{{x}}} {{`{{`}}'
    platform = serve(spec=replace(SERVED, engine=EngineSettings(args=(odd,))))
    assert odd in args(platform)
    assert platform.tick().actions == ()


def test_what_is_read_back_is_what_was_rendered() -> None:
    platform = serve()
    workload = platform.snapshot().children["Deployment", "demo"].body
    assert workload["spec"]["progressDeadlineSeconds"] > 600
    assert workload["metadata"]["annotations"][names.ANNOTATION_MADE_OF]
    assert "kserve" not in str(workload["spec"]["template"]["spec"]["containers"][0]["name"])
