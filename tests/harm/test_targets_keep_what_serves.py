"""Harm: an object whose `spec.target` was edited loses the Service of its pods, or gets pods of both targets.

The definition refuses the edit. An object may have been edited before it did, or under a definition that was not
updated with the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest
from tests.unit.reconcile.observed import test_leader_worker_set as group
from tests.unit.reconcile.observed import test_llm_inference_service as llm
from tests.unit.reconcile.observed.test_inference_service import SERVED, serve
from tests.unit.reconcile.worlds import SPEC, Cluster

from speculative_operator.domain.platform import InferenceServiceSettings
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Target
from speculative_operator.render import Capabilities
from speculative_operator.render.environment import RenderError

BOTH = Capabilities(inference_service=True, llm_inference_service=True)


def of_a_deployment() -> Cluster:
    cluster = Cluster(capabilities=Capabilities(inference_service=True))
    cluster.settle()
    cluster.spec = replace(SPEC, target=Target.INFERENCE_SERVICE, inference_service=InferenceServiceSettings())
    return cluster


def of_an_inference_service() -> Cluster:
    platform = serve()
    platform.spec = replace(SERVED, target=Target.DEPLOYMENT)
    return platform


def from_llm_to_inference_service() -> Cluster:
    platform = llm.serve(capabilities=BOTH)
    platform.spec = replace(llm.SERVED, target=Target.INFERENCE_SERVICE)
    return platform


def from_inference_service_to_llm() -> Cluster:
    platform = serve(capabilities=BOTH)
    platform.spec = replace(SERVED, target=Target.LLM_INFERENCE_SERVICE)
    return platform


def from_deployment_to_groups() -> Cluster:
    cluster = Cluster(capabilities=Capabilities(leader_worker_set=True))
    cluster.settle()
    cluster.spec = replace(SPEC, target=Target.LEADER_WORKER_SET, nodes=2)
    return cluster


def from_groups_to_deployment() -> Cluster:
    platform = group.serve()
    platform.spec = replace(group.SERVED, target=Target.DEPLOYMENT, nodes=1)
    return platform


OWN = {
    "LeaderWorkerSet": group.SERVED,
    "Deployment": SPEC,
    "InferenceService": SERVED,
    "LLMInferenceService": llm.SERVED,
}


@pytest.mark.parametrize(("cluster", "kind"), [
    (of_a_deployment, "Deployment"), (of_an_inference_service, "InferenceService"),
    (from_llm_to_inference_service, "LLMInferenceService"), (from_inference_service_to_llm, "InferenceService"),
    (from_deployment_to_groups, "Deployment"), (from_groups_to_deployment, "LeaderWorkerSet"),
])  # fmt: skip
def test_what_serves_stays_and_nothing_else_is_made(cluster: Callable[[], Cluster], kind: str) -> None:
    found = cluster()
    before = deepcopy(found.children)
    for _ in range(3):
        assert found.tick().actions == ()
    assert found.children == before
    ready = found.condition("Ready")
    assert (ready["reason"], f"by its {kind}," in ready["message"]) == (Reason.UNSUPPORTED_TARGET, True)
    found.spec = OWN[kind]
    found.settle()
    assert found.condition("Ready")["status"] == "True"


@pytest.mark.parametrize(
    ("key", "value"), [("stop", "true"), ("deploymentMode", "Knative"), ("autoscalerClass", "hpa")]
)
def test_a_template_cannot_have_kserve_stop_or_move_the_pods(key: str, value: str) -> None:
    template = {"metadata": {"annotations": {f"serving.kserve.io/{key}": value}}}
    with pytest.raises(RenderError, match=f"serving.kserve.io/{key}.*remove it"):
        render_of(template)


def test_a_template_may_annotate_pods() -> None:
    assert render_of({"metadata": {"annotations": {"team": "a", "serving.kserve.io/deploymentMode": "Standard"}}})


def render_of(template: dict[str, dict[str, dict[str, str]]]) -> object:
    platform = serve()
    platform.spec = replace(platform.spec, template=template)
    outcome = platform.tick()
    ready = platform.condition("Ready")
    if ready["reason"] == Reason.RENDER_INVALID:
        raise RenderError(ready["message"])
    return outcome
