"""Pods that report another engine than the spec, or that do not re-read their table: what is said and what is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.reporting import MINE, NEWER, tell, telling
from tests.unit.reconcile.worlds import NOW, SPEC, Cluster, observed, reasons, remade, settled, template

from speculative_operator.api.status import Status
from speculative_operator.domain import names
from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import EngineSettings, EngineType, Mode, OffPolicy, Speculation
from speculative_operator.engines.base import Notice
from speculative_operator.engines.registry import ENGINES
from speculative_operator.engines.vllm.adapter import ENGINE
from speculative_operator.reconcile.report.engine_report import CERTAIN_SECONDS, acceptance, same_release
from speculative_operator.reconcile.report.events import events
from speculative_operator.reconcile.snapshot import status
from speculative_operator.reconcile.snapshot.writing import should_write


def engine(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.children["Deployment", "demo"]["spec"]["template"]["spec"]["containers"][0]
    return found


def accept(cluster: Cluster, version: str = NEWER) -> None:
    """The user sets the annotation that the warning names, once pods have told the same for long enough."""
    tell(cluster, CERTAIN_SECONDS + 10.0, version=version)
    assert "fallback" not in cluster.status["engine"]
    (warning,) = cluster.status["warnings"]
    assert f"{names.ANNOTATION_ADOPT}={acceptance(version)}`" in warning["message"]
    cluster.edit(adopt=acceptance(version))
    tell(cluster, 10.0, version=version)
    assert cluster.status["engine"]["fallback"] is True


def fallen() -> Cluster:
    """A cluster whose pods were inert for long enough, and were rolled for it."""
    cluster = settled(spec=MINE)
    accept(cluster)
    cluster.tick()
    cluster.roll()
    return cluster


# -- falling back


def test_pods_are_rolled_once_to_a_table_of_their_start() -> None:
    cluster = settled(spec=MINE)
    assert "--scheduler-cls" in engine(cluster)["args"]
    accept(cluster)
    outcome = cluster.tick()
    assert remade(outcome) == [("Deployment", "demo", Reason.ENGINE_VERSION_DIFFERS)]
    assert "--scheduler-cls" not in engine(cluster)["args"]
    assert engine(cluster)["image"] == "quay.io/me/vllm:1"
    assert cluster.status["speculation"]["actuator"] == "Table"
    cluster.settle()
    for _ in range(30):
        cluster.tick(telling(cluster, live=None, version=""))
    assert cluster.templates == 2
    Status.model_validate(cluster.status)


def test_the_table_in_force_and_what_was_learned_stay() -> None:
    cluster = settled(spec=MINE)
    for _ in range(5):
        cluster.tick(observed(cluster))
    before = cluster.status["speculation"]
    accept(cluster)
    cluster.tick()
    after = cluster.status["speculation"]
    assert (after["table"], after["tableVersion"]) == (before["table"], before["tableVersion"])
    assert names.ANNOTATION_TABLE in cluster.children["Deployment", "demo"]["metadata"]["annotations"]


@pytest.mark.parametrize("after", [20.0, CERTAIN_SECONDS, CERTAIN_SECONDS + 10.0])
def test_a_restart_of_the_operator_neither_forgets_nor_repeats_it(after: float) -> None:
    cluster = settled(spec=MINE)
    tell(cluster, after)
    cluster.forget()
    tell(cluster, CERTAIN_SECONDS + 10.0 - after)
    cluster.edit(adopt=acceptance(NEWER))
    tell(cluster, 10.0)
    cluster.forget()
    cluster.tick()
    cluster.roll()
    assert cluster.templates == 2
    cluster.forget()
    cluster.settle()
    assert cluster.templates == 2
    assert cluster.status["speculation"]["actuator"] == "Table"


def test_an_operator_killed_before_it_wrote_status_ends_at_the_same() -> None:
    cluster = settled(spec=MINE)
    tell(cluster, CERTAIN_SECONDS + 10.0)
    cluster.edit(adopt=acceptance(NEWER))
    unsaid = cluster.status
    tell(cluster, 10.0)
    cluster.status = unsaid
    cluster.forget()
    tell(cluster, 10.0)
    cluster.tick()
    cluster.roll()
    cluster.settle()
    assert cluster.templates == 2


def test_nothing_new_is_written_at_rest() -> None:
    cluster = fallen()
    cluster.settle()
    outcome = cluster.look()
    assert (outcome.actions, outcome.events) == ((), ())
    assert not should_write(cluster.status, outcome.status, 0.0, cluster.now + 1e6)


@pytest.mark.parametrize(
    ("version", "image"), [("0.34.1", "quay.io/me/vllm:1"), ("0.32.0", "quay.io/me/vllm:2"), ("0.32.0", "")]
)
def test_a_change_of_the_engine_by_the_user_ends_it(version: str, image: str) -> None:
    cluster = fallen()
    cluster.edit(engine=EngineSettings(version=version, image=image))
    cluster.settle()
    live = version != NEWER
    assert ("fallback" in cluster.status.get("engine", {})) is not live, "naming what runs asks for no other engine"
    assert cluster.status["speculation"]["actuator"] == ("Live" if live else "Table")


def test_naming_the_version_that_runs_replaces_no_pod() -> None:
    """But for the label that says the version."""
    cluster = fallen()
    before = template(cluster.children["Deployment", "demo"])["spec"]
    cluster.edit(engine=replace(MINE.engine, version=NEWER))
    cluster.tick()
    assert template(cluster.children["Deployment", "demo"])["spec"] == before


def test_an_edit_of_something_else_keeps_it() -> None:
    cluster = fallen()
    cluster.edit(replicas=3)
    cluster.settle()
    assert cluster.status["engine"]["fallback"] is True
    assert cluster.status["speculation"]["actuator"] == "Table"


def test_an_image_of_the_pod_template_counts_as_the_users() -> None:
    overridden = replace(SPEC, template={"spec": {"containers": [{"name": "engine", "image": "quay.io/me/vllm:1"}]}})
    cluster = settled(spec=overridden)
    accept(cluster)
    cluster.edit(template={"spec": {"containers": [{"name": "engine", "image": "quay.io/me/vllm:2"}]}})
    cluster.settle()
    assert "fallback" not in cluster.status.get("engine", {})


def test_pods_that_are_inert_on_the_right_release_fall_back_too() -> None:
    cluster = settled(spec=MINE)
    accept(cluster, "0.32.0")
    cluster.tick()
    assert cluster.status["speculation"]["actuator"] == "Table"
    assert [one["reason"] for one in cluster.status["warnings"]] == ["PlugInInert"]


@pytest.mark.parametrize("version", ["0.32.0", NEWER])
def test_what_the_plug_in_lacks_is_named(version: str) -> None:
    """Also where the release is newer than those that were run, and was expected to be live."""
    cluster = settled(spec=replace(MINE, engine=replace(MINE.engine, version=version)))
    lacks = "MissingHook: Scheduler.schedule has other parameters"
    seen = [tell(cluster, 20.0, version=version, inert=lacks), cluster.status["engine"]["inert"]]
    assert seen[1] == lacks
    (warning,) = [one for one in cluster.status["warnings"] if one["reason"] == "PlugInInert"]
    assert lacks in warning["message"]
    assert "K stays as it was at their start" in warning["message"]
    assert cluster.templates == 1
    Status.model_validate(cluster.status)
    tell(cluster, 10.0, version=version, live=True)
    assert "inert" not in cluster.status["engine"]


@pytest.mark.parametrize("version", ["0.1.dev3+gabc", "0.2.0", "nightly"])
def test_a_release_that_the_adapter_refuses_stops_nothing(version: str) -> None:
    cluster = settled(spec=MINE)
    accept(cluster, version)
    cluster.tick()
    cluster.roll()
    cluster.settle()
    assert cluster.status["speculation"]["actuator"] == "Table"
    assert cluster.condition("Ready")["status"] == "True"


# -- not falling back


def test_one_odd_pod_changes_nothing() -> None:
    cluster = settled(spec=MINE)
    for _ in range(30):
        seen = telling(cluster, live=True, version="0.32.0")
        odd, window = sorted(seen.windows.items())[0]
        mixed = {**seen.pods, odd: replace(window, live=False, engine_version=NEWER)}
        assert cluster.tick(replace(seen, pods=mixed)).actions == ()
    assert "fallback" not in cluster.status.get("engine", {})
    assert cluster.templates == 1


@pytest.mark.parametrize(
    "missing",
    [
        Gap(Reason.METRICS_MISSING, "no samples"),
        Gap(Reason.IDLE, "no requests"),
        None,
    ],
)
def test_missing_data_changes_nothing(missing: Gap | None) -> None:
    cluster = settled(spec=MINE)
    for _ in range(30):
        seen = telling(cluster)
        pods = dict(seen.pods)
        last = sorted(pods)[-1]
        if missing is None:
            del pods[last]
        else:
            pods[last] = missing
        cluster.tick(replace(seen, pods=pods))
    cluster.tick(Observation(cluster.now, gap=Gap(Reason.PROMETHEUS_ERROR, "refused")))
    assert "fallback" not in cluster.status.get("engine", {})
    assert cluster.templates == 1


def test_nothing_is_concluded_in_the_middle_of_a_rollout() -> None:
    cluster = settled(spec=MINE)
    cluster.children["Deployment", "demo"]["status"]["updatedReplicas"] = 1
    tell(cluster, 5 * CERTAIN_SECONDS)
    assert "engine" not in cluster.status or "fallback" not in cluster.status["engine"]
    assert cluster.templates == 1


def test_old_pods_do_not_speak_for_a_new_image() -> None:
    cluster = settled(spec=MINE)
    tell(cluster, CERTAIN_SECONDS)
    cluster.edit(engine=replace(MINE.engine, image="quay.io/me/vllm:2"))
    cluster.tick(telling(cluster))
    for _ in range(30):
        cluster.tick(telling(cluster))  # the Deployment's controller has not caught up: old pods are still ready
    assert "fallback" not in cluster.status.get("engine", {})
    cluster.roll()
    tell(cluster, 5 * CERTAIN_SECONDS, version="0.32.0", live=True)
    assert cluster.templates == 2
    assert cluster.status["speculation"]["actuator"] == "Live"


def test_live_pods_of_another_build_stay_live() -> None:
    cluster = settled(spec=MINE)
    assert tell(cluster, 5 * CERTAIN_SECONDS, version="0.32.1", live=True) == []
    assert cluster.status["engine"]["live"] is True
    assert [one["reason"] for one in cluster.status["warnings"]] == ["EngineVersionDiffers"]


def test_without_telemetry_nothing_is_told_of_the_engine() -> None:
    cluster = settled(spec=MINE)
    tell(cluster, 5 * CERTAIN_SECONDS, live=None, version="")
    assert "engine" not in cluster.status
    assert "warnings" not in cluster.status


def test_removal_and_return_keep_what_was_found() -> None:
    cluster = settled(spec=replace(MINE, speculation=Speculation(off_policy=OffPolicy.REMOVE)))
    accept(cluster)
    cluster.tick()
    cluster.roll()
    cluster.edit(speculation=Speculation(mode=Mode.DISABLED))
    cluster.settle()
    cluster.edit(speculation=Speculation())
    cluster.settle()
    assert cluster.status["speculation"]["actuator"] == "Table"


# -- what is said


def test_what_pods_report_is_shown() -> None:
    cluster = settled(spec=MINE)
    cluster.tick(telling(cluster, version="0.32.0+cu129", live=True, table=1))
    block = cluster.status["engine"]
    assert (block["version"], block["live"], block["tableVersionInPods"]) == ("0.32.0+cu129", True, 1)
    assert block["asked"] == "vLLM 0.32.0 quay.io/me/vllm:1"
    assert "warnings" not in cluster.status, "a build of the release that the spec names"
    Status.model_validate(cluster.status)


def test_a_difference_is_told_once_and_cleared_when_gone() -> None:
    cluster = settled(spec=MINE)
    outcome = cluster.tick(telling(cluster, version="0.32.1", live=True, table=1))
    (warning,) = cluster.status["warnings"]
    assert "0.32.1" in warning["message"]
    assert "0.32.0" in warning["message"]
    assert reasons(outcome).count(Reason.ENGINE_VERSION_DIFFERS) == 1
    assert next(one for one in outcome.events if one.reason is Reason.ENGINE_VERSION_DIFFERS).type == "Warning"
    assert reasons(cluster.tick(telling(cluster, version="0.32.1", live=True, table=1))) == []
    cluster.edit(engine=replace(MINE.engine, version="0.32.1"))
    cluster.settle()
    cluster.tick(telling(cluster, version="0.32.1", live=True, table=1))
    assert "warnings" not in cluster.status


def test_the_lowest_acknowledged_version_is_shown_and_writes_little() -> None:
    cluster = settled(spec=MINE)
    cluster.tick(telling(cluster, version="0.32.0", live=True, table=3))
    seen = telling(cluster, version="0.32.0", live=True, table=4)
    first, window = sorted(seen.windows.items())[0]
    outcome = cluster.look(replace(seen, pods={**seen.pods, first: replace(window, table_version=None)}))
    assert outcome.status["engine"]["tableVersionInPods"] == 4
    old = {**cluster.status, "speculation": {}, "memory": {}}
    new = {**old, "engine": outcome.status["engine"]}
    assert not should_write(old, new, NOW, NOW + 5.0)
    assert should_write(old, new, NOW, NOW + 31.0)
    assert should_write(old, new, NOW, NOW - 3600.0), "the clock was set back: figures need not wait until it caught up"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("0.32.0", "0.32.0+cu129", True),
        ("0.32.0", "0.32.0rc1", True),
        ("0.32.0", "0.32", True),
        ("0.32.0", "0.32.1", False),
        ("0.32.0", "nightly", False),
        ("nightly", "nightly", True),
    ],
)
def test_builds_of_one_release(one: str, other: str, same: bool) -> None:
    assert same_release(one, other) is same


# -- warnings


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.LOSSY, "Warning"),
        (Reason.ENGINE_UNMAINTAINED, "Warning"),
        (Reason.ENGINE_VERSION_DIFFERS, "Warning"),
        (Reason.LIVE_UNPROVEN, "Normal"),
        (Reason.PLUG_IN_INERT, "Warning"),
    ],
)
def test_each_new_warning_is_one_event(reason: Reason, kind: str) -> None:
    old = status.Status(warnings=((reason.value, "known"),))
    new = status.Status(warnings=(*old.warnings, (reason.value, "new")))
    assert [(one.type, one.reason, one.message) for one in events(old, new, ())] == [(kind, reason, "new")]
    assert events(new, new, ()) == ()
    assert events(new, status.Status(), ()) == ()


def test_what_the_adapter_has_to_say_is_in_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Notice] = [Notice(Reason.LOSSY, "acceptance is relaxed"), Notice(Reason.ENGINE_UNMAINTAINED, "old")]
    speaking = replace(ENGINE, notices=lambda spec: tuple(said))
    monkeypatch.setitem(ENGINES, EngineType.VLLM, speaking)
    cluster = Cluster(spec=MINE)
    outcome = cluster.tick()
    assert [one["reason"] for one in cluster.status["warnings"]] == ["LossyAcceptance", "EngineUnmaintained"]
    assert reasons(outcome).count(Reason.LOSSY) == 1
    assert Reason.LOSSY not in reasons(cluster.tick())
    said.pop(0)
    cluster.tick()
    assert [one["reason"] for one in cluster.status["warnings"]] == ["EngineUnmaintained"]
    cluster.edit(engine=replace(MINE.engine, args=("--port=1",)))
    cluster.tick()
    assert cluster.condition("Ready")["reason"] == "SpecInvalid"
    assert "warnings" in cluster.status, "pods run on as the earlier spec had them"
