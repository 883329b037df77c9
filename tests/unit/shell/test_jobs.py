"""Jobs as the operator sees them: how they ended, what they said, why they do not run, how far they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.shell.fakeapi import FakeApi, FaultError

from speculative_operator.domain import names
from speculative_operator.domain.jobs import Phase, Progress, Purpose, encode, progress_line
from speculative_operator.shell import jobs as shell_jobs
from speculative_operator.shell.cache import Snapshot
from speculative_operator.shell.jobs import Jobs, job_seen
from speculative_operator.shell.kube import Kube

NOW = 1_700_000_000.0
AT, LONG_AGO, LATER = "2023-11-14T22:13:10Z", "2023-11-14T22:00:00Z", "2023-11-14T22:13:15Z"
FACTS = {"verifier": {"config": {"vocab_size": 2048}}}
SOME = Progress(bytes=10, total=40, rate=5.0, file="model.safetensors")


def job(end: str = "", purpose: str = "fetch", at: str = AT, **spec: Any) -> dict[str, Any]:
    meta = {
        "name": f"gemma-{purpose}",
        "namespace": "ns",
        "uid": "j",
        "creationTimestamp": at,
        "labels": {names.LABEL_JOB: purpose},
        "annotations": {names.ANNOTATION_WANTED: "4711"},
    }
    conditions = [{"type": end, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": at}]
    return {"kind": "Job", "metadata": meta, "spec": spec, "status": {"conditions": conditions if end else []}}


def pod(phase: str = "Running", name: str = "gemma-fetch-x", at: str = AT, **state: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "creationTimestamp": at}
    containers = [{"name": names.JOB_CONTAINER, "state": state}]
    return {"kind": "Pod", "metadata": meta, "status": {"phase": phase, "containerStatuses": containers}}


def ended(code: int = 0, message: str = "", reason: str = "", **more: Any) -> dict[str, Any]:
    terminated = {"exitCode": code, "message": message, "reason": reason or ("Error" if code else "Completed")}
    return pod("Failed" if code else "Succeeded", terminated=terminated, **more)


# -- how it ended


def test_a_job_at_work_is_running_and_its_label_and_annotation_say_what_it_is_for() -> None:
    seen = job_seen(job(), [pod(running={})], NOW)
    assert (seen.name, seen.purpose, seen.wanted) == ("gemma-fetch", Purpose.FETCH, "4711")
    assert (seen.phase, seen.result, seen.trouble) == (Phase.RUNNING, None, "")


def test_the_last_words_are_the_result_of_success_and_of_failure() -> None:
    good = job_seen(job("Complete"), [ended(message=encode(FACTS))], NOW)
    assert (good.phase, good.result, good.trouble) == (Phase.SUCCEEDED, FACTS, "")
    error = {"error": {"reason": "SourceForbidden"}}
    bad = job_seen(job("Failed"), [ended(1, encode(error))], NOW)
    assert (bad.phase, bad.result) == (Phase.FAILED, error)


def test_of_several_attempts_the_newest_speaks_and_a_silent_one_leaves_it_to_an_older() -> None:
    first = ended(1, encode({"error": {"n": 1}}), name="a", at=LONG_AGO)
    second = ended(1, encode({"error": {"n": 2}}), name="b", at=LATER)
    assert job_seen(job("Failed"), [first, second], NOW).result == {"error": {"n": 2}}
    assert job_seen(job("Failed"), [second, first], NOW).result == {"error": {"n": 2}}
    killed = ended(137, reason="OOMKilled", name="b", at=LATER)
    assert job_seen(job("Failed"), [first, killed], NOW).result == {"error": {"n": 1}}


def test_words_between_restarts_of_one_pod_are_heard() -> None:
    waiting = pod("Failed", waiting={"reason": "CrashLoopBackOff"})
    message = encode({"error": {"n": 1}})
    waiting["status"]["containerStatuses"][0]["lastState"] = {"terminated": {"exitCode": 1, "message": message}}
    assert job_seen(job("Failed"), [waiting], NOW).result == {"error": {"n": 1}}


@pytest.mark.parametrize("known", [[], [pod(running={})]])
def test_an_end_without_last_words_is_waited_for_and_then_believed(known: list[dict[str, Any]]) -> None:
    """Job and pod come by two watches: the one's end may be seen before the other's."""
    assert job_seen(job("Complete"), known, NOW).phase is Phase.RUNNING
    late = job_seen(job("Complete", at=LONG_AGO), known, NOW)
    assert (late.phase, late.result, late.trouble) == (Phase.SUCCEEDED, None, "it succeeded but left no result")


def test_an_older_attempts_end_is_not_the_last_word() -> None:
    older, newest = ended(1, name="a", at=LONG_AGO), pod(name="b", at=LATER, running={})
    assert job_seen(job("Complete"), [older, newest], NOW).phase is Phase.RUNNING


def test_what_is_no_result_is_quoted_and_not_read() -> None:
    seen = job_seen(job("Failed"), [ended(2, "Traceback: no such file")], NOW)
    assert (seen.result, seen.trouble) == (None, "Error, exit code 2: Traceback: no such file")
    long = job_seen(job("Failed"), [ended(2, "x" * 4096)], NOW)
    assert len(long.trouble) == shell_jobs.LONGEST


def test_a_job_of_somebody_else_is_refused() -> None:
    with pytest.raises(ValueError, match="gemma-other has no label"):
        job_seen(job(purpose="other"), [], NOW)


# -- why it does not run


def unschedulable() -> dict[str, Any]:
    found = pod("Pending")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    found["status"]["conditions"] = [condition]
    return found


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (unschedulable(), "Unschedulable: 0/3 nodes"),
        (pod("Pending", waiting={"reason": "ErrImagePull", "message": "no such tag"}), "ErrImagePull: no such tag"),
        (pod("Pending", waiting={"reason": "ContainerCreating"}), ""),
        (pod("Pending", waiting={}), ""),
        (pod(running={}), ""),
        (ended(137, reason="OOMKilled"), "OOMKilled, exit code 137"),
        (ended(1, encode({"error": {"message": "hf://a/b is gated"}})), "hf://a/b is gated"),
        ({**pod("Failed"), "status": {"phase": "Failed", "reason": "Evicted", "message": "disk"}}, "Evicted: disk"),
    ],
)
def test_trouble_of_a_pod_is_told_while_the_job_still_tries(found: dict[str, Any], said: str) -> None:
    seen = job_seen(job(), [found], NOW)
    assert (seen.phase, seen.trouble) == (Phase.RUNNING, said)


def test_a_job_without_a_pod_is_in_trouble_after_a_while() -> None:
    assert job_seen(job(), [], NOW).trouble == ""
    assert "kubectl describe job gemma-fetch -n ns" in job_seen(job(at=LONG_AGO), [], NOW).trouble
    assert job_seen(job(at=LONG_AGO, suspend=True), [], NOW).trouble == "Job gemma-fetch is suspended"


def test_a_job_that_was_cut_off_says_so() -> None:
    assert job_seen(job("Failed", at=LONG_AGO), [], NOW).trouble == "R: m"


# -- how far it is


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def snapshot(*jobs: dict[str, Any], pods: tuple[dict[str, Any], ...] = ()) -> Snapshot:
    children = {("Job", one["metadata"]["name"]): one for one in jobs}
    return Snapshot({}, children, (), {one["metadata"]["name"]: pods for one in jobs})


def reads(api: FakeApi) -> int:
    return sum(call.subresource == "log" for call in api.calls)


async def test_the_last_line_of_a_running_download_is_its_progress(api: FakeApi, kube: Kube) -> None:
    api.logs["gemma-fetch-x"] = f"starting\n{progress_line(SOME)}\n"
    (seen,) = await Jobs(kube, Clock()).observe(snapshot(job(), pods=(pod(running={}),)), NOW)
    assert seen.progress == SOME
    assert api.calls[-1].query["container"] == names.JOB_CONTAINER


async def test_the_log_is_read_now_and_then_and_another_line_changes_nothing(api: FakeApi, kube: Kube) -> None:
    clock = Clock()
    looking, world = Jobs(kube, clock), snapshot(job(), pods=(pod(running={}),))
    api.logs["gemma-fetch-x"] = progress_line(SOME)
    for _ in range(5):
        (seen,) = await looking.observe(world, NOW)
        assert seen.progress == SOME
    assert reads(api) == 1
    clock.now += shell_jobs.READ_EVERY
    api.logs["gemma-fetch-x"] = "retrying after 429"
    (seen,) = await looking.observe(world, NOW)
    assert (seen.progress, reads(api)) == (SOME, 2)
    clock.now += shell_jobs.READ_EVERY
    api.logs["gemma-fetch-x"] = progress_line(replace(SOME, bytes=20))
    (seen,) = await looking.observe(world, NOW)
    assert seen.progress == replace(SOME, bytes=20)


async def test_only_running_downloads_are_listened_to(api: FakeApi, kube: Kube) -> None:
    looking = Jobs(kube, Clock())
    await looking.observe(snapshot(job(purpose="inspect"), pods=(pod(running={}),)), NOW)
    await looking.observe(snapshot(job(), pods=(pod("Pending", waiting={}),)), NOW)
    await looking.observe(snapshot(job("Complete"), pods=(ended(message=encode(FACTS)),)), NOW)
    assert reads(api) == 0


async def test_without_the_permission_there_is_no_progress_and_no_hammering(api: FakeApi, kube: Kube) -> None:
    clock = Clock()
    looking, world = Jobs(kube, clock), snapshot(job(), pods=(pod(running={}),))
    api.failures.append(lambda call: FaultError(403, "pods/log is forbidden") if call.subresource == "log" else None)
    for _ in range(10):
        (seen,) = await looking.observe(world, NOW)
        assert (seen.phase, seen.progress) == (Phase.RUNNING, None)
        clock.now += shell_jobs.READ_EVERY
    assert reads(api) == 1
    clock.now += shell_jobs.FORBIDDEN_PAUSE
    api.failures.clear()
    api.logs["gemma-fetch-x"] = progress_line(SOME)
    (seen,) = await looking.observe(world, NOW)
    assert seen.progress == SOME


async def test_a_kubelet_that_hangs_or_fails_costs_the_visit_little(
    api: FakeApi, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    looking, world = Jobs(kube, clock), snapshot(job(), pods=(pod(running={}),))
    api.failures.append(lambda _: FaultError(500, "kubelet is gone"))
    (seen,) = await looking.observe(world, NOW)
    assert seen.progress is None
    api.failures.clear()
    monkeypatch.setattr(shell_jobs, "READ_WITHIN", 0.05)
    api.delay, clock.now = 0.5, shell_jobs.READ_EVERY
    (seen,) = await looking.observe(world, NOW)
    assert (seen.phase, seen.progress) == (Phase.RUNNING, None)


async def test_jobs_without_our_label_are_passed_over(kube: Kube) -> None:
    assert await Jobs(kube, Clock()).observe(snapshot(job(purpose="other")), NOW) == ()


# -- pods that bring their weights themselves


def bringing(name: str, restarts: int = 0, **state: Any) -> dict[str, Any]:
    found = pod(name=name)
    own = {"name": names.JOB_CONTAINER, "restartCount": restarts, "state": state}
    return {**found, "status": {"phase": "Pending", "initContainerStatuses": [own]}}


async def test_one_pod_that_fetches_is_listened_to_and_a_new_run_forgets_the_last(api: FakeApi, kube: Kube) -> None:
    jobs = Jobs(kube, lambda: 0.0)

    async def look(*pods: dict[str, Any]) -> dict[str, Progress]:
        return dict(await jobs.arriving(Snapshot({}, {}, pods)))

    api.logs["a"] = progress_line(SOME)
    assert await look(bringing("b", running={"startedAt": AT}), bringing("a", running={"startedAt": AT})) == {"a": SOME}
    assert await look(bringing("a", terminated={"exitCode": 0})) == {}
    assert await look(pod(name="a")) == {}
    api.logs["a"] = ""
    assert await look(bringing("a", restarts=1, running={"startedAt": AT})) == {}, "nothing of the run before"
