"""The harm: the operator interrupts serving by itself, because another K would be a little faster.

Where K changes by a rollout, one replica and no spare accelerator meant that the only pod went before the next one had
loaded: minutes without service, in the default mode, asked for by nobody. Such a rollout is now proposed, with the
command that accepts it, or made so that no capacity is lost, and undone where the new pod finds no node.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.unit.reconcile.scripted import REMOVABLE, Tuner, active_table, drafts
from tests.unit.reconcile.worlds import Cluster, observed, settled, template

from speculative_operator.api.convert import to_domain
from speculative_operator.domain import names
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.observation import Observation, PodWindow
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DailyWindow, DeploymentSpec, OffPolicy, RolloutStrategy, Tuning
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile.children.desired import NEW_FIRST, OLD_FIRST
from speculative_operator.reconcile.table import deciding

SECONDS = 60.0
"""Length of a window: two hours are 120 of them."""


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> Tuner:
    script = Tuner()
    monkeypatch.setattr(deciding, "decide", script)
    return script


def default_spec() -> DeploymentSpec:
    """As somebody writes it who reads no further than the first example; SGLang cannot change K live."""
    wanted = {
        "verifier": {"model": "hf://a/b", "maxNumSeqs": 64},
        "speculator": {"method": "eagle3", "model": "hf://a/c"},
        "engine": {"type": "SGLang"},
        "accelerator": {"product": "H100-SXM"},
        "weights": {"check": "Disabled"},
    }
    metadata = {"name": "demo", "namespace": "models", "uid": "uid-1", "generation": 1}
    return to_domain({"metadata": metadata, "spec": wanted})


def useless_drafts(cluster: Cluster) -> Observation:
    """Sixty requests, of whose drafts one in a hundred is accepted."""
    steps, batch, share, end = 20.0 * SECONDS, 60.0, 0.01, cluster.now
    accepted = (share + share**2) * steps * batch
    window = PodWindow(
        start=end - SECONDS, end=end, steps=steps, decode_request_steps=steps * batch, step_seconds=SECONDS * batch,
        first_tokens=10.0, generated_tokens=10.0 + steps * batch + accepted, prompt_tokens=5000.0, running=batch,
        waiting=0.0, kv_usage=0.4, kv_capacity_tokens=4e5, drafts=steps * batch, draft_tokens=3 * steps * batch,
        accepted_tokens=accepted, accepted_per_position=(share * steps * batch, share**2 * steps * batch, 0.0),
    )  # fmt: skip
    return Observation(end, {pod["metadata"]["name"]: window for pod in cluster.pods})


def proposed(cluster: Cluster) -> str:
    """The command's value, as the warning has it."""
    (warning,) = [one for one in cluster.status["warnings"] if one["reason"] == "RolloutNeedsApproval"]
    command = re.search(
        rf"kubectl annotate --overwrite -n models specdep demo {names.ANNOTATION_ACCEPT}=(\w+)", warning["message"]
    )
    assert command is not None
    return command.group(1)


def test_a_rollout_of_the_tuner_that_finds_no_node_goes_back_and_is_proposed(tuner: Tuner) -> None:
    """Nothing but a pod that waits comes and goes."""
    cluster = settled(spec=default_spec())
    before, old = cluster.status["speculation"]["table"], [pod["metadata"]["name"] for pod in cluster.pods]
    wish(tuner)
    cluster.tick(useless_drafts(cluster))
    assert (cluster.templates, cluster.strategy) == (2, NEW_FIRST)
    cluster.find_no_node(seconds=50.0)
    cluster.tick(seconds=10.0)
    assert cluster.templates == 2, "nodes may come"
    cluster.tick()
    assert (cluster.templates, cluster.strategy) == (3, NEW_FIRST)
    assert cluster.status["speculation"]["table"] == before
    assert cluster.status["decisions"][0]["reason"] == "RolloutUndone"
    assert "no node has room" in cluster.status["decisions"][0]["message"]
    cluster.tick()
    assert cluster.strategy == NEW_FIRST, "the way back ends no pod either"
    cluster.pods = [pod for pod in cluster.pods if pod["metadata"]["name"] in old]
    cluster.pods[0]["metadata"]["labels"]["template"] = f"t{cluster.templates}"
    cluster.roll()
    cluster.settle()
    wish(tuner)
    cluster.tick(useless_drafts(cluster))
    assert cluster.templates == 3, "not again that day"
    value, wanted = proposed(cluster), cluster.status["rollout"]["proposal"]["table"]
    assert cluster.status["speculation"]["proposedTable"] == wanted
    assert cluster.condition("TuningConverged")["reason"] == "RolloutNeedsApproval"
    cluster.annotate(accept="another")
    cluster.tick(useless_drafts(cluster))
    assert cluster.templates == 3, "only what was proposed may be accepted"
    cluster.annotate(accept=value)
    cluster.tick(useless_drafts(cluster))
    assert (cluster.templates, cluster.status["speculation"]["table"]) == (4, wanted)
    assert "proposal" not in cluster.status["rollout"]
    cluster.find_no_node()
    cluster.tick()
    assert (cluster.templates, cluster.strategy) == (4, OLD_FIRST), "a user has accepted the pause"
    cluster.roll()
    cluster.settle()
    assert (cluster.templates, cluster.strategy) == (4, NEW_FIRST)


