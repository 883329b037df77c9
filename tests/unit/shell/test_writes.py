"""Carrying out actions: what is written, what a refusal becomes, and that nobody else's object is touched."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.shell.fakeapi import Call, FakeApi, FaultError, eventually
from tests.unit.shell.scene import KEY, applying, manifest, owner, pod

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, ApplyChild, DeleteChild, PokePod, Truth
from speculative_operator.domain.reasons import Reason
from speculative_operator.shell import errors
from speculative_operator.shell.cache import Cache, Snapshot
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.ledger import MOST_REPAIRS, PATIENCE, Ledger
from speculative_operator.shell.resources import (
    CHILD_BY_KIND,
    CLAIM,
    DEPLOYMENT,
    INFERENCE_SERVICE,
    OWNER,
    POD,
    SERVING_RUNTIME,
)
from speculative_operator.shell.telemetry import Telemetry
from speculative_operator.shell.writes import FORBIDDEN_PAUSE, FOREIGN_PAUSE, Report, Writer

SERVICE = CHILD_BY_KIND["Service"]


class Rig:
    """A writer whose object is stored and cached."""

    def __init__(self, api: FakeApi, kube: Kube, telemetry: Telemetry) -> None:
        self.api = api
        self.cache = Cache()
        self.ledger = Ledger()
        self.leading = True
        self.missing = 0
        self.writer = Writer(kube, self.cache, telemetry, lambda: self.leading, self._miss)

    def _miss(self) -> None:
        self.missing += 1

    async def begin(self) -> dict[str, Any]:
        stored = await self.api.put(OWNER, owner())
        self.cache.put(stored)
        return stored

    @property
    def snapshot(self) -> Snapshot:
        found = self.cache.snapshot(KEY)
        assert found is not None
        return found

    async def do(self, *actions: Action, now: float = 1000.0) -> Report:
        return await self.writer.carry_out(KEY, self.snapshot, actions, self.ledger, now)


@pytest.fixture
def rig(api: FakeApi, kube: Kube, telemetry: Telemetry) -> Rig:
    return Rig(api, kube, telemetry)


def named(of: dict[str, Any], name: str) -> ApplyChild:
    """Another child of the same kind."""
    made = applying(of).manifest
    return ApplyChild({**made, "metadata": {**made["metadata"], "name": name}}, Reason.CREATED, "missing")


def with_image(of: dict[str, Any]) -> ApplyChild:
    """A Deployment whose pods have their model by an image volume."""
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "image-0", "image": {"reference": "ghcr.io/team/model:v1"}}]
    return applying(of, "Deployment", template={"spec": {"volumes": volumes}})


async def test_no_pods_are_made_where_the_api_server_drops_their_image_volumes(rig: Rig) -> None:
    """It says nothing: a Deployment of Kubernetes 1.34 is stored without them."""
    of = await rig.begin()
    rig.api.drops_images = True
    report = await rig.do(with_image(of), applying(of))
    assert report.refused
    assert rig.api.find("Deployment") == []
    assert len(rig.api.find("Service")) == 1
    (problem,) = rig.ledger.conditions()
    assert problem.about is not None
    assert problem.message.startswith(" ".join(problem.about))
    assert (problem.reason, problem.status) == (Reason.UNSUPPORTED_SOURCE, Truth.FALSE)
    for remedy in ("enable the feature gate", "upgrade Kubernetes or KServe", "hf://, s3:// or pvc://"):
        assert remedy in problem.message
    calls = len(rig.api.calls)
    await rig.do(with_image(of), now=1000.0 + FORBIDDEN_PAUSE / 2)
    assert len(rig.api.calls) == calls, "not asked again at once"
    rig.api.drops_images = False
    assert (await rig.do(with_image(of), now=1000.0 + FORBIDDEN_PAUSE)).acted == 1
    assert len(rig.api.find("Deployment")) == 1
    assert rig.ledger.conditions() == ()


async def test_what_was_refused_of_an_earlier_spec_is_not_told_while_another_is_on_its_way(rig: Rig) -> None:
    """As while a Job pulls into a claim what no image volume may bring: nothing of the Deployment is to be done yet."""
    of = await rig.begin()
    rig.api.drops_images = True
    await rig.do(with_image(of))
    await rig.do(with_image(of), applying(of))
    assert rig.ledger.conditions() != (), "it is told as long as it is wanted"
    rig.cache.put(await rig.api.put(OWNER, owner(generation=2)))
    assert (await rig.do(with_image(of))).refused
    assert rig.ledger.conditions() != (), "still wanted, and refused again"
    rig.cache.put(await rig.api.put(OWNER, owner(generation=3)))
    assert await rig.do() == Report(refused=True)
    assert rig.ledger.conditions() == ()
    assert await rig.do() == Report()


async def test_a_trial_that_fails_keeps_nobody_from_the_apply(rig: Rig) -> None:
    """As where a webhook knows no trials."""
    of = await rig.begin()
    rig.api.failures.append(lambda call: FaultError(400, "no dry run") if call.query.get("dryRun") else None)
    assert (await rig.do(with_image(of))).acted == 1


async def test_without_image_volumes_nothing_is_tried(rig: Rig) -> None:
    of = await rig.begin()
    await rig.do(applying(of, "Deployment", template={"spec": {"volumes": [{"name": "tmp", "emptyDir": {}}]}}))
    assert [call.query.get("dryRun") for call in rig.api.calls if call.method == "PATCH"] == [None]


async def test_children_are_created_and_at_once_in_the_cache(rig: Rig) -> None:
    of = await rig.begin()
    report = await rig.do(applying(of), applying(of, "Deployment"))
    assert report == Report(acted=2)
    assert set(rig.snapshot.children) == {("Service", "gemma"), ("Deployment", "gemma")}
    assert set(rig.ledger.made) == set(rig.snapshot.children)


async def test_a_change_names_the_uid_it_saw(rig: Rig) -> None:
    of = await rig.begin()
    await rig.do(applying(of, port=1))
    uid = rig.snapshot.children["Service", "gemma"]["metadata"]["uid"]
    await rig.do(applying(of, port=2))
    assert rig.api.writes("services")[-1].body["metadata"]["uid"] == uid
    assert rig.api.find("Service")[0]["spec"] == {"port": 2}


async def test_an_object_of_somebody_else_is_left_alone_and_shown_to_the_next_tick(rig: Rig) -> None:
    of = await rig.begin()
    theirs = await rig.api.put(
        SERVICE, {"kind": "Service", "metadata": {"name": "gemma", "namespace": "ns"}, "spec": {"port": 5}}
    )
    report = await rig.do(applying(of))
    assert report == Report(again=True)
    assert rig.api.find("Service") == [theirs]
    strangers = rig.ledger.strangers(1000.0)
    assert strangers["Service", "gemma"]["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert "spec" not in strangers["Service", "gemma"], "what it says is nobody's business, however long it is"
    assert rig.ledger.strangers(1000.0 + FOREIGN_PAUSE) == {}, "nothing watches it: it is looked for again"


async def test_a_child_that_lost_its_labels_is_recognised_as_ours(rig: Rig) -> None:
    of = await rig.begin()
    stripped = manifest(of)
    stripped["metadata"]["labels"] = {}
    await rig.api.put(SERVICE, stripped)
    assert await rig.do(applying(of)) == Report(again=True)
    assert await rig.do(applying(of)) == Report(acted=1)
    assert rig.api.find("Service")[0]["metadata"]["labels"][names.LABEL_MANAGED_BY] == names.OPERATOR


async def test_a_child_deleted_behind_our_back_is_made_anew(rig: Rig) -> None:
    of = await rig.begin()
    await rig.do(applying(of))
    await rig.api.drop(SERVICE, "gemma")
    assert await rig.do(applying(of, port=2)) == Report(again=True)
    assert rig.snapshot.children == {}
    assert await rig.do(applying(of, port=2)) == Report(acted=1)


def claiming() -> ApplyChild:
    labels = {names.LABEL_MANAGED_BY: names.OPERATOR}
    meta = {"name": "weights", "namespace": "ns", "labels": labels}
    body = {"apiVersion": "v1", "kind": CLAIM.kind, "metadata": meta, "spec": {}}
    return ApplyChild(body, Reason.CREATED, "missing")


async def test_a_claim_that_another_object_made_meanwhile_is_taken_as_made(rig: Rig) -> None:
    await rig.begin()
    assert await rig.do(claiming()) == Report(acted=1)
    assert set(rig.snapshot.claims) == {"weights"}
    assert "ownerReferences" not in rig.api.find(CLAIM.kind)[0]["metadata"]
    late = replace(rig.snapshot, claims={})
    report = await rig.writer.carry_out(KEY, late, [claiming()], rig.ledger, 1000.0)
    assert report == Report(again=True)
    assert (set(rig.snapshot.claims), rig.ledger.foreign) == ({"weights"}, {})


async def test_a_refused_manifest_is_a_problem_and_not_sent_again_until_something_changes(rig: Rig) -> None:
    of = await rig.begin()
    rig.api.failures.append(lambda call: FaultError(422, "spec.x: Invalid value", "Invalid") if call.write else None)
    assert await rig.do(applying(of, "Deployment", x=1)) == Report(refused=True)
    condition = rig.ledger.conditions()[0]
    assert condition.about is not None
    assert condition.message.startswith(f"{' '.join(condition.about)}: ")
    assert (condition.reason, condition.status) == (Reason.RENDER_INVALID, Truth.FALSE)
    assert condition.message == "Deployment gemma: spec.x: Invalid value"
    for later in (1.0, 1e6):
        assert await rig.do(applying(of, "Deployment", x=1), now=1000.0 + later) == Report()
    assert len(rig.api.writes()) == 1
    rig.api.failures.clear()
    assert await rig.do(applying(of, "Deployment", x=2)) == Report(acted=1, refused=True)
    assert rig.ledger.conditions() == ()


async def test_a_new_generation_tries_a_refused_manifest_again(rig: Rig) -> None:
    of = await rig.begin()
    rig.api.failures.append(lambda call: FaultError(422) if call.write else None)
    await rig.do(applying(of))
    rig.api.failures.clear()
    rig.cache.put(await rig.api.put(OWNER, owner(generation=2)))
    assert (await rig.do(applying(of))).acted == 1


async def test_one_refused_child_does_not_hold_up_the_others(rig: Rig) -> None:
    of = await rig.begin()

    def only_services(call: Call) -> FaultError | None:
        return FaultError(422) if call.plural == "services" else None

    rig.api.failures.append(only_services)
    assert await rig.do(applying(of), applying(of, "Deployment")) == Report(acted=1, refused=True)
    assert rig.api.find("Deployment")


async def test_a_missing_permission_is_told_and_tried_again_now_and_then(rig: Rig) -> None:
    of = await rig.begin()
    words = 'services "gemma" is forbidden: User "x" cannot patch resource "services" in API group ""'
    rig.api.failures.append(lambda call: FaultError(403, words, "Forbidden") if call.write else None)
    assert await rig.do(applying(of)) == Report(refused=True)
    condition = rig.ledger.conditions()[0]
    assert condition.reason is Reason.FORBIDDEN
    assert 'cannot patch resource "services"' in condition.message
    assert await rig.do(applying(of), now=1000.0 + FORBIDDEN_PAUSE - 1) == Report()
    rig.api.failures.clear()
    assert await rig.do(applying(of), now=1000.0 + FORBIDDEN_PAUSE) == Report(acted=1, refused=True)
    assert rig.ledger.conditions() == ()


async def test_a_terminating_namespace_ends_the_visit(rig: Rig) -> None:
    of = await rig.begin()
    words = 'unable to create new content in namespace "ns" because it is being terminated'
    rig.api.failures.append(lambda call: FaultError(403, words, "Forbidden") if call.write else None)
    with pytest.raises(errors.NamespaceTerminatingError):
        await rig.do(applying(of), applying(of, "Deployment"))
    assert rig.ledger.problems == {}


async def test_the_longest_asked_for_patience_wins(rig: Rig) -> None:
    of = await rig.begin()
    waits = {"services": "3", "deployments": "9"}
    rig.api.failures.append(
        lambda call: FaultError(429, headers={"Retry-After": waits[call.plural]}) if call.plural in waits else None
    )
    with pytest.raises(errors.ThrottledError) as caught:
        await rig.do(applying(of), applying(of, "Deployment"))
    assert caught.value.retry_after == 9.0


async def test_a_missing_optional_kind_is_looked_for_again(rig: Rig) -> None:
    of = await rig.begin()
    assert await rig.do(applying(of, "PodMonitor")) == Report()
    assert rig.missing == 1


async def test_a_child_that_is_changed_back_again_and_again_is_applied_less_often(rig: Rig) -> None:
    of = await rig.begin()
    now, sent = 1000.0, 0
    for _ in range(100):
        sent += (await rig.do(applying(of, port=1), now=now)).acted
        now += 2.0
    assert PATIENCE < sent <= PATIENCE + 6, "200 s: 5, 10, 20, 40, 80 s apart"
    assert (await rig.do(applying(of, port=1), now=now - 3600.0)).acted == 1, "the clock was set back"
    assert (await rig.do(applying(of, port=2), now=now)).acted == 1, "another manifest goes at once"


async def test_deleting_names_the_uid_and_takes_a_missing_child_as_done(rig: Rig) -> None:
    of = await rig.begin()
    await rig.do(applying(of))
    uid = rig.snapshot.children["Service", "gemma"]["metadata"]["uid"]
    assert await rig.do(DeleteChild("Service", "gemma", "another", "x")) == Report(again=True)
    assert await rig.do(DeleteChild("Service", "gemma", uid, "x")) == Report(acted=1)
    assert await rig.do(DeleteChild("Service", "gemma", uid, "x")) == Report()
    assert rig.api.find("Service") == []


async def test_pods_are_poked_after_the_children_and_only_the_very_pod(rig: Rig) -> None:
    of = await rig.begin()
    rig.cache.put(await rig.api.put(POD, pod()))
    await rig.do(PokePod("gemma-1", 7), applying(of, "ConfigMap"), PokePod("unknown", 7))
    assert [call.plural for call in rig.api.writes()] == ["configmaps", "pods"]
    stored = rig.api.find("Pod")[0]
    assert stored["metadata"]["annotations"] == {names.ANNOTATION_POKE: "7"}
    await rig.api.drop(POD, "gemma-1")
    assert await rig.do(PokePod("gemma-1", 8)) == Report()


async def test_pods_are_not_poked_when_the_table_did_not_arrive(rig: Rig) -> None:
    of = await rig.begin()
    rig.cache.put(await rig.api.put(POD, pod()))
    rig.api.failures.append(lambda call: FaultError(503) if call.plural == "configmaps" else None)
    with pytest.raises(errors.UnavailableError):
        await rig.do(PokePod("gemma-1", 7), applying(of, "ConfigMap"))
    assert not rig.api.writes("pods")


@pytest.mark.parametrize("what", ["changed", "paused", "not leading"])
async def test_a_write_that_waits_for_its_slot_is_not_sent_when_its_reasons_are_gone(
    rig: Rig, kube: Kube, what: str
) -> None:
    """Slots are few where many objects change, and an API server that hangs keeps each for seconds."""
    of = await rig.begin()
    rig.cache.put(await rig.api.put(POD, pod()))
    uids = []
    for name in ("gemma-0", "gemma-1"):
        await rig.do(named(of, name))
        uids.append(rig.snapshot.children["Service", name]["metadata"]["uid"])
    before = len(rig.api.writes())
    answering = threading.Event()
    rig.api.failures.append(lambda _: None if answering.wait(30.0) else FaultError(503))
    actions: list[Action] = [named(of, f"gemma-{number}") for number in (2, 3, 4, 5, 6, 0)]
    actions += [DeleteChild("Service", "gemma-1", uids[1], "x"), PokePod("gemma-1", 7)]
    doing = asyncio.create_task(rig.do(*actions))
    await eventually(lambda: kube._gate.waiting == 3)
    changed = {**of, "metadata": {**of["metadata"], "resourceVersion": "99999"}}
    if what == "not leading":
        rig.leading = False
    else:
        changed["metadata"] |= (
            {"generation": 2} if what == "changed" else {"annotations": {names.ANNOTATION_PAUSED: "true"}}
        )
        rig.cache.put(changed)
    answering.set()
    report = await doing
    assert report.again
    sent = [(call.method, call.name) for call in rig.api.writes()[before:] if call.plural == "services"]
    assert sent == [("PATCH", f"gemma-{number}") for number in range(2, 6)], "those that had their slots already"
    assert bool(rig.api.writes("pods")) is (what != "not leading")


@pytest.mark.parametrize("what", ["gone", "replaced", "changed", "deleting", "paused", "not leading"])
async def test_nothing_is_written_for_an_object_that_is_not_as_the_tick_saw_it(rig: Rig, what: str) -> None:
    of = await rig.begin()
    seen = rig.snapshot
    changed = {**of, "metadata": {**of["metadata"], "resourceVersion": "99999"}}
    if what == "gone":
        rig.cache.remove(of)
    elif what == "not leading":
        rig.leading = False
    else:
        changed["metadata"] |= {
            "replaced": {"uid": "another"},
            "changed": {"generation": 2},
            "deleting": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
            "paused": {"annotations": {names.ANNOTATION_PAUSED: "true"}},
        }[what]
        rig.cache.put(changed)
    report = await rig.writer.carry_out(KEY, seen, [applying(of)], rig.ledger, 1000.0)
    assert report == Report(again=True)
    assert rig.api.writes() == []


async def test_a_deployment_is_written_only_as_it_was_decided_upon(rig: Rig) -> None:
    """An autoscaler may have scaled it, or the leader before this one have written it, since the tick looked."""
    of = await rig.begin()
    await rig.do(applying(of, "Deployment", replicas=1))
    (held,) = rig.api.find("Deployment")
    decided = rig.snapshot
    scaled = await rig.api.put(DEPLOYMENT, {**held, "spec": {**held["spec"], "replicas": 5}})
    report = await rig.writer.carry_out(KEY, decided, [applying(of, "Deployment", replicas=2)], rig.ledger, 1000.0)
    assert report == Report(again=True)
    assert rig.api.find("Deployment")[0]["spec"]["replicas"] == 5
    assert (
        rig.snapshot.children["Deployment", "gemma"]["metadata"]["resourceVersion"]
        == scaled["metadata"]["resourceVersion"]
    )
    assert (await rig.do(applying(of, "Deployment", replicas=2))).acted == 1


@pytest.mark.parametrize(("changed", "both_written"), [("status", True), ("spec", False)])
async def test_both_objects_of_a_rollout_are_written_though_the_status_of_one_changes(
    rig: Rig, changed: str, both_written: bool
) -> None:
    """KServe tells of pods at any moment. Another writer's change of the service itself is looked at again first."""
    of = await rig.begin()
    rig.api.resources += (SERVING_RUNTIME, INFERENCE_SERVICE)
    await rig.do(applying(of, "InferenceService", k=3), applying(of, "ServingRuntime", k=3))
    (held,) = rig.api.find("InferenceService")
    decided = rig.snapshot
    await rig.api.put(INFERENCE_SERVICE, {**held, changed: {**held.get(changed, {}), "of_kserve": 1}})
    both = [applying(of, "InferenceService", k=5), applying(of, "ServingRuntime", k=5)]
    report = await rig.writer.carry_out(KEY, decided, both, rig.ledger, 1000.0)
    assert (report.again, report.acted) == ((False, 2) if both_written else (True, 1))
    assert rig.api.find("InferenceService")[0]["spec"]["k"] == (5 if both_written else 3)


