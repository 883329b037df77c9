"""What pods report of their engine: it is shown, a difference is a warning, and no pod is replaced for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.reconcile.reporting import MINE, NEWER, tell, telling
from tests.unit.reconcile.worlds import NOW, Cluster, reasons, settled

from speculative_operator.api.status import Status
from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import EngineType
from speculative_operator.engines.base import Notice
from speculative_operator.engines.registry import ENGINES
from speculative_operator.engines.vllm.adapter import ENGINE
from speculative_operator.reconcile.report.engine_report import CERTAIN_SECONDS, same_release
from speculative_operator.reconcile.report.events import events
from speculative_operator.reconcile.snapshot import status
from speculative_operator.reconcile.snapshot.writing import should_write

# -- what is believed


def mixed(seen: Observation) -> Observation:
    odd, window = sorted(seen.windows.items())[0]
    return replace(seen, pods={**seen.pods, odd: replace(window, live=True, engine_version="0.32.0")})


def idle(seen: Observation) -> Observation:
    return replace(seen, pods={**seen.pods, sorted(seen.pods)[-1]: Gap(Reason.IDLE, "no requests")})


def short(seen: Observation) -> Observation:
    return replace(seen, pods={pod: one for pod, one in seen.pods.items() if pod != sorted(seen.pods)[-1]})


@pytest.mark.parametrize("change", [mixed, idle, short])
def test_only_what_every_ready_pod_reports_is_told(change: Callable[[Observation], Observation]) -> None:
    cluster = settled(spec=MINE)
    for _ in range(3):
        cluster.tick(change(telling(cluster)))
    assert "version" not in cluster.status.get("engine", {})
    assert "warnings" not in cluster.status


def test_nothing_is_concluded_in_the_middle_of_a_rollout() -> None:
    cluster = settled(spec=MINE)
    cluster.children["Deployment", "demo"]["status"]["updatedReplicas"] = 1
    tell(cluster, 5 * CERTAIN_SECONDS)
    assert "engine" not in cluster.status


def test_old_pods_do_not_speak_for_a_new_image() -> None:
    cluster = settled(spec=MINE)
    tell(cluster, CERTAIN_SECONDS)
    assert cluster.status["engine"]["version"] == NEWER
    cluster.edit(engine=replace(MINE.engine, image="quay.io/me/vllm:2"))
    cluster.tick(telling(cluster))
    assert "version" not in cluster.status.get("engine", {})
    assert "warnings" not in cluster.status


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
    said: list[Notice] = [Notice(Reason.LOSSY, "acceptance is relaxed"), Notice(Reason.PLUG_IN_INERT, "old")]
    speaking = replace(ENGINE, notices=lambda spec: tuple(said))
    monkeypatch.setitem(ENGINES, EngineType.VLLM, speaking)
    cluster = Cluster(spec=MINE)
    outcome = cluster.tick()
    assert [one["reason"] for one in cluster.status["warnings"]] == ["LossyAcceptance", "PlugInInert"]
    assert reasons(outcome).count(Reason.LOSSY) == 1
    assert Reason.LOSSY not in reasons(cluster.tick())
    said.pop(0)
    cluster.tick()
    assert [one["reason"] for one in cluster.status["warnings"]] == ["PlugInInert"]
    cluster.edit(engine=replace(MINE.engine, args=("--port=1",)))
    cluster.tick()
    assert cluster.condition("Ready")["reason"] == "SpecInvalid"
    assert "warnings" in cluster.status, "pods run on as the earlier spec had them"
