"""A new release of the operator replaces no pod that serves; what is asked for does, as the release makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile import worlds
from tests.unit.reconcile.scripted import Tuner
from tests.unit.reconcile.worlds import SPEC, Cluster, observed, template

from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.spec import (
    EngineSettings,
    Goal,
    Mode,
    Objective,
    Verifier,
    Workload,
)  # fmt: skip
from speculative_operator.domain.table import KTable
from speculative_operator.engines.registry import engine_for
from speculative_operator.reconcile import tick
from speculative_operator.reconcile.table import deciding
from speculative_operator.tuner import decide


def settled(**change: Any) -> Cluster:
    return worlds.settled(upgraded=True, **change)


def flags(cluster: Cluster) -> list[str]:
    (container,) = template(cluster.children["Deployment", "demo"])["spec"]["containers"]
    return [str(one) for one in container["args"]]


def warned(cluster: Cluster) -> list[str]:
    return [one["message"] for one in cluster.status.get("warnings", ()) if one["reason"] == "UpgradeWaits"]


def test_an_upgrade_replaces_no_pod_and_says_what_waits(release: Callable[[str], None]) -> None:
    cluster = settled()
    before, made = cluster.children["Deployment", "demo"], cluster.templates
    release("--anew")
    outcome = cluster.tick()
    assert outcome.actions == ()
    assert [event.reason for event in outcome.events] == ["UpgradeWaits"]
    assert cluster.children["Deployment", "demo"] == before
    (message,) = warned(cluster)
    assert "spec.template.spec.containers[engine].args" in message
    assert names.ANNOTATION_ADOPT in message
    assert cluster.condition("Ready")["status"] == "True"
    for _ in range(3):
        outcome = cluster.tick()
        assert (outcome.actions, outcome.events) == ((), ())
    assert cluster.templates == made


def test_the_annotation_has_it_made_and_is_then_done_with(release: Callable[[str], None]) -> None:
    cluster = settled()
    release("--anew")
    cluster.tick()
    cluster.edit(adopt="today")
    cluster.tick()
    assert flags(cluster)[-1] == "--anew"
    assert cluster.children["Service", "demo"]["metadata"]["labels"]["release"] == "anew"
    cluster.roll()
    cluster.tick()
    assert warned(cluster) == []
    made = cluster.templates
    release("--next")
    cluster.tick()
    assert cluster.templates == made, "the same value asks for no other release"
    assert warned(cluster)


EDITS: list[dict[str, Any]] = [
    {"verifier": Verifier(SPEC.verifier.source, "demo", max_model_len=4096, max_num_seqs=256)},
    {"engine": EngineSettings(args=("--seed=1",))},
    {"template": {"spec": {"priorityClassName": "high"}}},
    {"speculation": replace(SPEC.speculation, max_speculative_tokens=3)},
    {"speculation": replace(SPEC.speculation, mode=Mode.DISABLED)},
]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: next(iter(edit)))
def test_an_edit_that_makes_other_pods_brings_it_along(release: Callable[[str], None], edit: dict[str, Any]) -> None:
    cluster = settled()
    release("--anew")
    cluster.tick()
    cluster.edit(**edit)
    cluster.tick()
    assert flags(cluster)[-1] == "--anew"


QUIET: list[dict[str, Any]] = [
    {"speculation": replace(SPEC.speculation, objective=Objective(Goal.THROUGHPUT))},
    {"speculation": replace(SPEC.speculation, workload=Workload.CODE)},
    {"accelerator": replace(SPEC.accelerator, hourly_cost=3.0)},
]


@pytest.mark.parametrize("edit", QUIET, ids=lambda edit: str(next(iter(edit.values())))[:40])
def test_an_edit_that_pods_do_not_feel_replaces_none(release: Callable[[str], None], edit: dict[str, Any]) -> None:
    cluster = settled()
    made = cluster.templates
    release("--anew")
    cluster.tick()
    cluster.edit(**edit)
    cluster.tick(observed(cluster))
    cluster.tick(observed(cluster))
    assert cluster.templates == made
    assert warned(cluster)


def test_replicas_follow_meanwhile_with_the_pods_as_they_are(release: Callable[[str], None]) -> None:
    cluster = settled()
    before = template(cluster.children["Deployment", "demo"])
    release("--anew")
    cluster.tick()
    cluster.edit(replicas=3)
    outcome = cluster.tick()
    (action,) = outcome.actions
    assert isinstance(action, ApplyChild)
    found = cluster.children["Deployment", "demo"]
    assert found["spec"]["replicas"] == 3
    assert template(found) == before
    assert found["metadata"]["annotations"][names.ANNOTATION_MADE_OF]
    cluster.roll()
    assert cluster.tick().actions == ()
    assert warned(cluster)


def test_the_table_goes_on_following_the_load(release: Callable[[str], None], tuner: Tuner) -> None:
    cluster = settled()
    release("--anew")
    cluster.tick(observed(cluster))
    made = cluster.templates
    tuner.wishes.append({"table": KTable.constant(1, 256), "changed": True})
    outcome = cluster.tick(observed(cluster))
    assert [one.manifest["kind"] for one in outcome.actions if isinstance(one, ApplyChild)] == ["ConfigMap"]
    assert cluster.templates == made


def test_what_others_break_is_put_right_meanwhile(release: Callable[[str], None]) -> None:
    cluster = settled()
    release("--anew")
    cluster.tick()
    del cluster.children["Service", "demo"]
    cluster.tick()
    assert ("Service", "demo") in cluster.children


STALLED = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}


def test_pods_that_never_served_within_their_deadline_have_nothing_to_lose(release: Callable[[str], None]) -> None:
    cluster = settled()
    release("--anew")
    cluster.children["Deployment", "demo"]["status"] |= {
        "readyReplicas": 0, "availableReplicas": 0, "conditions": [STALLED]
    }  # fmt: skip
    cluster.tick()
    assert flags(cluster)[-1] == "--anew"


def test_where_no_pod_is_there_none_is_lost(release: Callable[[str], None]) -> None:
    cluster = settled()
    release("--anew")
    cluster.children["Deployment", "demo"]["status"] = {"observedGeneration": 1, "replicas": 0}
    cluster.tick()
    assert flags(cluster)[-1] == "--anew"


def test_the_tuner_goes_by_what_pods_can_until_they_are_made_anew(
    release: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another release prepares other K."""
    cluster, engine, asked = settled(), engine_for(SPEC), []

    def decided(memory: Any, seen: Any, policy: Policy, now: float) -> Any:
        asked.append(policy.knobs.ks)
        return decide(memory, seen, policy, now)

    monkeypatch.setattr(deciding, "decide", decided)
    other = replace(engine, knobs=lambda spec: replace(engine.knobs(spec), ks=(0, 1)))
    monkeypatch.setattr(tick, "engine_for", lambda _: other)
    release("--anew")
    cluster.tick(observed(cluster))
    assert asked == [engine.knobs(SPEC).ks]
    cluster.edit(adopt="now")
    cluster.tick()
    cluster.roll()
    cluster.settle()
    cluster.tick(observed(cluster))
    assert asked[-1] == (0, 1)