def test_a_real_tuner_never_ends_the_only_pod() -> None:
    cluster = settled(spec=default_spec())
    for _ in range(120):
        cluster.tick(useless_drafts(cluster), SECONDS)
        assert cluster.strategy == NEW_FIRST
        if cluster.status["speculation"].get("proposedTable"):
            break
        if cluster.templates > 1 and len(cluster.pods) == 1:
            cluster.find_no_node()
    assert len([pod for pod in cluster.pods if pod["spec"].get("nodeName")]) == 1


def test_where_new_pods_may_displace_others_the_tuner_asks(tuner: Tuner) -> None:
    cluster = settled(spec=default_spec())
    cluster.pods[0]["spec"] |= {"priority": 1000, "preemptionPolicy": "PreemptLowerPriority"}
    wish(tuner)
    cluster.tick(useless_drafts(cluster))
    assert cluster.templates == 1
    assert "displace" in cluster.status["rollout"]["proposal"]["message"]
    cluster.pods[0]["spec"]["preemptionPolicy"] = "Never"
    wish(tuner)
    cluster.tick(useless_drafts(cluster))
    assert cluster.templates == 2


def wish(tuner: Tuner) -> None:
    tuner.wishes.append(
        {"table": KTable.constant(1, 64), "reason": Reason.FASTER, "changed": True, "message": "faster"}
    )


def test_at_rest_a_proposal_makes_no_writes(tuner: Tuner) -> None:
    cluster = settled(spec=replace(default_spec(), rollout_strategy=RolloutStrategy.RECREATE))
    said = []
    for _ in range(30):
        tuner.wishes.append({"table": KTable.constant(1, 64), "reason": Reason.FASTER, "changed": True})
        outcome = cluster.tick(useless_drafts(cluster))
        assert outcome.actions == ()
        said.append((cluster.status["rollout"], cluster.status["warnings"], len(outcome.events) > 0))
    assert [one[:2] for one in said[1:]] == [said[0][:2]] * 29
    assert [events for *_, events in said] == [True] + [False] * 29


def test_a_spec_that_ends_pods_first_is_never_rolled_unasked(tuner: Tuner) -> None:
    cluster = settled(spec=replace(default_spec(), rollout_strategy=RolloutStrategy.RECREATE))
    wish(tuner)
    cluster.tick(useless_drafts(cluster))
    assert cluster.templates == 1


NIGHT = DailyWindow(22 * 60, 4 * 60)


@pytest.mark.parametrize(("hour", "ends"), [(21.9, False), (22.0, True), (3.9, True), (4.0, False), (12.0, False)])
def test_serving_is_interrupted_only_within_the_hours_that_the_spec_names(
    tuner: Tuner, hour: float, ends: bool
) -> None:
    """The hour at which a pod would end counts, not that at which the rollout began."""
    spec = replace(default_spec(), rollout_tuning=Tuning.INTERRUPT, rollout_window=NIGHT)
    cluster = settled(spec=spec)
    cluster.now = (cluster.now // 86_400 + 1) * 86_400 + hour * 3600 - 120.0
    wish(tuner)
    cluster.tick(useless_drafts(cluster))
    cluster.find_no_node(seconds=110.0)
    assert cluster.now % 86_400 == hour * 3600
    cluster.tick()
    assert (cluster.templates, cluster.strategy) == ((2, OLD_FIRST) if ends else (3, NEW_FIRST))


def test_the_drafter_is_not_removed_where_a_pod_would_have_to_go_first(tuner: Tuner) -> None:
    cluster = settled(spec=replace(REMOVABLE, rollout_strategy=RolloutStrategy.RECREATE))
    tuner.remove(active_table(cluster))
    cluster.tick(observed(cluster))
    assert (cluster.templates, drafts(cluster)) == (1, True)
    value = proposed(cluster)
    for _ in range(3):
        cluster.tick(observed(cluster))
    assert proposed(cluster) == value
    cluster.annotate(accept=value)
    cluster.tick(observed(cluster))
    assert (cluster.templates, drafts(cluster)) == (2, False)
    cluster.roll()
    cluster.settle()
    tuner.bring_back(active_table(cluster))
    cluster.tick(observed(cluster))
    assert (cluster.templates, drafts(cluster)) == (2, False), "nor does it come back so"
    cluster.annotate(accept=proposed(cluster))
    cluster.tick(observed(cluster))
    cluster.tick()  # first the table comes back, then the pods that mount it
    assert (cluster.templates, drafts(cluster)) == (3, True)


def test_a_table_that_changes_meanwhile_makes_it_no_rollout_of_a_user(tuner: Tuner) -> None:
    """The return of the speculator finds no node, while the table of its pods follows the load."""
    cluster = settled(spec=replace(REMOVABLE, replicas=1))
    tuner.remove(active_table(cluster))
    cluster.tick(observed(cluster))
    cluster.roll()
    cluster.settle()
    tuner.bring_back(active_table(cluster))
    cluster.tick(observed(cluster))
    cluster.tick()
    assert (cluster.templates, drafts(cluster)) == (3, True)
    cluster.status["speculation"]["tableVersion"] += 1
    cluster.find_no_node()
    cluster.tick()
    assert cluster.strategy == NEW_FIRST
    assert not drafts(cluster), "it goes back"


STALLED = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}


