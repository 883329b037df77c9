"""`target: LeaderWorkerSet`: everything that holds for a Deployment holds for the leaders of groups that LWS makes. LWS
is a stand-in (tests/lws.py)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests import lws
from tests.unit.reconcile.worlds import SPEC, Cluster, applies, observed, pod

from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild, DeleteChild
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
from speculative_operator.render.leader_worker_set import steps, strategy_of

SERVED = replace(
    SPEC,
    target=Target.LEADER_WORKER_SET,
    nodes=2,
    verifier=replace(SPEC.verifier, tensor_parallel_size=16),
    accelerator=AcceleratorRequest(product="H100-SXM", per_replica=16),
)
SET = ("LeaderWorkerSet", "demo-group")
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


def test_only_leaders_serve_and_are_measured() -> None:
    platform = serve()
    leader, worker = template(platform, "leaderTemplate"), template(platform, "workerTemplate")
    wanted = names.selector("demo")
    assert wanted.items() <= leader["metadata"]["labels"].items()
    assert not wanted.keys() & worker["metadata"]["labels"].keys()
    assert platform.children["Service", "demo"]["spec"]["selector"] == wanted
    assert not worker["metadata"].get("annotations")
    (serves,), (works,) = (one["spec"]["containers"] for one in (leader, worker))
    assert works["args"] == [*serves["args"], "--headless"]
    assert not {"ports", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle"} & works.keys()
    assert {serves["resources"]["limits"]["nvidia.com/gpu"], works["resources"]["limits"]["nvidia.com/gpu"]} == {"8"}


def test_only_pods_of_the_object_reach_the_ports_between_nodes() -> None:
    platform = serve()
    group = {"leaderworkerset.sigs.k8s.io/name": "demo-group"}
    policy = platform.children["NetworkPolicy", "demo-group"]["spec"]
    assert policy["podSelector"]["matchLabels"] == group
    assert policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": group}}]}]
    assert platform.children["PodDisruptionBudget", "demo"]["spec"]["selector"]["matchLabels"] == group


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


def test_what_others_add_stays_and_nothing_is_fought_over() -> None:
    platform = serve()
    template(platform, "leaderTemplate")["spec"]["priorityClassName"] = "high"
    for _ in range(3):
        assert platform.tick().actions == ()


def test_scaling_replaces_no_pod_and_a_table_neither() -> None:
    platform = serve()
    platform.edit(replicas=3)
    platform.settle()
    for _ in range(60):
        outcome = platform.tick(observed(platform, batch=200, survival=0.02))
        platform.roll()
        if any(kind == "ConfigMap" for kind, _, _ in applies(outcome)):
            break
    else:
        raise AssertionError("the tuner never changed the table at a load where drafts lose")
    assert (platform.rollouts, len(platform.pods)) == (1, 3)
    assert SET[0] not in {kind for kind, _, _ in applies(outcome)}


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
    assert [steps(one) for one in every] == [(1, 0), (0, 1), (0, "100%")]
    assert [strategy_of(*steps(one)) for one in every] == list(every)


def test_groups_that_make_no_progress_are_told_after_the_operators_own_deadline() -> None:
    platform = serve()
    platform.children[SET]["status"] = lws.status_of(platform.children[SET], 0, 2, 2, LATER)
    platform.tick()
    assert platform.condition("Ready")["reason"] != Reason.ROLLOUT_STALLED.value
    platform.now += 7200.0
    platform.tick()
    assert platform.condition("Ready")["reason"] == Reason.ROLLOUT_STALLED.value


def test_without_lws_nothing_is_made() -> None:
    platform = Platform(capabilities=Capabilities())
    assert platform.tick().actions == ()
    ready = platform.condition("Ready")
    assert (ready["reason"], "install LWS" in ready["message"]) == (Reason.UNSUPPORTED_TARGET.value, True)


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


def test_one_of_somebody_else_by_its_name_is_left_alone() -> None:
    platform = Platform(upgraded=True)
    platform.children[SET] = {"kind": SET[0], "metadata": {"name": SET[1], "uid": "theirs"}, "spec": {}}
    outcome = platform.tick()
    assert SET[0] not in {kind for kind, _, _ in applies(outcome)}
    assert "LeaderWorkerSet demo exists and has no owner" in platform.condition("Ready")["message"]


def test_it_is_never_deleted() -> None:
    platform = serve()
    for change in ({"replicas": 1}, {"engine": EngineSettings(args=("--x",))}, {"replicas": 3}):
        platform.edit(**change)
        for _ in range(4):
            outcome = platform.tick()
            platform.roll()
            assert not [one for one in outcome.actions if isinstance(one, DeleteChild) and one.kind == SET[0]]
            written = [one for one in outcome.actions if isinstance(one, ApplyChild)]
            assert not [one for one in written if one.manifest["kind"] in ("Deployment", "StatefulSet")]
