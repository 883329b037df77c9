"""A reconcile from snapshot to status, with a fake tick: order, observation, status, events, and what failing means."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.shell.fakeapi import FakeApi, FaultError
from tests.unit.shell.scene import KEY, applying, manifest, owner, pod

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, ApplyChild
from speculative_operator.domain.jobs import Phase, Purpose
from speculative_operator.domain.observation import Gap, Observation, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile.snapshot.notes import Notes
from speculative_operator.reconcile.world import Event, Outcome, World
from speculative_operator.render import Capabilities
from speculative_operator.settings import Settings
from speculative_operator.shell import errors
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.jobs import READ_EVERY, Jobs
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.past import Past
from speculative_operator.shell.podseries import Answer
from speculative_operator.shell.reconciler import SOON, Reconciler
from speculative_operator.shell.report import Budget, Reporter, event_body
from speculative_operator.shell.resources import CLAIM, JOB, OWNER, POD
from speculative_operator.shell.rounds import Round
from speculative_operator.shell.sources import Sources
from speculative_operator.shell.telemetry import Telemetry
from speculative_operator.shell.turns import LONGEST, Turns
from speculative_operator.shell.writes import Writer
from speculative_operator.tuner import Memory

SETTINGS = Settings()
Plan = Callable[[World], tuple[tuple[Action, ...], dict[str, Any], tuple[Event, ...]]]


class Rig:
    """A reconciler whose tick does what `plan` says."""

    def __init__(self, api: FakeApi, kube: Kube, telemetry: Telemetry) -> None:
        self.api = api
        self.cache = Cache()
        self.telemetry = telemetry
        self.round: Round | None = None
        self.seen: list[tuple[World, Memory | None, Observation | None]] = []
        self.tries_changed = False
        self.leading = True
        self.at = 0.0
        """Monotonic seconds, as far as turns know."""
        self.memory: Memory | None = None
        self.notes: Notes | None = None
        self.plan: Plan = lambda world: ((), {"observedGeneration": world.spec.generation}, ())
        writer = Writer(kube, self.cache, telemetry, lambda: True, lambda: None)
        reporter = Reporter(kube, self.cache, telemetry, lambda: self.leading)
        self.budget = Budget(lambda: len(self.cache), lambda: self.at)
        jobs, turns = Jobs(kube, time.monotonic), Turns(1, lambda: self.at)
        past = Past(SETTINGS, lambda *_: Answer(), self.cache.addresses)
        sources = Sources(lambda _: self.round, Capabilities, jobs, turns, self.budget, past)
        self.reconciler = Reconciler(SETTINGS, self.cache, writer, reporter, telemetry, sources, self.tick)

    def tick(self, world: World, memory: Memory | None, observation: Observation | None, now: float) -> Outcome:
        assert abs(now - time.time()) < 5
        self.seen.append((world, memory, observation))
        actions, status, events = self.plan(world)
        return Outcome(actions, status, events, self.memory or memory, self.tries_changed, notes=self.notes)

    async def begin(self, **more: Any) -> dict[str, Any]:
        stored = await self.api.put(OWNER, {**owner(), **more})
        self.cache.put(stored)
        return stored

    @property
    def status(self) -> Any:
        return self.api.find(OWNER.kind)[0].get("status")


@pytest.fixture
def rig(api: FakeApi, kube: Kube, telemetry: Telemetry) -> Rig:
    return Rig(api, kube, telemetry)


async def test_a_first_visit_writes_children_then_status_then_events(rig: Rig) -> None:
    of = await rig.begin()
    told = Event("Normal", Reason.CREATED, "made the children")
    rig.plan = lambda _: ((applying(of),), {"observedGeneration": 1}, (told,))
    again = await rig.reconciler.reconcile(KEY)
    assert again == SOON
    assert [(call.plural, call.subresource) for call in rig.api.writes()] == [
        ("services", ""),
        (OWNER.plural, "status"),
        ("events", ""),
    ]
    assert rig.status == {"observedGeneration": 1}
    event = rig.api.find("Event")[0]
    assert (event["reason"], event["note"], event["type"]) == ("Created", "made the children", "Normal")
    assert event["regarding"]["uid"] == of["metadata"]["uid"]


async def test_an_object_at_rest_costs_no_write_and_no_read(rig: Rig) -> None:
    await rig.begin()
    await rig.reconciler.reconcile(KEY)
    rig.api.calls.clear()
    for _ in range(5):
        assert await rig.reconciler.reconcile(KEY) == SETTINGS.tick_seconds
    assert rig.api.calls == []


async def test_a_tick_is_told_of_jobs_and_claims_and_a_download_is_looked_at_often(rig: Rig) -> None:
    of = await rig.begin()
    job = manifest(of, "Job")
    job["metadata"] |= {"uid": "j", "resourceVersion": "1"}
    job["metadata"]["labels"][names.LABEL_JOB] = "fetch"
    rig.cache.put(job)
    labels = {names.LABEL_MANAGED_BY: names.OPERATOR}
    claim = {"name": "weights", "namespace": "ns", "uid": "v", "resourceVersion": "1", "labels": labels}
    rig.cache.put({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim})
    assert await rig.reconciler.reconcile(KEY) == READ_EVERY
    world = rig.seen[-1][0]
    assert [(one.name, one.purpose) for one in world.jobs] == [("gemma", Purpose.FETCH)]
    assert ("Job", "gemma") in world.children
    assert world.claims == {"weights"}
    assert not any(kind == "PersistentVolumeClaim" for kind, _ in world.children)


async def test_a_claim_of_somebody_else_serves_as_well(rig: Rig) -> None:
    await rig.begin()
    meta = {"name": "weights", "namespace": "ns"}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta}
    await rig.api.put(CLAIM, body)
    wanting = ApplyChild(body, Reason.CREATED, "missing")
    rig.plan = lambda world: (() if "weights" in world.foreign_claims else (wanting,), {"observedGeneration": 1}, ())
    assert await rig.reconciler.reconcile(KEY) == SOON
    assert await rig.reconciler.reconcile(KEY) == SETTINGS.tick_seconds
    world = rig.seen[-1][0]
    assert (world.claims, world.foreign_claims) == (frozenset(), frozenset({"weights"}))
    assert world.children == {}
    assert rig.api.writes(CLAIM.plural) == [], "it is found by a read, not by a write that fails once a minute"


async def test_events_are_lost_and_visits_are_not_when_events_cannot_be_posted(rig: Rig) -> None:
    await rig.begin()
    rig.plan = lambda _: ((), {"observedGeneration": 1}, (Event("Normal", Reason.CREATED, "x"),))
    rig.api.failures.append(lambda call: FaultError(403) if call.plural == "events" else None)
    assert await rig.reconciler.reconcile(KEY) == SETTINGS.tick_seconds


async def test_an_object_that_cannot_be_read_says_so_and_nothing_is_touched(rig: Rig) -> None:
    await rig.begin(spec={"verifier": {"model": "ftp://nowhere"}})
    again = await rig.reconciler.reconcile(KEY)
    assert again == SETTINGS.resync_seconds
    assert rig.seen == []
    ready = next(entry for entry in rig.status["conditions"] if entry["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "SpecInvalid")
    assert "ftp://nowhere" in ready["message"]
    assert rig.api.find("Event")[0]["type"] == "Warning"
    rig.api.calls.clear()
    await rig.reconciler.reconcile(KEY)
    assert rig.api.writes() == []


async def test_a_gone_or_leaving_object_is_let_go(rig: Rig) -> None:
    assert await rig.reconciler.reconcile(KEY) is None
    of = owner()
    of["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    rig.cache.put(await rig.api.put(OWNER, of))
    assert await rig.reconciler.reconcile(KEY) is None
    assert rig.seen == []


async def test_a_round_is_looked_at_once_and_only_with_ready_pods(rig: Rig) -> None:
    await rig.begin()
    rig.round = Round(100.0, Answer())
    await rig.reconciler.reconcile(KEY)
    assert rig.seen[-1][2] is None, "no pod"
    rig.cache.put(await rig.api.put(POD, pod(ready=False)))
    await rig.reconciler.reconcile(KEY)
    assert rig.seen[-1][2] is None, "no ready pod"
    rig.cache.put(await rig.api.put(POD, pod()))
    assert await rig.reconciler.reconcile(KEY) == 1.5 * SETTINGS.tick_seconds
    observation = rig.seen[-1][2]
    assert observation is not None
    assert observation.time == 100.0
    assert isinstance(observation.pods["gemma-1"], Gap)
    await rig.reconciler.reconcile(KEY)
    assert rig.seen[-1][2] is None, "the same round again is no news"
    for moment in (110.0, 50.0):
        rig.round = Round(moment, Answer())
        await rig.reconciler.reconcile(KEY)
        assert rig.seen[-1][2] is not None, "the second one is of a clock that was set back"


async def test_a_failed_round_is_a_gap_for_the_whole_object(rig: Rig) -> None:
    await rig.begin()
    rig.cache.put(await rig.api.put(POD, pod()))
    gap = Gap(Reason.PROMETHEUS_TIMEOUT, "no answer")
    rig.round = Round(100.0, gap)
    await rig.reconciler.reconcile(KEY)
    assert rig.seen[-1][2] == Observation(100.0, gap=gap)
    assert 'speculative_operator_gaps_total{reason="PrometheusTimeout"} 1.0' in rig.telemetry.render().decode()


COUNTERS = {
    "vllm:iteration_tokens_total_count": 100.0,
    "vllm:iteration_tokens_total_sum": 900.0,
    "vllm:inter_token_latency_seconds_count": 400.0,
    "vllm:inter_token_latency_seconds_sum": 8.0,
    "vllm:time_to_first_token_seconds_count": 4.0,
    "vllm:time_to_first_token_seconds_sum": 0.4,
    "vllm:generation_tokens_total": 800.0,
    "vllm:prompt_tokens_total": 100.0,
    "vllm:spec_decode_num_drafts_total": 390.0,
    "vllm:spec_decode_num_draft_tokens_total": 1170.0,
    "vllm:spec_decode_num_accepted_tokens_total": 396.0,
}
GAUGES = {"vllm:num_requests_running": 4.0, "vllm:num_requests_waiting": 0.0, "vllm:kv_cache_usage_perc": 0.1}


def scraped(*moments: float) -> tuple[Series, ...]:
    """Series of one pod whose counters grow by COUNTERS every 10 s."""
    labels = {"pod": "gemma-1", "namespace": "ns", "engine": "0", "model_name": "gemma"}
    grow = [Series(name, labels, tuple((at, each * at / 10.0) for at in moments)) for name, each in COUNTERS.items()]
    still = [Series(name, labels, tuple((at, value) for at in moments)) for name, value in GAUGES.items()]
    return (*grow, *still)


async def test_windows_follow_each_other_without_overlap(rig: Rig) -> None:
    await rig.begin()
    rig.cache.put(await rig.api.put(POD, pod()))
    for now in (100.0, 110.0):
        moments = (now - back for back in (30.0, 25.0, 20.0, 15.0, 10.0, 5.0, 0.0))
        rig.round = Round(now, Answer({"gemma-1": scraped(*moments)}))
        await rig.reconciler.reconcile(KEY)
    windows = [seen[2].pods["gemma-1"] for seen in rig.seen if seen[2] is not None]
    assert all(isinstance(window, PodWindow) for window in windows), windows
    first, second = windows
    assert isinstance(first, PodWindow)
    assert isinstance(second, PodWindow)
    assert (first.end, second.start, second.end) == (100.0, 100.0, 110.0)
    assert second.steps == pytest.approx(100.0)


async def test_memory_is_handed_on_and_dropped_with_the_object(rig: Rig) -> None:
    of = await rig.begin()
    kept: Any = object()

    def remember(world: World, memory: Memory | None, observation: Observation | None, now: float) -> Outcome:
        rig.seen.append((world, memory, observation))
        return Outcome((), {"observedGeneration": 1}, (), kept)

    rig.reconciler._tick = remember
    await rig.reconciler.reconcile(KEY)
    await rig.reconciler.reconcile(KEY)
    assert [seen[1] for seen in rig.seen] == [None, kept]
    await rig.api.drop(OWNER, "gemma")
    rig.cache.remove(of)
    rig.cache.put(await rig.api.put(OWNER, owner()))
    await rig.reconciler.reconcile(KEY)
    assert rig.seen[-1][1] is None, "another object by the same name"


async def test_a_write_that_fails_fails_the_visit_and_no_status_claims_it(rig: Rig) -> None:
    of = await rig.begin()
    rig.plan = lambda _: ((applying(of),), {"observedGeneration": 1}, ())
    rig.api.failures.append(lambda call: FaultError(503) if call.plural == "services" else None)
    with pytest.raises(errors.UnavailableError):
        await rig.reconciler.reconcile(KEY)
    assert rig.status is None


async def test_a_refused_manifest_reaches_the_next_tick_as_a_problem_at_once(rig: Rig) -> None:
    of = await rig.begin()
    rig.plan = lambda _: ((applying(of),), {"observedGeneration": 1}, ())
    rig.api.failures.append(lambda call: FaultError(422, "bad") if call.plural == "services" else None)
    assert await rig.reconciler.reconcile(KEY) == SOON
    assert await rig.reconciler.reconcile(KEY) == SETTINGS.tick_seconds
    problem = rig.seen[-1][0].problems[0]
    assert (problem.reason, problem.message) == (Reason.RENDER_INVALID, "Service gemma: bad")
    text = rig.telemetry.render().decode()
    assert 'speculative_operator_ticks_total{outcome="refused",reason="RenderInvalid"} 2.0' in text


async def test_an_object_replaced_during_the_visit_gets_no_status(rig: Rig) -> None:
    of = await rig.begin()
    await rig.api.drop(OWNER, "gemma")
    await rig.api.put(OWNER, owner())
    assert await rig.reconciler.reconcile(KEY) == SETTINGS.tick_seconds
    assert rig.status is None
    assert of["metadata"]["uid"] != rig.api.find(OWNER.kind)[0]["metadata"]["uid"]


async def test_a_replica_that_lost_its_lease_writes_no_status(rig: Rig) -> None:
    """As a process that was stopped for a minute: what it would write is of before that, pins and table included."""
    await rig.begin(status={"observedGeneration": 1, "speculation": {"tableVersion": 9}})
    rig.leading = False
    told = Event("Normal", Reason.CREATED, "x")
    rig.plan = lambda _: ((), {"observedGeneration": 1, "speculation": {"tableVersion": 2}}, (told,))
    await rig.reconciler.reconcile(KEY)
    assert rig.status["speculation"] == {"tableVersion": 9}
    assert rig.api.writes() == [], "nor an event of it"


async def test_recorded_decisions_are_counted_once(rig: Rig) -> None:
    await rig.begin()
    entry = {"time": "2026-01-01T00:00:00Z", "reason": "FasterTable", "to": "1-8:4"}
    rig.plan = lambda _: ((), {"observedGeneration": 1, "decisions": [entry]}, ())
    await rig.reconciler.reconcile(KEY)
    await rig.reconciler.reconcile(KEY)
    assert 'speculative_operator_decisions_total{reason="FasterTable"} 1.0' in rig.telemetry.render().decode()


def test_a_long_note_is_cut_to_what_the_api_takes() -> None:
    stored = owner()
    stored["metadata"]["uid"] = "u"
    body = event_body(stored, Event("Normal", Reason.CREATED, "ü" * 2000), "operator")
    assert len(body["note"].encode()) <= 1024
    assert body["note"] == "ü" * 512


async def test_other_tries_are_counted_without_an_event(rig: Rig) -> None:
    await rig.begin()
    rig.tries_changed = True
    await rig.reconciler.reconcile(KEY)
    assert 'speculative_operator_decisions_total{reason="TriesChanged"} 1.0' in rig.telemetry.render().decode()
    assert not [call for call in rig.api.writes() if call.plural == "events"]


@pytest.mark.parametrize(("changed", "kept"), [(True, False), (False, True)])
async def test_a_change_that_failed_is_not_remembered_as_made(rig: Rig, changed: bool, kept: bool) -> None:
    of = await rig.begin()
    first = Memory.fresh(KTable.constant(3, 256), 0.0)
    rig.memory = first
    await rig.reconciler.reconcile(KEY)
    rig.memory = after = replace(first, changed_at=100.0 if changed else None, windows=1)
    rig.plan = lambda _: ((applying(of),), {"observedGeneration": 1}, ())
    rig.api.failures.append(lambda call: FaultError(503) if call.plural == "services" else None)
    with pytest.raises(errors.UnavailableError):
        await rig.reconciler.reconcile(KEY)
    with pytest.raises(errors.UnavailableError):
        await rig.reconciler.reconcile(KEY)
    assert rig.seen[-1][1] is (after if kept else first)


def inspect_job(of: dict[str, Any], **status: Any) -> dict[str, Any]:
    found = manifest(of, "Job", template={})
    found["metadata"]["name"] += "-inspect"
    found["metadata"]["labels"] = {**found["metadata"]["labels"], names.LABEL_JOB: Purpose.INSPECT.value}
    return {**found, **({"status": status} if status else {})}


async def test_a_job_that_reads_waits_for_its_turn_and_says_so(rig: Rig) -> None:
    """One at a time here; the other children of the object do not wait."""
    other = await rig.api.put(OWNER, owner(name="other"))
    rig.cache.put(other)
    theirs = await rig.api.put(JOB, inspect_job(other, ready=1))
    rig.cache.put(theirs)
    of = await rig.begin()
    rig.plan = lambda _: ((ApplyChild(inspect_job(of), Reason.INSPECTING, "missing"), applying(of)), {}, ())
    again = await rig.reconciler.reconcile(KEY)
    assert len(rig.api.find("Job")) == 1
    assert len(rig.api.find("Service")) == 1
    assert again is not None
    assert again <= READ_EVERY
    await rig.reconciler.reconcile(KEY)
    (seen,) = rig.seen[-1][0].jobs
    assert (seen.name, seen.phase) == ("gemma-inspect", Phase.RUNNING)
    assert seen.trouble == "waits for the Jobs of other objects"
    rig.cache.remove(theirs)
    await rig.reconciler.reconcile(KEY)
    assert {one["metadata"]["name"] for one in rig.api.find("Job")} == {"other-inspect", "gemma-inspect"}
    rig.plan = lambda _: ((), {}, ())
    await rig.reconciler.reconcile(KEY)
    assert [one.trouble for one in rig.seen[-1][0].jobs] == [""], "that of the Job itself"


def problems(rig: Rig) -> list[str]:
    """As the newest tick was told of them."""
    return [one.message for one in rig.seen[-1][0].problems]


async def test_a_turn_that_does_not_come_is_told_as_trouble_where_pods_wait(rig: Rig) -> None:
    other = await rig.api.put(OWNER, owner(name="other"))
    rig.cache.put(other)
    rig.cache.put(await rig.api.put(JOB, inspect_job(other, ready=1)))
    of = await rig.begin()
    rig.plan = lambda _: ((ApplyChild(inspect_job(of), Reason.INSPECTING, "missing"),), {}, ())
    await rig.reconciler.reconcile(KEY)
    assert problems(rig) == []
    rig.at += LONGEST
    await rig.reconciler.reconcile(KEY)
    (problem,) = problems(rig)
    assert problem.startswith("Job gemma-inspect has waited 10 minutes for the")
    rig.cache.put(await rig.api.put(POD, pod()))
    await rig.reconciler.reconcile(KEY)
    assert problems(rig) == [], "its pods serve: nobody waits"


async def test_a_job_that_could_not_be_made_gives_its_turn_back(rig: Rig) -> None:
    of = await rig.begin()
    other = await rig.api.put(OWNER, owner(name="other"))
    rig.cache.put(other)
    rig.plan = lambda world: (
        (ApplyChild(inspect_job(of if world.spec.name == "gemma" else other), Reason.INSPECTING, "missing"),),
        {},
        (),
    )
    rig.api.failures.append(lambda call: FaultError(503, "busy") if call.method == "PATCH" else None)
    with pytest.raises(errors.ApiError):
        await rig.reconciler.reconcile(KEY)
    rig.api.failures.clear()
    await rig.reconciler.reconcile(("ns", "other"))
    assert [one["metadata"]["name"] for one in rig.api.find("Job")] == ["other-inspect"]


def of_the_object(rig: Rig) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(rig.telemetry.render().decode())
    samples = [one for family in families for one in family.samples if one.labels.get("name") == "gemma"]
    return {(one.name.removeprefix("speculative_operator_object_"), *one.labels.values()): one.value for one in samples}


async def test_the_metrics_tell_of_an_object_until_it_is_gone(rig: Rig) -> None:
    await rig.begin()
    rig.cache.put(await rig.api.put(POD, pod()))
    assert of_the_object(rig) == {}, "as in a second operator, which waits for the Lease"
    now = time.time()
    rig.plan = lambda world: ((), {"readyReplicas": 1, "decisions": [{"time": "t", "reason": "FasterTable"}]}, ())
    rig.round = Round(now, Answer({"gemma-1": scraped(*(now - back for back in (10.0, 5.0, 0.0)))}))
    await rig.reconciler.reconcile(KEY)
    found = of_the_object(rig)
    assert found["running_requests", "ns", "gemma"] == 4.0
    assert found["tokens_per_second", "ns", "gemma"] == pytest.approx(80.0)
    assert found["replicas", "ns", "gemma", "ready"] == 1.0
    assert found["decisions_total", "ns", "gemma", "FasterTable"] == 1.0
    leaving = copy.deepcopy(rig.api.find(OWNER.kind)[0])
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    rig.cache.put(await rig.api.put(OWNER, leaving))
    assert await rig.reconciler.reconcile(KEY) is None
    assert of_the_object(rig) == {}
