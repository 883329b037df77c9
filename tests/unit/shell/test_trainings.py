"""Looks at trainings: what is read and written, and what is left alone."""

from __future__ import annotations

import asyncio
import copy
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.shell.fakeapi import FakeApi, FaultError
from tests.unit.training.seen import BODY, DAY, DONE, FACTS, NOW, condition, serving

from speculative_operator.domain import names
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.jobs import encode
from speculative_operator.domain.reasons import Reason
from speculative_operator.settings import Settings
from speculative_operator.shell import trainings as module
from speculative_operator.shell.errors import ForbiddenError, NotFoundError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import JOB, OWNER, POD, TRAINING
from speculative_operator.shell.telemetry import Telemetry
from speculative_operator.shell.trainings import Trainings

SETTINGS = Settings(job_image="operator:1", trainer_image="trainer:1")


@pytest.fixture
def trainings(api: FakeApi, kube: Kube, telemetry: Telemetry) -> Trainings:
    api.resources += (TRAINING,)
    return Trainings(SETTINGS, kube, telemetry, lambda: True, lambda: False)


async def train(api: FakeApi, **spec: Any) -> dict[str, Any]:
    body = copy.deepcopy(BODY)
    body["metadata"]["namespace"] = "ns"
    body["spec"] |= spec
    return await api.put(TRAINING, body)


def status(api: FakeApi) -> dict[str, Any]:
    (found,) = api.find(names.TRAINING_KIND)
    return dict(found.get("status") or {})


async def end(api: FakeApi, name: str, *, failed: bool = False, **results: dict[str, Any]) -> None:
    """Play the Job controller and the kubelet: one pod, whose containers left `results`."""
    job = api.objects[("jobs", "ns", name)]
    kind, code = ("Failed", 3) if failed else ("Complete", 0)
    ended = {"type": kind, "status": "True", "lastTransitionTime": "2026-11-28T10:00:00Z", "reason": "PodFailurePolicy"}
    await api.put(JOB, {**job, "status": {"startTime": "2026-11-28T09:00:00Z", "conditions": [ended]}})
    await put_pod(api, name, job["metadata"]["uid"], {
        "phase": "Failed" if failed else "Succeeded", "startTime": "2026-11-28T09:00:05Z",
        "initContainerStatuses": [
            {"name": one, "state": {"terminated": {"exitCode": code, "reason": "Error", "message": encode(result)}}}
            for one, result in results.items()
        ],
    })  # fmt: skip


async def put_pod(api: FakeApi, job: str, uid: str, told: dict[str, Any], name: str = "") -> None:
    owner = {"kind": "Job", "name": job, "uid": uid, "controller": True}
    labels = {"batch.kubernetes.io/job-name": job}
    meta = {"name": name or f"{job}-pod", "namespace": "ns", "labels": labels, "ownerReferences": [owner]}
    await api.put(POD, {"metadata": {**meta, "creationTimestamp": "2026-11-28T09:00:00Z"}, "status": told})


async def test_the_whole_way_in_two_jobs_and_its_events(api: FakeApi, trainings: Trainings) -> None:
    await train(api)
    await trainings.look()
    assert [job["metadata"]["name"] for job in api.find(JOB.kind)] == ["support-look"]
    await end(api, "support-look", inspect=FACTS, look={"rows": 40}, fetch=FACTS)
    await trainings.look()
    assert len(api.find(JOB.kind)) == 1, "what was found is stored before a Job is made of it"
    await trainings.look()
    job = api.objects[("jobs", "ns", "support-train")]
    await put_pod(api, "support-train", job["metadata"]["uid"], {
        "phase": "Running", "initContainerStatuses": [
            {"name": "states", "state": {"running": {}}}, {"name": "train", "state": {"running": {}}},
        ],
    })  # fmt: skip
    api.logs["support-train-pod"] = "Training epoch 1/10 started\ntrain/loss=6.8, lr=0.1, epoch=0, global_step=50"
    await trainings.look()
    assert (status(api)["stage"], status(api)["step"], status(api)["loss"]) == ("Training", 50, "6.800")
    await end(api, "support-train", check={"acceptanceLength": 2.1, "dataDigest": "sha256:2"})
    await trainings.look()
    assert condition(status(api)) == ("True", Reason.TRAINED)
    assert status(api)["cost"] == "9.99"
    reasons = [event["reason"] for event in api.find("Event")]
    assert sorted(reasons) == ["Preparing", "Trained", "Training"]
    before = len(api.calls)
    await trainings.look()
    assert [call.method for call in api.calls[before:]] == ["GET"], "an ended training costs its share of the list"


