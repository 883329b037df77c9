"""Rows of the catalogue are measured one at a time beside what serves: the best is kept whenever the operator ends,
what is not known decides nothing, and nothing that was there before is deleted, restarted or left without a pod."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.comparing.drawn import SECONDS, samples
from tests.unit.reconcile.choosing import LEFT, Choosing, row, rows
from tests.unit.reconcile.paired import LOOKING, VERIFIER, advance
from tests.unit.reconcile.worlds import NOW, observed, pod

from speculative_operator.comparing.measures import Sample
from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, ApplyChild, DeleteChild
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.platform import Measuring as MeasuringTold
from speculative_operator.domain.spec import AcceleratorRequest, DeploymentSpec, ModelSource, Scheme
from speculative_operator.pairing.catalogue import Catalogue
from speculative_operator.reconcile.snapshot import candidates
from speculative_operator.reconcile.tick import Outcome
from speculative_operator.reconcile.world import Evidence, Record, World
from speculative_operator.render import Capabilities

A, B, C = (f"tiny/{name}" for name in "abc")
ROWS = rows(row(A), row(B), row(C))
MEASURED = replace(
    LEFT, measure=MeasuringTold(900), accelerator=AcceleratorRequest(product="H100-SXM", hourly_cost=5.0), replicas=1
)
OTHER = replace(LEFT.verifier, source=ModelSource(Scheme.HF, "x/y"))
PACES = {A: 1.0, B: 0.9, C: 0.8}
"""Time per token of each speculator, as a multiple of A's."""
GIVEN = {"verifier": {"model": f"hf://{VERIFIER}"}, "speculator": {"auto": True, "measure": {}}}


@dataclass
class Measuring(Choosing):
    """A cluster with room for a candidate, whose pods serve as PACES says."""

    spec: DeploymentSpec = MEASURED
    capabilities: Capabilities = field(default_factory=Capabilities)
    catalogue: Catalogue = ROWS
    paces: dict[str, float] = field(default_factory=lambda: dict(PACES))
    body: dict[str, Any] | None = None
    """The object by the candidate's name."""
    since: float = 0.0
    starts: float = 30.0
    """Seconds until a candidate answers."""
    shape: dict[str, Any] = field(default_factory=dict)
    """Laid over the candidate's pod."""
    blind: bool = False
    """Prometheus does not answer."""
    seed: int = 0
    made: list[str] = field(default_factory=list)  # type: ignore[assignment]
    """Speculators of the candidates so far."""

    def world(self, **change: Any) -> World:
        own = {"asked": deepcopy(GIVEN), "candidate_body": deepcopy(self.body), "candidate_pods": self.own_pods()}
        return super().world(**(own | {"evidence": self.seen()} | change))

    def own_pods(self) -> tuple[dict[str, Any], ...]:
        if self.body is None:
            return ()
        return ({**pod("demo-candidate-1", {}, ready=self.now - self.since >= self.starts), **self.shape},)

    def seen(self) -> Evidence | None:
        found = candidates.read(self.status.get("measured", {}))
        running = found.running if found is not None else None
        if running is None or running.phase is not candidates.Phase.COMPARING or self.blind:
            return None
        count, number = int((self.now - running.since) / SECONDS), len(self.made)
        stable, other = (self._of(name, count, number + place) for place, name in
                         enumerate((self.serving, running.row.uri.removeprefix("hf://"))))  # fmt: skip
        return Evidence(stable, other, self.spec)

    def _of(self, name: str, count: int, number: int) -> Record:
        pace = self.paces[name]
        # At the same traffic a quicker engine has fewer requests in a step.
        drawn: list[Sample] = samples(100 * self.seed + number, count, batch=8.0 * pace, pace=pace) if count else []
        return Record(tuple(drawn), 1000.0, 3000.0, 1500.0)

    @property
    def serving(self) -> str:
        """The speculator that pods run."""
        found: str = self.status["pair"]["speculator"].removeprefix("hf://").partition("@")[0]
        return found

    @property
    def measured(self) -> dict[str, Any]:
        found: dict[str, Any] = self.status.get("measured", {})
        return found

    def carry_out(self, action: Action) -> None:
        if isinstance(action, ApplyChild) and action.manifest["kind"] == names.KIND:
            assert self.body is None, "one at a time"
            self.body = deepcopy(dict(action.manifest))
            self.body["metadata"]["uid"] = f"candidate-{len(self.made)}"
            self.made.append(self.body["spec"]["speculator"]["model"].removeprefix("hf://"))
            self.since = self.now
        elif isinstance(action, DeleteChild) and action.kind == names.KIND:
            assert self.body is not None
            assert self.body["metadata"]["uid"] == action.uid
            assert self.body["metadata"]["ownerReferences"][0]["uid"] == self.spec.uid
            self.body = None
        else:
            super().carry_out(action)

    def serve(self, seconds: float, every: float = 0.0) -> Outcome:
        """Time passes with requests."""
        every = every or (60.0 if seconds >= 900.0 else 30.0)
        for _ in range(round(seconds / every)):
            outcome = self.tick(observed(self), seconds=every)
            self.roll()
        return outcome

    def until(self, phase: str) -> None:
        for _ in range(60):
            self.serve(30.0)
            if self.measured.get("candidate", {}).get("phase") == phase:
                return
        raise AssertionError(self.measured)

    def verdicts(self) -> dict[str, str]:
        return {one["speculator"].removeprefix("hf://"): one["verdict"] for one in self.measured.get("verdicts", ())}


