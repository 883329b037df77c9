"""Parts of the spec that depend on what the pods run as (`spec.target`): `spec.inferenceService` for objects of
KServe, what a replica of several nodes must fulfil, and `spec.route`, how requests from outside of the cluster reach
the Service.

A part of `v1alpha1` and `rules`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from speculative_operator.api.scalars import LabelValue, ObjectName, whole
from speculative_operator.api.wire import Rule, Text, Wire, config_with_rules
from speculative_operator.domain.platform import Promotion
from speculative_operator.domain.spec import EngineType, Target

TARGET_STAYS = Rule(
    "target-stays",
    "self.target == oldSelf.target",
    "target is {self.target} but was {oldSelf.target}, and pods cannot move to another kind without a gap: create a "
    "second object with this target, send it the requests, then delete this one",
    "target",
)
"""It compares an edit with what is stored, so that no object alone can break it."""
_OF_KSERVE = (Target.INFERENCE_SERVICE, Target.LLM_INFERENCE_SERVICE)
_KSERVE = [str(one) for one in _OF_KSERVE]
TARGET_RULES = (
    Rule(
        "inference-service-target",
        f"!has(self.inferenceService) || self.target in {_KSERVE}",
        f"inferenceService is set but target is {{self.target}}: set target: {' or '.join(_OF_KSERVE)}, or remove "
        "inferenceService",
        "inferenceService",
        "FieldValueForbidden",
    ),
    Rule(
        "certificate-of-kserve",
        "!has(self.inferenceService) || !has(self.inferenceService.tls) || "
        f"(self.target == '{Target.LLM_INFERENCE_SERVICE}' && self.engine.type == '{EngineType.VLLM}')",
        "inferenceService.tls is set but target is {self.target} and engine.type {self.engine.type}: "
        f"remove tls, or set target: {Target.LLM_INFERENCE_SERVICE} and engine.type: {EngineType.VLLM}, because KServe "
        "has a certificate for such pods alone",
        "inferenceService.tls",
        "FieldValueForbidden",
    ),
)

_Words = Annotated[str, Text(r"[^\x00]+", "write at least one character, or remove the field", 256)]


class HardwareProfile(Wire):
    """A HardwareProfile of OpenShift AI."""

    name: ObjectName
    """Name of the HardwareProfile."""
    namespace: ObjectName | None = None
    """Namespace of the HardwareProfile. Default: the object's own."""


class InferenceService(Wire):
    """Labels and annotations by which KServe and OpenShift AI know the InferenceService or LLMInferenceService. KServe
    copies those of an InferenceService to the pods, so an edit replaces the pods. Set others in template.metadata."""

    display_name: _Words | None = None
    """Name in the dashboard. Default: the object's name."""
    description: _Words | None = None
    """Description in the dashboard."""
    exposed: bool | None = None
    """Make the model reachable from outside of the cluster: an InferenceService on OpenShift by a Route, an
    LLMInferenceService by an HTTPRoute. Default: false."""
    authenticated: bool | None = None
    """Let OpenShift AI ask clients for a token with the right to get the InferenceService. Default: false; of an
    LLMInferenceService, what the platform does by itself, which is to ask."""
    connection: ObjectName | None = None
    """Secret with a connection of OpenShift AI of protocol oci, whose pull secret the platform gives to the pods. For
    one of protocol s3, name the Secret in weights.secretName instead: here it would have KServe fetch the model a
    second time."""
    hardware_profile: HardwareProfile | None = None
    """Profile from which OpenShift AI adds the node selector, tolerations and queue. Resources of the pods stay those
    of this object."""
    queue: LabelValue | None = None
    """LocalQueue of Kueue."""
    tls: bool | None = None
    """Let the engine of an LLMInferenceService answer by HTTPS, with the certificate that KServe mounts. Set it to
    true where KServe encrypts what it sends to pods (enableLLMInferenceServiceTLS), as OpenShift AI does unless told
    otherwise. An edit replaces the pods. Default: false."""


GROUP_NAME_LIMIT = 41
"""Characters of metadata.name: 52 less those of `-group-1000`."""
_OTHER = f"self.target != '{Target.LEADER_WORKER_SET}'"
_RANKS = "self.verifier.tensorParallelSize * self.verifier.pipelineParallelSize"

GROUP_ROOT_RULES = (
    Rule(
        "group-name",
        f"!has(self.spec.target) || self.spec.target != '{Target.LEADER_WORKER_SET}' || "
        f"size(self.metadata.name) <= {GROUP_NAME_LIMIT}",
        f'metadata.name is "{{self.metadata.name}}" and spec.target is {Target.LEADER_WORKER_SET}: use at most '
        f"{GROUP_NAME_LIMIT} characters, because labels of the pods carry the name and more",
        "metadata.name",
    ),
)
GROUP_RULES = (
    Rule(
        "nodes-target",
        f"!has(self.nodes) || !({_OTHER})",
        f"nodes is {{#self.nodes}} but target is {{self.target}}: set target: {Target.LEADER_WORKER_SET}, or remove "
        "nodes",
        "nodes",
        "FieldValueForbidden",
    ),
    Rule(
        "target-nodes",
        f"has(self.nodes) || {_OTHER}",
        f"nodes is not set but target is {Target.LEADER_WORKER_SET}: set nodes to the number of nodes of one replica",
        "nodes",
        "FieldValueRequired",
    ),
    Rule(
        "nodes-share-evenly",
        f"!has(self.nodes) || {_OTHER} || ({_RANKS}) % self.nodes == 0",
        f"nodes is {{#self.nodes}}: write a number that divides {{#({_RANKS})}}, the product of the verifier's "
        "tensorParallelSize and pipelineParallelSize",
        "nodes",
    ),
    Rule(
        "nodes-data-parallel",
        f"{_OTHER} || self.verifier.dataParallelSize == 1",
        "verifier.dataParallelSize is {#self.verifier.dataParallelSize} but target is "
        f"{Target.LEADER_WORKER_SET}: remove it, and raise replicas instead",
        "verifier.dataParallelSize",
        "FieldValueForbidden",
    ),
)