async def test_acceptance_that_fell_for_a_week_is_told_once_and_starts_nothing(
    api: FakeApi, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.resources += (OWNER,)
    body = await train(api)
    await api.put(TRAINING, {**body, "status": DONE})
    for days in (0.0, 6.9, 7.0, 7.1):
        now = NOW + days * DAY
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: now, monotonic=lambda: now))  # noqa: B023
        served = serving("1.60", "20.0%", observedAt=timestamp(now))
        await api.put(OWNER, {**served, "metadata": {"name": "demo", "namespace": "ns"}})
        before = len(api.writes())
        await trainings.look()
        await trainings.look()
        assert len(api.calls) > before
    assert [(one["type"], one["status"]) for one in status(api)["conditions"]] == [
        ("Trained", "True"), ("AcceptanceHolds", "False"),
    ]  # fmt: skip
    assert status(api)["retrainWith"].startswith("kubectl get spectrain support -n ns ")
    assert [(one["type"], one["reason"]) for one in api.find("Event")] == [("Warning", "AcceptanceFell")]
    assert {call.plural for call in api.writes()} == {names.TRAINING_PLURAL, "events"}


async def test_what_serves_is_listed_seldom_and_only_for_trainings_that_are_done(
    api: FakeApi, trainings: Trainings
) -> None:
    api.resources += (OWNER,)
    body = await train(api)
    for stage, lists in (("Failed", 0), ("Done", 1)):
        await api.put(TRAINING, {**body, "status": {**DONE, "stage": stage}})
        for _ in range(3):
            await trainings.look()
        assert sum(call.plural == names.PLURAL for call in api.calls) == lists
    assert api.writes() == []


async def test_what_serves_may_not_be_listed(api: FakeApi, trainings: Trainings) -> None:
    body = await train(api)
    await api.put(TRAINING, {**body, "status": DONE})
    api.failures.append(lambda call: FaultError(403, "no", "Forbidden") if call.plural == names.PLURAL else None)
    other = copy.deepcopy(BODY)
    other["metadata"] |= {"name": "another", "namespace": "ns", "creationTimestamp": "2026-11-28T12:00:00Z"}
    await api.put(TRAINING, other)
    await trainings.look()
    assert [job["metadata"]["name"] for job in api.find(JOB.kind)] == ["another-look"]
    assert DONE in [one.get("status") for one in api.find(names.TRAINING_KIND)]


async def test_at_rest_nothing_is_written(api: FakeApi, trainings: Trainings) -> None:
    await train(api)
    await trainings.look()
    writes = len(api.writes())
    for _ in range(5):
        await trainings.look()
    assert len(api.writes()) == writes


async def test_a_refusal_before_an_accelerator_is_taken(api: FakeApi, trainings: Trainings) -> None:
    await train(api)
    await trainings.look()
    error = {"reason": "BadData", "message": "support.jsonl: line 7 is no JSON object", "remedy": "write one"}
    await end(api, "support-look", failed=True, look={"error": error})
    await trainings.look()
    assert condition(status(api)) == ("False", Reason.BAD_DATA)
    assert status(api)["conditions"][0]["message"] == "support.jsonl: line 7 is no JSON object; write one"
    assert len(api.find(JOB.kind)) == 1
    assert api.find("Event")[-1]["type"] == "Warning"


