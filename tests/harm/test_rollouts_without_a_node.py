"""The harm: a serving pod ends for a new one that then finds no node, or by a restart that asks for no pause.

New pods come first, whoever replaces pods. An old one ends only where the scheduler has found no node for the new one,
the spec allows the pause, and the place of the old pod will do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.worlds import FULL, SPEC, Cluster, settled, template

from speculative_operator.domain.spec import EngineSettings, RolloutStrategy
from speculative_operator.reconcile.children.desired import NEW_FIRST, OLD_FIRST

ONE = replace(SPEC, replicas=1)
OTHER = EngineSettings(args=("--seed=1",))


def edited(seconds: float = 60.0, message: str = FULL, **change: Any) -> Cluster:
    """A user edits an object that serves; the new pod finds no node."""
    cluster = settled(spec=replace(ONE, **change))
    cluster.edit(engine=OTHER)
    cluster.tick()
    assert cluster.strategy == NEW_FIRST
    cluster.find_no_node(message, seconds)
    return cluster


def healthy(cluster: Cluster) -> tuple[str, str, str]:
    found = cluster.condition("RolloutHealthy")
    return found["status"], found["reason"], found["message"]


@pytest.mark.parametrize("replicas", [1, 3])
def test_an_edit_goes_on_once_no_node_was_found_for_a_minute(replicas: int) -> None:
    cluster = edited(seconds=50.0, replicas=replicas)
    cluster.tick(seconds=10.0)
    assert cluster.strategy == NEW_FIRST
    outcome = cluster.tick()
    assert (cluster.strategy, cluster.templates) == (OLD_FIRST, 2)
    assert healthy(cluster)[:2] == ("False", "RolloutWaits")
    assert "an old pod ends" in healthy(cluster)[2]
    assert [one.type for one in outcome.events if one.reason == "RolloutWaits"] == ["Warning"]
    cluster.pods[-1]["spec"]["nodeName"] = "node-1"
    cluster.pods[-1]["status"]["conditions"] = []
    cluster.tick()
    assert cluster.strategy == NEW_FIRST, "the next old pod ends for the same reasons, or not"
    cluster.roll()
    cluster.settle()
    assert (cluster.strategy, cluster.templates, healthy(cluster)[0]) == (NEW_FIRST, 2, "True")


def spoil_clock(cluster: Cluster) -> None:
    cluster.pods[-1]["status"]["conditions"][0]["lastTransitionTime"] = "2099-01-01T00:00:00Z"


def spoil_condition(cluster: Cluster) -> None:
    cluster.pods[-1]["status"]["conditions"] = "none"


def forget_requests(cluster: Cluster) -> None:
    for pod in cluster.pods:
        pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "many"}}


def ask_for_more(cluster: Cluster) -> None:
    cluster.pods[-1]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 16}}


def ask_for_other_nodes(cluster: Cluster) -> None:
    cluster.pods[-1]["spec"]["nodeSelector"] = {"example.com/none": "yes"}


def ask_for_a_claim(cluster: Cluster) -> None:
    cluster.pods[-1]["spec"]["volumes"] = [{"name": "w", "persistentVolumeClaim": {"claimName": "elsewhere"}}]


def lose_labels(cluster: Cluster) -> None:
    for pod in cluster.pods:
        del pod["metadata"]["labels"]["pod-template-hash"]


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_clock, spoil_condition, forget_requests, ask_for_more, ask_for_other_nodes, ask_for_a_claim, lose_labels,
    ],
)  # fmt: skip
@pytest.mark.parametrize("replicas", [1, 3])
def test_no_pod_ends_where_its_place_might_not_do(spoil: Callable[[Cluster], None], replicas: int) -> None:
    cluster = edited(replicas=replicas)
    spoil(cluster)
    for _ in range(60):
        cluster.tick()
        assert cluster.strategy == NEW_FIRST


@pytest.mark.parametrize(
    "message",
    [
        "", "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable.",
        "0/2 nodes are available: 2 Insufficient example.com/none.",
    ],
)  # fmt: skip
def test_nor_where_the_scheduler_says_that_more_is_in_the_way(message: str) -> None:
    cluster = edited(message=message)
    cluster.tick()
    assert cluster.strategy == NEW_FIRST
    status, reason, told = healthy(cluster)
    assert (status, reason) == ("False", "RolloutWaits")
    assert "old pods serve on" in told
    assert "set spec.rollout.strategy: Recreate" in told


def test_a_new_pod_of_rolling_update_waits_and_the_remedy_is_named() -> None:
    cluster = edited(rollout_strategy=RolloutStrategy.ROLLING_UPDATE)
    for _ in range(60):
        cluster.tick()
        assert cluster.strategy == NEW_FIRST
    assert "spec.rollout.strategy is RollingUpdate. Free what" in healthy(cluster)[2]
    cluster.edit(rollout_strategy=RolloutStrategy.RECREATE)
    cluster.tick()
    assert cluster.strategy == {"type": "Recreate"}


def test_the_reasons_of_one_edit_are_none_for_the_next() -> None:
    cluster = edited()
    cluster.edit(engine=EngineSettings(args=("--seed=2",)))
    cluster.tick()
    assert (cluster.templates, cluster.strategy) == (3, NEW_FIRST)


def restarted(replicas: int) -> Cluster:
    """kubectl rollout restart, and no node has room for the new pod."""
    cluster = settled(spec=replace(SPEC, replicas=replicas))
    found = template(cluster.children["Deployment", "demo"])["metadata"]
    found["annotations"] = {**found.get("annotations", {}), "kubectl.kubernetes.io/restartedAt": "now"}
    cluster.templates += 1
    cluster.find_no_node()
    return cluster


def test_a_restart_never_ends_the_only_pod() -> None:
    cluster = restarted(1)
    for _ in range(60):
        assert cluster.strategy == NEW_FIRST
        cluster.tick()
    assert "a restart does not end the only pod" in healthy(cluster)[2]


def test_a_restart_of_several_pods_goes_on_one_by_one() -> None:
    cluster = restarted(3)
    cluster.tick()
    assert cluster.strategy == OLD_FIRST


def never_up(cluster: Cluster) -> None:
    """The old pod has never served: its engine does not come up."""
    old = cluster.pods[0]["status"]
    old["conditions"][0]["status"] = "False"
    old["containerStatuses"] = [{"name": "engine", "started": False}]
    cluster.children["Deployment", "demo"]["status"] |= {"readyReplicas": 0, "availableReplicas": 0}


def test_a_pod_that_never_served_ends_for_a_new_one() -> None:
    """By whatever strategy and whoever restarts: else a broken pod would keep the place of its cure for ever."""
    for cluster in (edited(rollout_strategy=RolloutStrategy.ROLLING_UPDATE), restarted(1)):
        never_up(cluster)
        cluster.tick()
        assert cluster.strategy == OLD_FIRST


@pytest.mark.parametrize("lost", ["containerStatuses", "started"])
def test_what_is_not_known_to_be_down_stays(lost: str) -> None:
    cluster = edited(rollout_strategy=RolloutStrategy.ROLLING_UPDATE)
    never_up(cluster)
    status = cluster.pods[0]["status"]
    status["containerStatuses"] = [] if lost == "containerStatuses" else [{"name": "engine"}]
    cluster.tick()
    assert cluster.strategy == NEW_FIRST
