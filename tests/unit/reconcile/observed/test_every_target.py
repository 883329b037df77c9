"""What holds for a Deployment holds for every target, whoever makes its pods and whatever others write beside the
operator. KServe, LWS and webhooks are stand-ins (tests/kserve.py, tests/kserve_llm.py, tests/lws.py)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.observed import test_inference_service as service
from tests.unit.reconcile.observed import test_leader_worker_set as group
from tests.unit.reconcile.observed import test_llm_inference_service as llm
from tests.unit.reconcile.worlds import applies, observed, reasons, restart

from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild, DeleteChild
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import EngineSettings
from speculative_operator.reconcile.pair.arrival import stuck
from speculative_operator.render import Capabilities

BOTH = pytest.mark.parametrize("of", [service, llm], ids=["service", "llm"])
EVERY = pytest.mark.parametrize("of", [service, llm, group], ids=["service", "llm", "group"])


@EVERY
def test_nothing_is_written_beside_webhooks_and_after_a_restart_of_the_operator(of: Any) -> None:
    platform = of.serve()
    platform.forget()
    for _ in range(5):
        assert platform.tick().actions == ()
    assert platform.rollouts == 1


@EVERY
def test_what_others_add_later_stays(of: Any) -> None:
    platform = of.serve()
    of.meddle(platform)
    platform.roll()
    for _ in range(3):
        assert platform.tick().actions == ()
        platform.roll()
    assert platform.condition("Ready")["status"] == "True"


@EVERY
def test_scaling_and_live_tables_replace_no_pod(of: Any) -> None:
    platform = of.serve()
    before = [one["metadata"]["name"] for one in platform.pods]
    platform.edit(replicas=3)
    platform.settle()
    assert [one["metadata"]["name"] for one in platform.pods][:2] == before
    for _ in range(60):
        outcome = platform.tick(observed(platform, batch=200, survival=0.02))
        platform.roll()
        if any(kind == "ConfigMap" for kind, _, _ in applies(outcome)):
            break
    else:
        raise AssertionError("the tuner never changed the table at a load where drafts lose")
    assert (platform.rollouts, len(platform.pods), platform.status["speculation"]["tableVersion"]) == (1, 3, 2)
    assert not [one for one in applies(outcome) if one[0] in ("ServingRuntime", of.OBJECT[0])]


@BOTH
def test_a_pod_that_does_not_start_is_seen_by_what_kserve_calls_its_engine(of: Any) -> None:
    platform = of.serve()
    (one, _) = platform.pods
    waiting = {"waiting": {"reason": "CreateContainerConfigError"}}
    one["status"]["containerStatuses"] = [{"name": of.ENGINE, "ready": False, "restartCount": 0, "state": waiting}]
    pods = platform.snapshot().pods
    assert "does not start (CreateContainerConfigError)" in stuck(pods, {pods[0].pair})


@BOTH
def test_how_long_pods_take_to_start_is_measured_and_replaces_none(of: Any) -> None:
    platform = of.serve()
    for found in platform.pods:
        begun = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        found["spec"] = {"containers": platform.children[of.MADE]["spec"]["template"]["spec"]["containers"]}
        found["status"]["containerStatuses"] = [{"name": of.ENGINE, "ready": True, "state": begun}]
        found["status"]["conditions"] += [
            {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:01:30Z"}
        ]
    for _ in range(3):
        platform.tick()
        platform.roll()
    assert [start["seconds"] for start in platform.status["startup"]["starts"]] == [90, 90]
    assert platform.rollouts == 1


@BOTH
def test_a_table_of_a_rollout_comes_with_its_pods(of: Any) -> None:
    platform = of.serve(spec=restart(of.SERVED))
    for _ in range(200):
        outcome = platform.tick(observed(platform, batch=200, survival=0.2))
        platform.roll()
        if any(kind == of.OBJECT[0] for kind, _, _ in applies(outcome)):
            break
    else:
        raise AssertionError("the tuner never wanted another K")
    version = platform.status["speculation"]["tableVersion"]
    platform.forget()
    platform.settle()
    assert (platform.rollouts, platform.status["speculation"]["tableVersion"]) == (2, version)


@EVERY
def test_pods_of_the_spec_before_are_no_complete_rollout(of: Any) -> None:
    platform = of.serve()
    platform.edit(engine=EngineSettings(args=("--enable-prefix-caching",)))
    platform.tick()
    platform.tick()
    assert platform.condition("Ready")["status"] == "False"
    platform.roll()
    platform.tick()
    assert (platform.rollouts, platform.condition("Ready")["status"]) == (2, "True")


BROKEN = [
    {"type": "RouteReady", "status": "False", "reason": "NoGateway", "message": "none is there"},
    {"type": "Ready", "status": "False"},
]


@BOTH
def test_what_keeps_kserve_from_making_pods_is_told(of: Any) -> None:
    platform = of.Platform()
    platform.tick()
    platform.children[of.OBJECT]["status"] = {"conditions": BROKEN}
    platform.tick()
    assert "RouteReady: NoGateway: none is there" in platform.condition("Ready")["message"]


@BOTH
def test_what_keeps_ready_pods_from_being_reached_is_told(of: Any) -> None:
    platform = of.serve()
    platform.children[of.OBJECT]["status"]["conditions"] = BROKEN
    outcome = platform.tick()
    (warning,) = [one for one in outcome.status["warnings"] if one["reason"] == "InferenceServiceNotReady"]
    assert f"the {of.OBJECT[0]} is not: RouteReady: NoGateway: none is there" in warning["message"]
    assert platform.condition("Ready")["status"] == "True"


@pytest.mark.parametrize(
    ("of", "key"), [(service, service.OBJECT), (service, service.RUNTIME), (llm, llm.OBJECT), (group, group.OBJECT)]
)
def test_an_object_of_somebody_else_by_its_name_is_left_alone(of: Any, key: tuple[str, str]) -> None:
    platform = of.Platform(upgraded=True)  # pods of others have no table
    platform.children[key] = {"kind": key[0], "metadata": {"name": key[1], "uid": "theirs"}, "spec": {}}
    outcome = platform.tick()
    assert not {of.OBJECT[0], "ServingRuntime"} & {kind for kind, _, _ in applies(outcome)}
    assert f"{key[0]} demo exists and has no owner" in platform.condition("Ready")["message"]


@EVERY
def test_the_object_is_never_deleted_nor_is_what_the_platform_made_of_it_written(of: Any) -> None:
    platform = of.serve()
    theirs = {"name": f"{of.MADE[1]}-svc", "uid": "kserves", "labels": names.selector("demo")}
    platform.children["Service", theirs["name"]] = {"kind": "Service", "metadata": theirs}
    for change in ({"replicas": 1}, {"engine": EngineSettings(args=("--x",))}, {"replicas": 3}):
        platform.edit(**change)
        for _ in range(4):
            outcome = platform.tick()
            written = [one.manifest for one in outcome.actions if isinstance(one, ApplyChild)]
            deleted = [one for one in outcome.actions if isinstance(one, DeleteChild)]
            assert not {one["kind"] for one in written} & {"Deployment", "StatefulSet"}
            assert theirs["name"] not in {one["metadata"]["name"] for one in written} | {one.name for one in deleted}
            assert not {one.kind for one in deleted} & {"ServingRuntime", of.OBJECT[0], "Deployment"}
            platform.roll()


@EVERY
def test_a_cluster_without_the_kind_is_told_and_keeps_everything(of: Any) -> None:
    platform = of.serve()
    children, able = deepcopy(platform.children), platform.capabilities
    platform.capabilities = Capabilities()
    outcome = platform.tick()
    assert outcome.actions == ()
    ready = platform.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "UnsupportedTarget")
    assert f"spec.target {of.OBJECT[0]} needs" in ready["message"]
    assert "; install " in ready["message"]
    assert Reason.UNSUPPORTED_TARGET in reasons(outcome)
    assert platform.children == children
    platform.capabilities = able
    platform.settle()
    assert (platform.rollouts, platform.condition("Ready")["status"]) == (1, "True")


@BOTH
def test_arguments_that_look_like_a_go_template_reach_the_engine_as_written(of: Any) -> None:
    odd = '--chat-template={{ "{{" }} {{{x}}} {{`{{`}}'
    platform = of.serve(spec=replace(of.SERVED, engine=EngineSettings(args=(odd,))))
    assert odd in of.args(platform)
    assert platform.tick().actions == ()