@cache
def _begun(phase: str) -> Measuring:
    cluster = Measuring()
    advance(cluster)
    cluster.settle()
    assert cluster.serving == A
    if phase:
        cluster.until(phase)
    return cluster


def begun(phase: str = "", **change: Any) -> Measuring:
    """The catalogue's first row serves, and nothing was measured, or the first candidate is in `phase`."""
    cluster = deepcopy(_begun(phase))
    for name, value in change.items():
        setattr(cluster, name, value)
    return cluster


@pytest.mark.parametrize("seed", range(10))
def test_the_best_of_three_is_found_within_thirty_minutes(seed: int) -> None:
    order = (1.0, 0.9, 0.8), (1.0, 0.8, 0.9), (0.8, 1.0, 0.9), (0.9, 1.0, 0.8), (0.9, 0.8, 1.0)
    cluster = begun(seed=seed, paces=dict(zip((A, B, C), order[seed % 5], strict=True)))
    cluster.serve(1800.0)
    assert cluster.serving == min(cluster.paces, key=lambda name: cluster.paces[name])
    assert sorted(cluster.made) == [B, C], "each once, and never what serves"
    assert cluster.body is None
    cluster.serve(300.0)
    assert cluster.measured["reason"] == "AllMeasured"


def test_what_is_worse_or_no_different_stays_out_and_is_not_tried_again() -> None:
    cluster = begun(paces={A: 0.8, B: 1.0, C: 0.8})
    cluster.serve(3000.0)
    assert (cluster.serving, cluster.made) == (A, [B, C])
    assert cluster.verdicts()[B] == "Worse"
    assert cluster.verdicts()[C] in ("Equivalent", "Undecided")
    assert cluster.measured["verdicts"][0]["acceptanceLength"] == "2.50"


@settings(max_examples=3, deadline=None)
@given(st.lists(st.sampled_from(("look", "lost", "restart")), min_size=8, max_size=24))
def test_it_ends_the_same_whenever_the_operator_ends(fates: list[str]) -> None:
    """`lost`: it ends after what was decided was carried out, and before the status was stored."""
    cluster = begun()
    for fate in fates:
        if fate == "lost":
            outcome = cluster.look(observed(cluster))
            for action in outcome.actions:
                cluster.carry_out(action)
        if fate != "look":
            cluster.forget()
        cluster.serve(60.0, 60.0)
    cluster.serve(1800.0, 60.0)
    assert cluster.serving == C
    assert cluster.body is None
    assert len(cluster.made) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"paused": True},
        {"suspend": timestamp(NOW + 800)},
        {"replicas": 0},
        {"measure": None},
        {"verifier": replace(LEFT.verifier, source=ModelSource(Scheme.S3, "bucket/model"))},
    ],
)
def test_nothing_is_started_where_there_is_a_reason_against_it(change: dict[str, Any]) -> None:
    cluster = begun()
    cluster.edit(**change)
    cluster.serve(600.0)
    assert cluster.made == []


@pytest.mark.parametrize("phase", ["Starting", "Warming", "Comparing"])
@pytest.mark.parametrize("change", [{"measure": None}, {"replicas": 0}, {"verifier": OTHER}])
def test_a_candidate_goes_when_its_reason_does(phase: str, change: dict[str, Any]) -> None:
    cluster = begun(starts=90.0)
    cluster.until(phase)
    cluster.serve(30.0)
    assert cluster.body is not None
    cluster.edit(**change)
    cluster.serve(90.0)
    assert cluster.body is None
    assert cluster.made == [B]


def test_a_candidate_that_alone_answers_stays_until_a_pod_of_the_object_is_back() -> None:
    cluster = begun("Comparing")
    lost, cluster.pods = cluster.pods, []
    deployment = cluster.children["Deployment", "demo"]
    deployment["status"] |= {"readyReplicas": 0, "availableReplicas": 0}
    for _ in range(40):
        cluster.tick(seconds=30.0)
    assert cluster.body is not None
    cluster.edit(measure=None)
    cluster.tick()
    assert cluster.body is not None
    cluster.pods = lost
    cluster.roll()
    cluster.tick()
    cluster.tick()
    assert cluster.body is None


