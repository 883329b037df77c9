"""`target: LLMInferenceService`: everything that holds for a Deployment holds for pods that KServe makes of one, and
nothing that others write beside the operator moves it. KServe and webhooks are a stand-in (tests/kserve_llm.py)."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests import kserve_llm
from tests.unit.reconcile.worlds import SPEC, Cluster, applies, pod

from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild
from speculative_operator.domain.platform import InferenceServiceSettings
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineSettings, RolloutStrategy, Target
from speculative_operator.engines.vllm import arguments
from speculative_operator.render import Capabilities
from speculative_operator.shell.bodies import engine_address

TOLD = InferenceServiceSettings(hardware_profile="gpu", connection="registry", exposed=True)
SERVED = replace(SPEC, target=Target.LLM_INFERENCE_SERVICE, inference_service=TOLD)
SERVICE, MADE = ("LLMInferenceService", "demo"), ("Deployment", "demo-kserve")
OBJECT, ENGINE = SERVICE, "main"


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


def args(platform: Platform) -> list[str]:
    return list(container(platform)["args"])


def meddle(platform: Platform) -> None:
    """Others write beside the operator."""
    found = platform.children[SERVICE]
    found["metadata"]["labels"]["team"] = "a"
    found["metadata"]["annotations"]["security.opendatahub.io/enable-auth"] = "false"
    found["metadata"]["finalizers"] = ["serving.kserve.io/llmisvc-finalizer"]
    found["spec"]["template"]["priorityClassName"] = "high"
    found["spec"]["template"]["containers"][0]["env"].append({"name": "PROXY", "value": "http://proxy"})


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


def test_the_engine_answers_to_the_name_that_kserve_publishes_and_metrics_keep_the_first() -> None:
    platform = serve(spec=replace(SERVED, verifier=replace(SERVED.verifier, served_name="chat", aliases=("gpt-4",))))
    assert kserve_llm.published(platform.children[SERVICE]) == ["chat", "publishers/models/models/chat"]
    assert kserve_llm.served(container(platform)) == ["chat", "gpt-4", "publishers/models/models/chat"]


def test_a_release_that_serves_more_names_replaces_no_pod() -> None:
    """Pods of an operator that knew of no published name stay, and a warning says how to replace them."""
    with pytest.MonkeyPatch.context() as former:
        former.setattr(arguments, "served_names", lambda spec: (spec.verifier.served_name,))
        former.setattr(kserve_llm, "published", lambda service: [service["spec"]["model"]["name"]])
        platform = serve()
    platform.upgraded = True
    found = platform.tick()
    assert applies(found) == []
    assert "UpgradeWaits" in {one["reason"] for one in found.status["warnings"]}


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
    assert "--ssl-certfile" in engine["args"]
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


def test_recreate_is_all_pods_at_once() -> None:
    platform = serve(spec=replace(SERVED, rollout_strategy=RolloutStrategy.RECREATE))
    strategy = platform.children[MADE]["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "100%"}}
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