async def test_a_deployment_that_is_changed_back_for_ever_is_left_alone(rig: Rig) -> None:
    of = await rig.begin()
    repair = replace(applying(of, "Deployment", image="ours"), reason=Reason.REPAIRED, why="Deployment gemma: image")
    now, sent = 1000.0, 0
    for _ in range(600):
        sent += (await rig.do(repair, now=now)).acted
        (held,) = rig.api.find("Deployment")
        other = [{"manager": "mesh", "operation": "Update", "time": "2026-11-22T10:00:00Z"}]
        meta = {**held["metadata"], "managedFields": other}
        rig.cache.put(await rig.api.put(DEPLOYMENT, {**held, "metadata": meta, "spec": {"image": "theirs"}}))
        now += 10.0
    assert sent == MOST_REPAIRS
    (told,) = rig.ledger.conditions()
    assert (told.status, told.reason) == (Truth.FALSE, Reason.CHANGED_BACK)
    assert "Deployment gemma: image" in told.message
    assert "mesh (last at 2026-11-22T10:00:00Z)" in told.message
    assert (await rig.do(applying(of, "Deployment", image="new"), now=now)).acted == 1, "an edit goes at once"


async def test_a_runtime_goes_before_the_service_that_names_it(rig: Rig) -> None:
    of = await rig.begin()
    rig.api.resources += (SERVING_RUNTIME, INFERENCE_SERVICE)
    report = await rig.do(applying(of, "InferenceService"), applying(of, "ServingRuntime"), applying(of))
    assert report.acted == 3
    assert [call.plural for call in rig.api.calls if call.write][-1] == "inferenceservices"