def test_missing_figures_keep_what_serves_and_use_up_no_row() -> None:
    cluster = begun(blind=True)
    cluster.until("Comparing")
    cluster.serve(1020.0)
    assert cluster.body is None
    assert (cluster.serving, cluster.verdicts()) == (A, {})
    cluster.blind = False
    cluster.now += 3600.0
    cluster.serve(1800.0)
    assert cluster.serving == C


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        ({"status": {"containerStatuses": [{"name": "engine", "restartCount": 1}], "conditions": [
            {"type": "Ready", "status": "True"}]}}, "Failed"),
        ({"spec": {"priority": 10}}, None),
    ],
)  # fmt: skip
def test_a_candidate_that_crashes_or_may_displace_others_goes(fault: dict[str, Any], verdict: str | None) -> None:
    cluster = begun("Comparing")
    cluster.shape = fault
    cluster.serve(60.0)
    assert cluster.body is None
    assert cluster.verdicts().get(B) == verdict
    assert cluster.serving == A


def test_without_room_the_candidate_goes_and_the_row_is_measured_later() -> None:
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    cluster = begun(starts=1e9)
    cluster.shape = {"status": {"phase": "Pending", "conditions": [{**full, "lastTransitionTime": timestamp(NOW)}]}}
    cluster.serve(300.0)
    assert cluster.body is None
    assert cluster.measured["reason"] == "CandidateRemoved"
    assert "0/1 nodes" in cluster.measured["message"]
    cluster.serve(1800.0)
    assert cluster.made == [B]
    cluster.shape, cluster.starts = {}, 30.0
    cluster.now += 1800.0
    cluster.serve(1500.0)
    assert cluster.made[1] == B
    assert cluster.serving != A


def test_an_object_by_that_name_which_is_not_ours_is_left_alone() -> None:
    cluster = begun()
    cluster.body = {"metadata": {"name": "demo-candidate", "uid": "theirs"}, "spec": {}}
    cluster.serve(600.0)
    assert cluster.made == []
    assert "does not own" in cluster.measured["message"]
    cluster.edit(measure=None)
    cluster.serve(60.0)
    assert cluster.body is not None


@settings(max_examples=10, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(("of", "reason", "message", "candidate", "verdicts", "pausedUntil", "generation")),
        st.none() | st.text() | st.integers() | st.lists(st.none() | st.dictionaries(st.text(), st.text())),
    )
)
def test_a_garbled_status_starts_anew_and_harms_nothing(block: dict[str, Any]) -> None:
    cluster = begun("Comparing")
    cluster.status["measured"] = block | {"reason": "CandidateMeasured"}
    before = cluster.deployment
    cluster.serve(60.0)
    assert cluster.deployment["spec"]["template"] == before["spec"]["template"]


def test_the_candidate_serves_the_version_that_serves_under_the_same_name_with_one_replica() -> None:
    cluster = Measuring(capabilities=LOOKING, catalogue=rows(row("RedHatAI/Qwen3-8B-speculator.eagle3"),
                                                            row("Qwen/Qwen3-0.6B", "draft_model", k=2)))  # fmt: skip
    advance(cluster)
    cluster.serve(120.0)
    body = cluster.body
    assert body is not None
    assert body["spec"]["verifier"] == {
        "model": f"hf://{VERIFIER}", "servedName": cluster.spec.verifier.served_name, "revision": "a" * 40,
    }  # fmt: skip
    assert body["spec"]["speculator"] == {"method": "draft_model", "model": "hf://Qwen/Qwen3-0.6B"}
    assert (body["spec"]["replicas"], body["spec"]["speculation"]) == (1, {"numSpeculativeTokens": 2})
    assert body["metadata"]["name"] == "demo-candidate"


def test_by_their_priority_pods_that_may_displace_others_are_measured_with_a_class_of_their_own() -> None:
    cluster = begun()
    for one in cluster.pods:
        one["spec"]["priority"] = 10
    cluster.serve(300.0)
    assert cluster.made == []
    assert "priorityClassName" in cluster.measured["message"]
    cluster.annotate(measure=MeasuringTold(900, "spare"))
    cluster.serve(60.0)
    assert cluster.body is not None
    assert cluster.body["spec"]["template"]["spec"] == {"priorityClassName": "spare"}


def test_other_numbers_of_replicas_end_no_measurement() -> None:
    cluster = begun("Comparing")
    deployment = cluster.children["Deployment", "demo"]
    cluster.edit(replicas=3)
    cluster.tick(observed(cluster))
    deployment["status"] |= {"observedGeneration": deployment["metadata"]["generation"], "replicas": 3,
                             "updatedReplicas": 3, "readyReplicas": 1, "availableReplicas": 1}  # fmt: skip
    cluster.tick(observed(cluster))
    cluster.roll()
    cluster.serve(60.0)
    cluster.edit(replicas=1)
    cluster.tick(observed(cluster))
    cluster.serve(60.0)
    assert cluster.made == [B]
    assert cluster.measured["candidate"]["phase"] == "Comparing"