_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"

ROUTE_RULES = (
    Rule(
        "route-of-kserve",
        f"!has(self.route) || !(self.target in {_KSERVE})",
        "route is set but target is {self.target}, and KServe makes the routes of its objects: remove route and set "
        "inferenceService.exposed: true, or, to divide requests among two objects, apply a Route as in "
        f"docs/openshift-ai.md; or set target: {Target.DEPLOYMENT}",
        "route",
        "FieldValueForbidden",
    ),
)
ROUTE_ROOT_RULES = (
    Rule(
        "canary-of-another",
        "!has(self.spec.route) || !has(self.spec.route.canary) || self.spec.route.canary.name != self.metadata.name",
        "spec.route.canary.name is {self.metadata.name}, which is this object: name another one of the namespace, or "
        "remove canary",
        "spec.route.canary.name",
    ),
)

_Hostname = Annotated[
    str,
    Text(rf"(\*\.)?({_LABEL}\.)*[a-z]([-a-z0-9]*[a-z0-9])?", "write a host, such as qwen.example.com", 253),
]
_Path = Annotated[
    str,
    Text(r"/|(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+", "write an absolute path without / at its end, such as /qwen", 256),
]


class Gateway(Wire):
    """A Gateway of the Gateway API."""

    name: ObjectName
    """Name of the Gateway."""
    namespace: ObjectName | None = None
    """Namespace of the Gateway. Default: the object's own."""
    listener: ObjectName | None = None
    """Listener of the Gateway. Default: all that take the route."""


ANALYSIS_RULES = (
    Rule(
        "steps-ascend",
        "self.steps.all(i, self.steps.exists_one(j, j == i)) && self.steps.isSorted()",
        "steps must ascend, each weight once: write them in order, such as [5, 25, 50]",
        "steps",
    ),
    Rule(
        "deadline-after-step",
        "self.deadlineSeconds >= self.stepSeconds",
        "deadlineSeconds is {#self.deadlineSeconds} but stepSeconds is {#self.stepSeconds}: no step could be passed; "
        "set deadlineSeconds to at least stepSeconds",
        "deadlineSeconds",
    ),
)
CANARY_RULES = (
    Rule(
        "weight-or-analysis",
        "has(self.weight) != has(self.analysis)",
        "weight and analysis are both set, or neither is: set weight for a share that stays, or analysis for one that "
        "the operator raises step by step",
    ),
)


class Analysis(Wire):
    """The operator raises the canary's weight step by step and compares both objects at equal load in each. It
    promotes the canary, which then gets all requests, or takes it back, which then gets none
    (docs/clients.md)."""

    model_config = config_with_rules(*ANALYSIS_RULES)

    steps: Annotated[tuple[Annotated[int, whole(1, 100)], ...], Field(min_length=1, max_length=10)] = (5, 25, 50)
    """Percent of the requests that the canary gets in each step, ascending."""
    step_seconds: Annotated[int, whole(60, 86_400)] = 600
    """Least seconds of a step."""
    deadline_seconds: Annotated[int, whole(60, 86_400)] = 3600
    """Seconds of a step after which the canary is taken back if the comparison is still undecided."""
    worse_by_percent: Annotated[int, whole(1, 50)] = 5
    """Percent that count as no difference: the canary passes a step if it is better, or differs by less, and is taken
    back if TPOT, its P99, throughput or cost is surely worse by more."""
    ttft_worse_by_percent: Annotated[int, whole(1, 1000)] = 25
    """Percent by which TTFT and its P99 may be worse: drafting takes a little of the time in which prompts are
    computed."""
    least_acceptance_percent: Annotated[int, whole(0, 100)] = 60
    """The canary is taken back if its drafts gain less than this percent of what is published for its speculator, or
    for its method. 0: acceptance takes no canary back."""
    promotion: Promotion = Promotion.AUTOMATIC
    """Automatic: the canary is promoted after the last step; Approve: it stays at the last weight, still compared,
    until you approve it (speculative approve). Later releases may add ways."""


class Canary(Wire):
    """Another object of the namespace, which gets a share of the requests: a model, speculator or release to try."""

    model_config = config_with_rules(*CANARY_RULES)

    name: ObjectName
    """Name of the other SpeculativeDeployment. It must serve the same model name (verifier.servedName)."""
    weight: Annotated[int, Field(ge=0, le=100)] | None = None
    """Percent of the requests that it gets while a pod of it is ready; else all go to this object. Required unless
    analysis is set."""
    analysis: Analysis | None = None
    """How the operator decides about the canary. Default: its weight stays."""


class Route(Wire):
    """An HTTPRoute from a Gateway to the object's Service. The cluster must have the kind HTTPRoute
    (gateway.networking.k8s.io/v1); without it the model is served, and Ready is False with RouteUnsupported."""

    gateway: Gateway
    """The Gateway. It must take routes from the object's namespace."""
    hostnames: Annotated[tuple[_Hostname, ...], Field(min_length=1, max_length=16)] | None = None
    """Hosts of the requests, such as qwen.example.com or *.example.com. Default: all of the listener."""
    path: _Path = "/"
    """Requests whose path begins with it go to the Service, without it: with path /qwen, /qwen/v1/models arrives as
    /v1/models."""
    canary: Canary | None = None
    """Another object that gets a share of the requests. Default: none."""