@pytest.mark.parametrize("status", [422, 409])
async def test_no_pods_are_made_of_a_runtime_that_was_refused(rig: Rig, status: int) -> None:
    """KServe would make them of the one that is there, which may be somebody else's."""
    of = await rig.begin()
    rig.api.resources += (SERVING_RUNTIME, INFERENCE_SERVICE)
    of_runtimes = SERVING_RUNTIME.plural
    rig.api.failures.append(
        lambda call: FaultError(status, "bad", "Invalid") if call.write and call.plural == of_runtimes else None
    )
    for _ in range(2):
        await rig.do(applying(of, "InferenceService"), applying(of, "ServingRuntime"))
    assert not [call for call in rig.api.calls if call.plural == "inferenceservices"]


async def test_no_workload_is_written_once_a_pod_has_found_a_node(rig: Rig) -> None:
    """What was to make room for it would end a pod without need; another tick decides anew."""
    of = await rig.begin()
    waiting = pod()
    rig.cache.put(await rig.api.put(POD, waiting))
    seen = rig.snapshot
    rig.cache.put(await rig.api.put(POD, {**waiting, "spec": {"nodeName": "node-1"}}))
    report = await rig.writer.carry_out(KEY, seen, [applying(of, DEPLOYMENT.kind)], rig.ledger, 1000.0)
    assert (report, rig.api.find(DEPLOYMENT.kind)) == (Report(again=True), [])
    assert await rig.do(applying(of, DEPLOYMENT.kind)) == Report(acted=1)