def stall(cluster: Cluster) -> None:
    """The new pod never becomes ready; the old one serves on."""
    deployment = cluster.children["Deployment", "demo"]
    deployment["status"] |= {
        "observedGeneration": deployment["metadata"]["generation"], "replicas": 2, "updatedReplicas": 1,
        "readyReplicas": 1, "availableReplicas": 1, "conditions": [STALLED],
    }  # fmt: skip


@pytest.mark.parametrize("spec", [default_spec(), replace(REMOVABLE, replicas=1)], ids=["another K", "removal"])
def test_a_rollout_of_our_own_that_stalls_goes_back_and_is_not_tried_again_that_day(
    tuner: Tuner, spec: DeploymentSpec
) -> None:
    cluster = settled(spec=spec)
    before, table = template(cluster.children["Deployment", "demo"]), active_table(cluster)

    def ask() -> None:
        if spec.speculation.off_policy is OffPolicy.REMOVE:
            tuner.remove(table)
        else:
            wish(tuner)

    ask()
    cluster.tick(observed(cluster))
    assert cluster.templates == 2
    stall(cluster)
    cluster.tick()
    after = cluster.children["Deployment", "demo"]
    assert template(after) == before
    assert after["spec"]["strategy"] == NEW_FIRST, "pods of the failed rollout that do serve must not all end at once"
    assert cluster.status["decisions"][0]["reason"] == "RolloutUndone"
    cluster.roll()
    cluster.settle()
    made = cluster.templates
    for hours in range(23):
        ask()
        cluster.tick(observed(cluster))
        assert cluster.templates == made, hours
        cluster.now += 3600.0
    cluster.now += 2 * 3600.0
    ask()
    cluster.tick(observed(cluster))
    assert cluster.templates == made + 1


@pytest.mark.parametrize(("hours", "made"), [(23, 1), (25, 2), (24 * 3650, 2)])
def test_a_pause_that_a_wrong_clock_has_written_holds_nothing_for_ever(tuner: Tuner, hours: int, made: int) -> None:
    """None is longer than a day: what lasts longer was written by a clock that was ahead, or before a restore."""
    cluster = settled(spec=default_spec())
    until = timestamp(cluster.now + 3600.0 * hours)
    cluster.status = {**cluster.status, "rollout": {"heldUntil": until}}
    wish(tuner)
    cluster.tick(observed(cluster))
    assert cluster.templates == made


def test_an_edit_that_stalls_is_the_users(tuner: Tuner) -> None:
    cluster = settled(spec=default_spec())
    wish(tuner)
    cluster.tick(observed(cluster))
    cluster.roll()
    cluster.settle()
    cluster.edit(replicas=2)
    cluster.tick()
    stall(cluster)
    made = cluster.templates
    cluster.tick()
    assert cluster.templates == made


def test_pods_that_are_slower_than_before_go_back(tuner: Tuner) -> None:
    cluster = settled(spec=default_spec())
    before = template(cluster.children["Deployment", "demo"])
    for _ in range(40):
        cluster.tick(observed(cluster))
    wish(tuner)
    cluster.tick(observed(cluster))
    cluster.roll()
    for _ in range(29):
        cluster.tick(observed(cluster, survival=0.05))
        assert cluster.templates == 2
    for _ in range(3):
        cluster.tick(observed(cluster, survival=0.05))
    assert template(cluster.children["Deployment", "demo"]) == before
    assert "slower" in cluster.status["decisions"][0]["message"]
