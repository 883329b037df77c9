"""`target: LLMInferenceService`: everything that holds for a Deployment holds for pods that KServe makes of one, and
nothing that others write beside the operator moves it. KServe and webhooks are a stand-in (tests/kserve_llm.py)."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests import kserve_llm
from tests.unit.reconcile.worlds import SPEC, Cluster, applies, observed, pod, reasons, restart

from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild, DeleteChild
from speculative_operator.domain.platform import InferenceServiceSettings
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineSettings, RolloutStrategy, Target
from speculative_operator.reconcile.pair.arrival import stuck
from speculative_operator.render import Capabilities
from speculative_operator.shell.bodies import engine_address

TOLD = InferenceServiceSettings(hardware_profile="gpu", connection="registry", exposed=True)
SERVED = replace(SPEC, target=Target.LLM_INFERENCE_SERVICE, inference_service=TOLD)
SERVICE, MADE = ("LLMInferenceService", "demo"), ("Deployment", "demo-kserve")


@dataclass
class Platform(Cluster):
    """A cluster with KServe and the webhooks of OpenShift AI."""

    spec: DeploymentSpec = SERVED
    capabilities: Capabilities = field(default_factory=lambda: Capabilities(llm_inference_service=True))
    rollouts: int = 0
    """Times that the pods' template changed."""

    def carry_out(self, action: Any) -> None:
        super().carry_out(action)
        if isinstance(action, ApplyChild) and action.manifest["kind"] == SERVICE[0]:
            self.children[SERVICE] |= kserve_llm.admitted(self.children[SERVICE])
            self.applied[SERVICE] = deepcopy(self.children[SERVICE])

    def roll(self) -> None:
        """KServe, the Deployment controller and kubelets catch up."""
        if SERVICE not in self.children:
            return
        made = kserve_llm.deployment_of(self.children[SERVICE])
        old = self.children.get(MADE)
        assert old is None or old["spec"]["selector"] == made["spec"]["selector"], "field is immutable"
        self.rollouts += int(old is None or old["spec"]["template"] != made["spec"]["template"])
        wanted, mark = made["spec"]["replicas"], f"t{self.rollouts}"
        template = made["spec"]["template"]["metadata"]
        kept = [one for one in self.pods if one["metadata"]["labels"]["template"] == mark][:wanted]
        new = [pod(f"demo-{mark}-{n}", {**template["labels"], "template": mark}) for n in range(len(kept), wanted)]
        for one in new:
            one["metadata"]["annotations"] = dict(template["annotations"])
        self.pods = [*kept, *new]
        made["metadata"] |= {"uid": "kserves", "generation": self.rollouts}
        made["status"] = {
            "observedGeneration": self.rollouts,
            "replicas": wanted, "updatedReplicas": wanted, "readyReplicas": wanted, "availableReplicas": wanted,
        }  # fmt: skip
        self.children[MADE] = made
        tls = self.spec.inference_service.tls
        self.children[SERVICE]["status"] = kserve_llm.status_of(self.children[SERVICE], ready=True, tls=tls)


def serve(**change: Any) -> Platform:
    platform = Platform(**change)
    assert platform.settle().actions == ()
    return platform


def container(platform: Platform) -> dict[str, Any]:
    (found,) = platform.children[MADE]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_it_is_made_served_and_left_alone() -> None:
    platform = serve()
    assert {kind for kind, _ in platform.children} == {
        "ConfigMap", "LLMInferenceService", "Deployment", "PodDisruptionBudget",
    }  # fmt: skip
    assert platform.condition("Ready")["status"] == "True"
    assert platform.status["ready"] == "2/2"
    assert platform.status["url"] == "http://demo-kserve-workload-svc.models.svc.cluster.local"
    assert (platform.rollouts, len(platform.pods)) == (1, 2)
    assert platform.children[SERVICE]["spec"]["router"] == {"gateway": {}, "route": {}}


def test_the_engine_gets_its_arguments_as_a_list_and_no_shell_reads_them() -> None:
    engine = container(serve())
    assert engine["command"] == ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    assert engine["args"][0] == "--model=Qwen/Qwen3-8B"
    assert any(one.startswith('{"method":') for one in engine["args"])