CANDIDATE = {**owner(name="gemma-candidate"), "metadata": {"name": "gemma-candidate", "namespace": "ns"}}


async def test_a_candidate_is_created_once_and_deleted_only_as_the_one_it_was(rig: Rig) -> None:
    await rig.begin()
    create = ApplyChild(CANDIDATE, Reason.CANDIDATE_MEASURED, "tiny/head (eagle3)")
    assert (await rig.do(create)).acted == 1
    (stored,) = (one for one in rig.api.find(names.KIND) if one["metadata"]["name"] == "gemma-candidate")
    assert rig.cache.put(stored) == ("ns", "gemma-candidate"), "its watch has news, so it is reconciled"
    assert await rig.do(create) == Report(), "one by its name is there: nothing is changed"
    uid = stored["metadata"]["uid"]
    assert (await rig.do(DeleteChild(names.KIND, "gemma-candidate", "another", "the candidate"))).again
    assert len(rig.api.find(names.KIND)) == 2
    assert (await rig.do(DeleteChild(names.KIND, "gemma-candidate", uid, "the candidate"))).acted == 1
    assert [one["metadata"]["name"] for one in rig.api.find(names.KIND)] == ["gemma"]


async def test_a_candidate_that_may_not_be_created_holds_up_nothing(rig: Rig) -> None:
    of = await rig.begin()
    rig.api.failures.append(lambda call: FaultError(403, "no") if call.method == "POST" else None)
    report = await rig.do(ApplyChild(CANDIDATE, Reason.CANDIDATE_MEASURED, "tiny/head (eagle3)"), applying(of))
    assert (report.acted, report.refused) == (1, False)
    assert rig.ledger.conditions() == ()


async def test_a_replica_that_does_not_lead_creates_no_candidate(rig: Rig) -> None:
    await rig.begin()
    rig.leading = False
    await rig.do(ApplyChild(CANDIDATE, Reason.CANDIDATE_MEASURED, "tiny/head (eagle3)"))
    assert len(rig.api.find(names.KIND)) == 1