async def test_jobs_and_pods_of_others_are_neither_touched_nor_believed(api: FakeApi, trainings: Trainings) -> None:
    await train(api)
    theirs = await api.put(JOB, {"metadata": {"name": "support-look", "namespace": "ns"}, "spec": {}})
    for _ in range(3):
        await trainings.look()
    assert condition(status(api)) == ("False", Reason.NAME_CONFLICT)
    assert api.find(JOB.kind) == [theirs]
    await api.drop(JOB, "support-look")
    trainings._looked.clear()  # as a minute later
    await trainings.look()
    await put_pod(api, "support-look", "not-the-job", {"phase": "Failed", "reason": "OOMKilled"}, "stranger")
    job = api.objects[("jobs", "ns", "support-look")]
    failed = {
        "type": "Failed",
        "status": "True",
        "lastTransitionTime": "2000-01-01T00:00:00Z",
        "reason": "BackoffLimitExceeded",
    }
    await api.put(JOB, {**job, "status": {"conditions": [failed]}})
    await trainings.look()
    assert condition(status(api)) == ("False", Reason.TRAINING_FAILED), "not OutOfMemory, as the stranger has it"


@pytest.mark.parametrize("spec", [{}, {"output": "pvc://models/other", "copyTo": "s3://bucket/heads/"}])
async def test_two_never_write_to_one_folder_at_a_time(
    spec: dict[str, Any], api: FakeApi, trainings: Trainings
) -> None:
    await train(api, copyTo="s3://bucket/heads")
    other = copy.deepcopy(BODY)
    other["spec"] |= spec
    other["metadata"] |= {"name": "another", "namespace": "ns", "creationTimestamp": "2026-11-28T12:00:00Z"}
    await api.put(TRAINING, other)
    await trainings.look()
    assert [job["metadata"]["name"] for job in api.find(JOB.kind)] == ["support-look"]
    await end(api, "support-look", failed=True, look={"error": {"reason": "BadData"}})
    await trainings.look()
    trainings._looked.clear()  # as a minute later
    await trainings.look()
    assert "another-look" in {job["metadata"]["name"] for job in api.find(JOB.kind)}


async def test_a_namespace_that_may_not_be_listed_stops_no_other(
    api: FakeApi, kube: Kube, telemetry: Telemetry
) -> None:
    api.resources += (TRAINING,)
    await train(api)
    api.failures.append(lambda call: FaultError(403, "no", "Forbidden") if call.namespace == "closed" else None)
    settings = SETTINGS.model_copy(update={"namespaces": "closed,ns"})
    with pytest.raises(ForbiddenError):
        await Trainings(settings, kube, telemetry, lambda: True, lambda: False).look()
    assert [job["metadata"]["name"] for job in api.find(JOB.kind)] == ["support-look"]


async def test_who_does_not_lead_writes_nothing(api: FakeApi, kube: Kube, telemetry: Telemetry) -> None:
    api.resources += (TRAINING,)
    await train(api)
    await Trainings(SETTINGS, kube, telemetry, lambda: False, lambda: False).look()
    assert api.writes() == []


async def test_a_refused_job_is_told_and_not_sent_again_and_again(api: FakeApi, trainings: Trainings) -> None:
    await train(api)
    api.failures.append(
        lambda call: FaultError(403, "exceeded quota", "Forbidden") if call.plural == "jobs" and call.write else None
    )
    for _ in range(4):
        await trainings.look()
    assert condition(status(api)) == ("False", Reason.FORBIDDEN)
    assert len(api.writes("jobs")) == 1


async def test_one_that_cannot_be_read_holds_up_no_other(api: FakeApi, trainings: Trainings) -> None:
    await train(api)
    other = copy.deepcopy(BODY)
    other["metadata"] |= {"name": "absurd", "namespace": "ns"}
    other["spec"] = {"verifier": ["absurd"], "output": {}}
    await api.put(TRAINING, other)
    await trainings.look()
    assert len(api.find(JOB.kind)) == 1
    told = next(one for one in api.find(names.TRAINING_KIND) if one["metadata"]["name"] == "absurd")
    assert condition(told["status"]) == ("False", Reason.SPEC_INVALID)


async def test_no_error_ends_the_process(trainings: Trainings, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    async def fail() -> None:
        looks.append(1)
        raise KeyError("metadata")

    monkeypatch.setattr(trainings, "look", fail)
    monkeypatch.setattr(trainings, "_settings", SETTINGS.model_copy(update={"tick_seconds": 0.01}))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await trainings.run()
    assert len(looks) > 1


async def test_a_cluster_without_the_kind_costs_one_request(api: FakeApi, kube: Kube, telemetry: Telemetry) -> None:
    with pytest.raises(NotFoundError):
        await Trainings(SETTINGS, kube, telemetry, lambda: True, lambda: False).look()