def test_what_kserve_puts_beneath_leaves_pods_valid() -> None:
    """Its template has a hook and probes of its own, by HTTPS where the platform encrypts."""
    platform = serve()
    made = kserve_llm.deployment_of(platform.children[SERVICE], tls=True)
    (engine,) = made["spec"]["template"]["spec"]["containers"]
    assert engine["lifecycle"] == {"preStop": {"exec": {"command": ["/bin/sleep", "10"]}}}
    assert {engine[one]["httpGet"]["scheme"] for one in ("startupProbe", "readinessProbe", "livenessProbe")} == {"HTTP"}
    assert {one["name"] for one in engine["volumeMounts"]} >= {"table", "payload"}


def test_pods_answer_by_https_where_the_platform_encrypts() -> None:
    platform = serve(spec=replace(SERVED, inference_service=replace(TOLD, tls=True)))
    engine = container(platform)
    assert engine["args"][engine["args"].index("--ssl-certfile") + 1] == "/var/run/kserve/tls/tls.crt"
    assert engine["args"][engine["args"].index("--ssl-keyfile") + 1] == "/var/run/kserve/tls/tls.key"
    assert "--enable-ssl-refresh" in engine["args"]
    assert {"name": "tls-certs", "mountPath": "/var/run/kserve/tls", "readOnly": True} in engine["volumeMounts"]
    assert {engine[one]["httpGet"]["scheme"] for one in ("startupProbe", "readinessProbe", "livenessProbe")} == {
        "HTTPS"
    }
    (one, _) = platform.pods
    assert engine_address(one).encrypted


@pytest.mark.parametrize("tls", [False, True])
def test_a_platform_that_calls_pods_otherwise_than_they_answer_is_told(tls: bool) -> None:
    platform = serve(spec=replace(SERVED, inference_service=replace(TOLD, tls=tls)))
    for asked in (False, True):
        platform.children[SERVICE]["status"] = kserve_llm.status_of(platform.children[SERVICE], ready=True, tls=asked)
        warnings = [
            one["message"]
            for one in platform.tick().status.get("warnings", [])
            if one["reason"] == "InferenceServiceNotReady"
        ]
        assert [f"set inferenceService.tls: {str(asked).lower()}" in one for one in warnings] == [True] * (asked != tls)


def test_the_switch_to_https_is_one_rollout() -> None:
    platform = serve()
    platform.edit(inference_service=replace(TOLD, tls=True))
    platform.settle()
    assert platform.rollouts == 2
    assert platform.condition("Ready")["status"] == "True"
    assert platform.tick().actions == ()


def test_nothing_is_written_beside_webhooks_and_after_a_restart_of_the_operator() -> None:
    platform = serve()
    assert platform.children[SERVICE]["spec"]["template"]["nodeSelector"] == {"accelerator": "h100"}
    platform.forget()
    for _ in range(5):
        assert platform.tick().actions == ()
    assert platform.rollouts == 1


def test_what_others_add_later_stays() -> None:
    platform = serve()
    service = platform.children[SERVICE]
    service["metadata"]["labels"]["team"] = "a"
    service["metadata"]["annotations"]["security.opendatahub.io/enable-auth"] = "false"
    service["metadata"]["finalizers"] = ["serving.kserve.io/llmisvc-finalizer"]
    service["spec"]["template"]["priorityClassName"] = "high"
    service["spec"]["template"]["containers"][0]["env"].append({"name": "PROXY", "value": "http://proxy"})
    platform.roll()
    for _ in range(3):
        assert platform.tick().actions == ()
        platform.roll()
    assert platform.condition("Ready")["status"] == "True"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (("spec", "template", "containers", 0, "args"), "spec.template.spec.containers[engine].args"),
        (("spec", "annotations", names.LABEL_PAIR), f"spec.template.metadata.labels.{names.LABEL_PAIR}"),
        (("spec", "rolloutStrategy", "maxSurge"), "spec.strategy"),
        (("metadata", "annotations", "openshift.io/display-name"), "openshift.io/display-name"),
    ],
)
def test_a_hand_edit_of_what_is_ours_is_put_back(path: tuple[Any, ...], said: str) -> None:
    platform = serve()
    part: Any = platform.children[SERVICE]
    for step in path[:-1]:
        part = part[step]
    before, part[path[-1]] = deepcopy(part[path[-1]]), "theirs"
    outcome = platform.tick()
    assert ("LLMInferenceService", "demo", Reason.REPAIRED) in applies(outcome)
    assert said in str(outcome.events)
    part = platform.children[SERVICE]
    for step in path:
        part = part[step]
    assert part == before


def test_scaling_replaces_no_pod() -> None:
    platform = serve()
    before = [one["metadata"]["name"] for one in platform.pods]
    platform.edit(replicas=3)
    platform.settle()
    assert [one["metadata"]["name"] for one in platform.pods][:2] == before
    assert (platform.rollouts, len(platform.pods)) == (1, 3)


