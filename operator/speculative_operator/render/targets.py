"""Objects that run pods: one renderer for each `spec.target`. Used by `values`, `manifests` and `reconcile`.

The operator renders, compares and judges one form, the Deployment of `templates/deployment.yaml.j2`, called the
workload. A target writes it as the objects that a cluster runs pods by; `reconcile.snapshot.by_target` reads it back
from them. So tables, pairs, upgrades and rollouts know no targets.
"""

from __future__ import annotations

from collections.abc import Mapping

from speculative_operator.domain.spec import DeploymentSpec, Target
from speculative_operator.render.inference_service import InferenceServiceTarget
from speculative_operator.render.leader_worker_set import LeaderWorkerSetTarget
from speculative_operator.render.llm_inference_service import LLMInferenceServiceTarget
from speculative_operator.render.target import TargetKind

TARGETS: Mapping[Target, TargetKind] = {
    Target.DEPLOYMENT: TargetKind(),
    Target.INFERENCE_SERVICE: InferenceServiceTarget(),
    Target.LLM_INFERENCE_SERVICE: LLMInferenceServiceTarget(),
    Target.LEADER_WORKER_SET: LeaderWorkerSetTarget(),
}


def target_of(spec: DeploymentSpec) -> TargetKind:
    """The target of an object."""
    return TARGETS[spec.target]
