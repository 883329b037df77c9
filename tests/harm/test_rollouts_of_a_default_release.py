"""The harm: a release of the operator takes another release of the engine by default, on which K changes in another
way, and replaces the pods of every object that names none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile import worlds
from tests.unit.reconcile.worlds import SPEC, Cluster

from speculative_operator.domain.spec import DEFAULT_VERSIONS, EngineSettings, EngineType

TRT = EngineType.TENSORRT_LLM
TUNED, CONSTANT = DEFAULT_VERSIONS[TRT], "1.2.0"
"""One takes a table from a rollout, the other keeps one K for the life of a pod."""


def upgraded(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The pods of an object that names no release, under an operator with another default than theirs."""
    monkeypatch.setitem(DEFAULT_VERSIONS, TRT, CONSTANT)
    cluster = worlds.settled(upgraded=True, spec=replace(SPEC, engine=EngineSettings(TRT, CONSTANT)))
    monkeypatch.setitem(DEFAULT_VERSIONS, TRT, TUNED)
    cluster.edit(engine=EngineSettings(TRT, TUNED))
    return cluster


def template_of(cluster: Cluster) -> str:
    return str(cluster.children["Deployment", "demo"]["spec"]["template"])


def test_another_default_release_replaces_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = upgraded(monkeypatch)
    made = cluster.templates
    for _ in range(3):
        cluster.tick()
    assert cluster.templates == made
    assert [one["reason"] for one in cluster.status["warnings"]].count("UpgradeWaits") == 1


def test_what_only_the_operator_reads_replaces_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = upgraded(monkeypatch)
    made = cluster.templates
    cluster.edit(accelerator=replace(cluster.spec.accelerator, hourly_cost=3.0))
    cluster.tick()
    assert cluster.templates == made


@pytest.mark.parametrize(
    "edit",
    [
        {"adopt": "today"},
        {"engine": EngineSettings(TRT, TUNED, args=("--log_level=info",))},
        {"engine": EngineSettings(TRT, TUNED, version_named=True)},
        {"speculation": replace(SPEC.speculation, max_speculative_tokens=3)},
    ],
    ids=["adopt", "flag", "release", "drafts"],
)
def test_who_asks_for_other_pods_gets_the_new_release(monkeypatch: pytest.MonkeyPatch, edit: dict[str, Any]) -> None:
    cluster = upgraded(monkeypatch)
    cluster.tick()
    cluster.edit(**edit)
    cluster.tick()
    assert f"release:{TUNED}" in template_of(cluster)
    cluster.roll()
    made = cluster.templates
    for _ in range(3):
        cluster.tick()
    assert cluster.templates == made