def test_what_the_dashboard_shows_replaces_no_pod() -> None:
    platform = serve()
    platform.edit(inference_service=replace(TOLD, display_name="Granite", anonymous=True))
    platform.settle()
    annotations = platform.children[SERVICE]["metadata"]["annotations"]
    assert annotations["openshift.io/display-name"] == "Granite"
    assert annotations["security.opendatahub.io/enable-auth"] == "false"
    assert platform.rollouts == 1


def test_another_pair_and_engine_are_one_rollout_and_keep_the_selector() -> None:
    """KServe selects pods by every label that it is given for them, and a selector cannot be changed."""
    platform = serve()
    pair = platform.children[SERVICE]["spec"]["annotations"][names.LABEL_PAIR]
    source = replace(SERVED.verifier.source, revision="other")
    platform.edit(
        verifier=replace(SERVED.verifier, source=source),
        engine=EngineSettings(version="0.31.0", version_named=True, image="registry/vllm:0.31.0"),
    )
    platform.settle()
    assert platform.rollouts == 2
    assert container(platform)["image"] == "registry/vllm:0.31.0"
    assert platform.children[SERVICE]["spec"]["annotations"][names.LABEL_PAIR] != pair
    assert platform.children[MADE]["spec"]["selector"]["matchLabels"].keys() >= names.selector("demo").keys()
    assert platform.condition("Ready")["status"] == "True"


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
    assert not [one for one in applies(outcome) if one[0] == "LLMInferenceService"]


def test_a_pod_that_does_not_start_is_seen_by_what_kserve_calls_its_engine() -> None:
    platform = serve()
    (one, _) = platform.pods
    waiting = {"waiting": {"reason": "CreateContainerConfigError"}}
    engine = {"name": "main", "ready": False, "restartCount": 0, "state": waiting}
    one["status"]["containerStatuses"] = [engine]
    pods = platform.snapshot().pods
    assert "does not start (CreateContainerConfigError)" in stuck(pods, {pods[0].pair})


