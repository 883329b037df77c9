"""`target: LeaderWorkerSet`: everything that holds for a Deployment holds for the leaders of groups that LWS makes. LWS
is a stand-in (tests/lws.py)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests import lws
from tests.unit.reconcile.worlds import SPEC, Cluster, applies, pod

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import (
    AcceleratorRequest,
    DeploymentSpec,
    EngineSettings,
    EngineType,
    Mode,
    Speculation,
    Target,
)
from speculative_operator.reconcile.children.desired import NEW_FIRST, OLD_FIRST, RECREATE
from speculative_operator.render import Capabilities
from speculative_operator.render.target import steps, strategy_of

SERVED = replace(
    SPEC,
    target=Target.LEADER_WORKER_SET,
    nodes=2,
    verifier=replace(SPEC.verifier, tensor_parallel_size=16),
    accelerator=AcceleratorRequest(product="H100-SXM", per_replica=16),
)
SET = ("LeaderWorkerSet", "demo-group")
OBJECT, MADE = SET, ("StatefulSet", SET[1])
LATER = "2027-01-15T08:00:00Z"  # NOW


@dataclass
class Platform(Cluster):
    """A cluster with LWS."""

    spec: DeploymentSpec = SERVED
    capabilities: Capabilities = field(default_factory=lambda: Capabilities(leader_worker_set=True))
    rollouts: int = 0
    """Times that the pods' template changed."""
    made: Any = None

    def roll(self) -> None:
        """LWS and kubelets catch up."""
        if SET not in self.children:
            return
        made = lws.leaders_of(self.children[SET])["spec"]
        self.rollouts += int(self.made != made["template"])
        self.made, wanted, mark = made["template"], made["replicas"], f"t{self.rollouts}"
        labels = {**made["template"]["metadata"]["labels"], "template": mark}
        kept = [one for one in self.pods if one["metadata"]["labels"]["template"] == mark][:wanted]
        self.pods = [*kept, *(pod(f"demo-group-{mark}-{number}", labels) for number in range(len(kept), wanted))]
        self.children[SET]["status"] = lws.status_of(self.children[SET], wanted, wanted, wanted, LATER)


def serve(**change: Any) -> Platform:
    platform = Platform(**change)
    assert platform.settle().actions == ()
    return platform


def template(platform: Platform, part: str) -> Any:
    return platform.children[SET]["spec"]["leaderWorkerTemplate"][part]


def meddle(platform: Platform) -> None:
    """Others write beside the operator."""
    template(platform, "leaderTemplate")["spec"]["priorityClassName"] = "high"


def test_it_is_made_served_and_left_alone() -> None:
    platform = serve()
    assert sorted(key for key in platform.children if key[0] not in ("ConfigMap", "PodMonitor")) == [
        ("LeaderWorkerSet", "demo-group"), ("NetworkPolicy", "demo"), ("NetworkPolicy", "demo-group"),
        ("PodDisruptionBudget", "demo"), ("Service", "demo"),
    ]  # fmt: skip
    assert platform.condition("Ready")["status"] == "True"
    assert platform.status["ready"] == "2/2"
    assert platform.status["url"] == "http://demo.models.svc:8000"
    assert (platform.rollouts, len(platform.pods)) == (1, 2)
    platform.forget()
    for _ in range(5):
        assert platform.tick().actions == ()


def test_a_hand_edit_is_put_back() -> None:
    for path, value in (
        (("spec", "leaderWorkerTemplate", "size"), 3),
        (("spec", "leaderWorkerTemplate", "restartPolicy"), "None"),
        (("spec", "startupPolicy"), "LeaderReady"),
        (("spec", "leaderWorkerTemplate", "workerTemplate", "spec", "nodeSelector"), {"gpu": "old"}),
        (("spec", "leaderWorkerTemplate", "workerTemplate", "spec", "containers"), []),
        (("spec", "leaderWorkerTemplate", "leaderTemplate", "spec", "enableServiceLinks"), True),
        (("spec", "rolloutStrategy", "rollingUpdateConfiguration", "partition"), 1),
        (("spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxUnavailable"), 2),
    ):
        platform = serve(spec=replace(SERVED, template={"spec": {"nodeSelector": {"gpu": "new"}}}))
        before, part = deepcopy(platform.children[SET]["spec"]), platform.children[SET]
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value
        outcome = platform.tick()
        assert ("LeaderWorkerSet", "demo-group", Reason.REPAIRED) in applies(outcome), path
        assert platform.children[SET]["spec"] == before
        assert platform.tick().actions == ()


def test_an_edit_is_a_rollout_by_group_that_starts_with_a_new_group() -> None:
    platform = serve()
    platform.edit(engine=EngineSettings(args=("--enable-prefix-caching",)))
    platform.tick()
    rolling = platform.children[SET]["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert (rolling["maxSurge"], rolling["maxUnavailable"]) == (1, 0)
    assert platform.condition("Ready")["status"] == "False"
    assert platform.settle().actions == ()
    assert (platform.rollouts, platform.condition("Ready")["status"]) == (2, "True")


def test_each_strategy_has_its_own_steps() -> None:
    every = (NEW_FIRST, OLD_FIRST, RECREATE)
    assert [tuple(steps(one).values()) for one in every] == [(1, 0), (0, 1), (0, "100%")]
    assert [strategy_of(steps(one)) for one in every] == list(every)


def test_groups_that_make_no_progress_are_told_after_the_operators_own_deadline() -> None:
    platform = serve()
    platform.children[SET]["status"] = lws.status_of(platform.children[SET], 0, 2, 2, LATER)
    platform.tick()
    assert platform.condition("Ready")["reason"] != Reason.ROLLOUT_STALLED.value
    platform.now += 7200.0
    platform.tick()
    assert platform.condition("Ready")["reason"] == Reason.ROLLOUT_STALLED.value


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"engine": EngineSettings(type=EngineType.SGLANG, version="0.5.23")}, "set spec.engine.type: vLLM"),
        (
            {"verifier": replace(SERVED.verifier, tensor_parallel_size=8, pipeline_parallel_size=2)},
            "pipelineParallelSize: 1",
        ),
        ({"speculator": replace(SERVED.speculator, tensor_parallel_size=1)}, "remove it"),  # type: ignore[type-var]
    ],
)
def test_what_cannot_be_served_over_nodes_is_refused_and_what_serves_stays(change: dict[str, Any], said: str) -> None:
    platform = serve()
    before = deepcopy(platform.children)
    platform.edit(**change)
    assert platform.tick().actions == ()
    ready = platform.condition("Ready")
    assert (ready["reason"], said in ready["message"]) == (Reason.UNSUPPORTED_BY_ENGINE.value, True)
    assert platform.children == before


def test_stages_serve_without_drafts() -> None:
    stages = replace(SERVED.verifier, tensor_parallel_size=8, pipeline_parallel_size=2)
    assert serve(spec=replace(SERVED, verifier=stages, speculation=Speculation(mode=Mode.DISABLED)))
    assert serve(spec=replace(SERVED, verifier=stages, speculator=None))
