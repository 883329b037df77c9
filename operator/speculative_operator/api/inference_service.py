"""What an object of KServe is told beside its pods: `spec.inferenceService`. A part of `v1alpha1`."""

from __future__ import annotations

from typing import Annotated

from speculative_operator.api.scalars import LabelValue, ObjectName
from speculative_operator.api.wire import Rule, Text, Wire
from speculative_operator.domain.spec import EngineType, Target

TARGET_STAYS = Rule(
    "target-stays",
    "self.target == oldSelf.target",
    "target is {self.target} but was {oldSelf.target}, and pods cannot move to another kind without a gap: create a "
    "second object with this target, send it the requests, then delete this one",
    "target",
)
"""It compares an edit with what is stored, so that no object alone can break it."""
TLS_REMEDY = (
    f"remove tls, or set target: {Target.LLM_INFERENCE_SERVICE} and engine.type: {EngineType.VLLM}, because KServe has "
    "a certificate for such pods alone"
)
OF_KSERVE = (Target.INFERENCE_SERVICE, Target.LLM_INFERENCE_SERVICE)
TARGET_RULES = (
    Rule(
        "inference-service-target",
        f"!has(self.inferenceService) || self.target in {[str(one) for one in OF_KSERVE]}",
        f"inferenceService is set but target is {{self.target}}: set target: {' or '.join(OF_KSERVE)}, or remove "
        "inferenceService",
        "inferenceService",
        "FieldValueForbidden",
    ),
    Rule(
        "certificate-of-kserve",
        "!has(self.inferenceService) || !has(self.inferenceService.tls) || "
        f"(self.target == '{Target.LLM_INFERENCE_SERVICE}' && self.engine.type == '{EngineType.VLLM}')",
        f"inferenceService.tls is set but target is {{self.target}} and engine.type {{self.engine.type}}: {TLS_REMEDY}",
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