def test_how_long_pods_take_to_start_is_measured_and_replaces_none() -> None:
    platform = serve()
    (one, other) = platform.pods
    for found in (one, other):
        begun = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        found["spec"] = {"containers": platform.children[MADE]["spec"]["template"]["spec"]["containers"]}
        found["status"]["containerStatuses"] = [{"name": "main", "ready": True, "state": begun}]
        found["status"]["conditions"] += [
            {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:01:30Z"}
        ]
    for _ in range(3):
        platform.tick()
        platform.roll()
    assert [start["seconds"] for start in platform.status["startup"]["starts"]] == [90, 90]
    assert platform.rollouts == 1


def test_a_table_of_a_rollout_comes_with_its_pods() -> None:
    platform = serve(spec=restart(SERVED))
    for _ in range(200):
        outcome = platform.tick(observed(platform, batch=200, survival=0.2))
        platform.roll()
        if any(kind == "LLMInferenceService" for kind, _, _ in applies(outcome)):
            break
    else:
        raise AssertionError("the tuner never wanted another K")
    version = platform.status["speculation"]["tableVersion"]
    platform.forget()
    platform.settle()
    assert (platform.rollouts, platform.status["speculation"]["tableVersion"]) == (2, version)


def test_pods_of_the_spec_before_are_no_complete_rollout() -> None:
    platform = serve()
    platform.edit(engine=EngineSettings(args=("--enable-prefix-caching",)))
    platform.tick()
    platform.tick()
    assert platform.condition("Ready")["status"] == "False"
    platform.roll()
    platform.tick()
    assert platform.condition("Ready")["status"] == "True"


def test_recreate_is_all_pods_at_once() -> None:
    platform = serve(spec=replace(SERVED, rollout_strategy=RolloutStrategy.RECREATE))
    strategy = platform.children[MADE]["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "100%"}}
    assert platform.tick().actions == ()


def test_what_keeps_kserve_from_making_pods_is_told() -> None:
    platform = Platform()
    platform.tick()
    failed = {"type": "PresetsCombined", "status": "False", "reason": "ConfigNotFound", "message": "no template"}
    platform.children[SERVICE]["status"] = {"conditions": [failed, {"type": "Ready", "status": "False"}]}
    platform.tick()
    assert "PresetsCombined: ConfigNotFound: no template" in platform.condition("Ready")["message"]


def test_what_keeps_ready_pods_from_being_reached_is_told() -> None:
    platform = serve()
    route = {"type": "HTTPRoutesReady", "status": "False", "reason": "NoGateway", "message": "none is there"}
    platform.children[SERVICE]["status"]["conditions"] = [route, {"type": "Ready", "status": "False"}]
    outcome = platform.tick()
    (warning,) = [one for one in outcome.status["warnings"] if one["reason"] == "InferenceServiceNotReady"]
    assert "the LLMInferenceService is not: HTTPRoutesReady: NoGateway: none is there" in warning["message"]
    assert platform.condition("Ready")["status"] == "True"


def test_an_object_of_somebody_else_by_its_name_is_left_alone() -> None:
    platform = Platform(upgraded=True)  # pods of others have no table
    platform.children[SERVICE] = {"kind": SERVICE[0], "metadata": {"name": "demo", "uid": "theirs"}, "spec": {}}
    outcome = platform.tick()
    assert "LLMInferenceService" not in {kind for kind, _, _ in applies(outcome)}
    assert "LLMInferenceService demo exists and has no owner" in platform.condition("Ready")["message"]


def test_nothing_that_kserve_made_is_ever_written_or_deleted() -> None:
    platform = serve()
    service = kserve_llm.service_of(platform.children[MADE])
    service["metadata"]["uid"] = "kserves-too"
    platform.children["Service", service["metadata"]["name"]] = service
    for change in ({"replicas": 1}, {"engine": EngineSettings(args=("--x",))}, {"replicas": 3}):
        platform.edit(**change)
        for _ in range(4):
            for action in platform.tick().actions:
                name = action.manifest["metadata"]["name"] if isinstance(action, ApplyChild) else ""
                assert not name.startswith("demo-kserve")
                assert not (isinstance(action, DeleteChild) and action.name.startswith("demo-kserve"))
            platform.roll()


def test_a_cluster_without_the_kind_is_told_and_keeps_everything() -> None:
    platform = serve()
    children = deepcopy(platform.children)
    platform.capabilities = Capabilities(inference_service=True)
    outcome = platform.tick()
    assert outcome.actions == ()
    ready = platform.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "UnsupportedTarget")
    for word in ("spec.target LLMInferenceService", "serving.kserve.io/v1alpha2", "install KServe or OpenShift AI"):
        assert word in ready["message"]
    assert Reason.UNSUPPORTED_TARGET in reasons(outcome)
    assert platform.children == children
    platform.capabilities = Capabilities(llm_inference_service=True)
    platform.settle()
    assert (platform.rollouts, platform.condition("Ready")["status"]) == (1, "True")


def test_arguments_that_look_like_a_go_template_reach_the_engine_as_written() -> None:
    odd = '--chat-template={{ "{{" }} {{{x}}} {{`{{`}}'
    platform = serve(spec=replace(SERVED, engine=EngineSettings(args=(odd,))))
    assert odd in container(platform)["args"]
    assert platform.tick().actions == ()


def test_what_is_read_back_is_what_was_rendered() -> None:
    platform = serve()
    workload = platform.snapshot().children["Deployment", "demo"].body
    assert workload["spec"]["progressDeadlineSeconds"] > 600
    assert workload["metadata"]["annotations"][names.ANNOTATION_MADE_OF]
    template = workload["spec"]["template"]
    assert template["spec"]["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 10}}}
    pairs = {one.pair for one in platform.snapshot().pods}
    assert pairs == {template["metadata"]["labels"][names.LABEL_PAIR]}


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ({"metadata": {"labels": {"team": "a"}}}, r"labels\[team\].*annotations"),
        ({"spec": {"containers": [{"name": "engine", "$patch": "delete"}]}}, "leave it in"),
        ({"spec": {"containers": [{"name": "engine", "command": None}]}}, "set command"),
        ({"spec": {"containers": [{"name": "engine", "readinessProbe": {"tcpSocket": {"port": 1}}}]}}, "use httpGet"),
        ({"spec": {"containers": [{"name": "engine", "lifecycle": {"preStop": {"httpGet": {}}}}]}}, "use exec"),
    ],
)
def test_a_template_that_kserve_could_not_carry_out_is_refused(template: dict[str, Any], said: str) -> None:
    platform = serve()
    platform.spec = replace(SERVED, template=template)
    assert platform.tick().actions == ()
    ready = platform.condition("Ready")
    assert ready["reason"] == Reason.RENDER_INVALID
    assert re.search(said, ready["message"]), ready["message"]
