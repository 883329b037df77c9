"""The analysis of a canary: it goes on only by what was compared, ends the same whenever the operator ends, and its
weight is that of the stored status."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.comparing.drawn import samples
from tests.unit.reconcile.worlds import NOW, SPEC, Cluster

from speculative_operator.comparing.verdict import Comparison, Judged, Measure, Verdict
from speculative_operator.domain.memo import Memo
from speculative_operator.domain.platform import Analysis, Canary, CanarySeen, Promotion, Route
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Method, Speculator
from speculative_operator.reconcile.observed import canary
from speculative_operator.reconcile.snapshot.canaries import Phase, Progress, read
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.reconcile.world import Evidence, Record
from speculative_operator.render import Capabilities

ANALYSIS = Analysis((5, 25, 50), 120, 600, 5, 25, 50)
HEAD = Speculator(Method.EAGLE3)
NEXT = replace(SPEC, name="next", speculator=HEAD)
SEEN = CanarySeen(SPEC.verifier.served_name, service=True, answering=1, made_of="a", restarts=2)
LOOKED = Evidence(Record(), Record(), NEXT)
TICK = 30.0
GOOD, BAD, OPEN = Verdict.BETTER, Verdict.WORSE, Verdict.UNDECIDED


def saying(verdict: Verdict, low: float = 1.06) -> Comparison:
    """A comparison with this verdict; a worse one is worse by 6 to 9 %."""
    judged = Judged(Measure.TPOT, verdict, "", 0.010, 0.0107, 1.07, low, 1.09)
    return Comparison(verdict, "the interval is too wide", (judged,))


def led(analysis: Analysis = ANALYSIS, **more: Any) -> Any:
    return replace(SPEC, route=Route("public", canary=Canary("next", 0, analysis)), **more)


_WORLD = Cluster(spec=led(), capabilities=Capabilities(http_route=True)).snapshot()
BASE = replace(_WORLD, rollout=replace(_WORLD.rollout, ready=1))


@pytest.fixture(autouse=True)
def verdicts(monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    """What comparisons say from now on: the last entry."""
    said = [GOOD]
    monkeypatch.setattr(canary, "compare", lambda *_: saying(said[-1]))
    return said


def weight_of(world: Snapshot) -> int:
    assert world.spec.route is not None
    assert world.spec.route.canary is not None
    return world.spec.route.canary.weight


@dataclass
class Life:
    """An analysis from look to look; what is stored goes through the form that a status has."""

    said: list[Verdict]
    analysis: Analysis = ANALYSIS
    now: float = NOW
    stored: dict[str, Any] = field(default_factory=dict)
    accept: str = ""
    weights: list[int] = field(default_factory=list)

    def world(self, seen: CanarySeen | None = SEEN, evidence: Evidence | None = LOOKED) -> Snapshot:
        status = replace(BASE.status, canary=read(self.stored))
        spec = led(self.analysis, accept=self.accept)
        return canary.weighed(replace(BASE, spec=spec, status=status, canary=seen, evidence=evidence, memo=Memo()))

    def look(
        self, verdict: Verdict = GOOD, *, seen: CanarySeen | None = SEEN, evidence: Evidence | None = LOOKED,
        lost: bool = False,
    ) -> Progress:  # fmt: skip
        """One look; `lost`: the operator ended before the status was stored."""
        self.said.append(verdict)
        world = self.world(seen, evidence)
        self.weights.append(weight_of(world))
        found = canary.follow(world, self.now)
        assert found is not None
        if not lost:
            self.stored = found.to_status()
            assert read(self.stored) == replace(found, since=found.since and float(int(found.since)))
        self.now += TICK
        return found

    def until_the_end(self, verdict: Verdict, lost: tuple[bool, ...] = ()) -> Progress:
        for number in range(100):
            ends = number < len(lost) and lost[number]
            found = self.look(verdict, evidence=None if number and lost[number - 1 : number] == (True,) else LOOKED,
                              lost=ends)  # fmt: skip
            if found.phase in (Phase.PROMOTED, Phase.TAKEN_BACK) and not ends:
                return found
        raise AssertionError(found)


@pytest.fixture
def life(verdicts: list[Verdict]) -> Life:
    return Life(verdicts)


def test_a_good_canary_is_promoted_step_by_step(life: Life) -> None:
    found = life.until_the_end(GOOD)
    life.look()
    assert (found.phase, found.reason) == (Phase.PROMOTED, Reason.CANARY_PROMOTED)
    assert sorted(set(life.weights)) == [0, 5, 25, 50, 100]
    assert life.weights == sorted(life.weights)
    assert life.weights.count(25) == ANALYSIS.step_seconds / TICK, "no shorter than a step, and no longer"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"verdict": BAD}, Reason.CANARY_WORSE),
        ({"seen": replace(SEEN, restarts=3)}, Reason.CANARY_FAILED),
        ({"seen": replace(SEEN, outputs_differ=True), "evidence": None}, Reason.CANARY_FAILED),
        ({"evidence": replace(LOOKED, canary=Record((), 1000.0, 3000.0, 300.0))}, Reason.CANARY_LOW_ACCEPTANCE),
    ],
)
def test_what_is_worse_is_taken_back_at_once_and_for_good(life: Life, change: dict[str, Any], reason: Reason) -> None:
    life.look()
    life.look()
    found = life.look(**change)
    assert (found.phase, found.reason, found.weight) == (Phase.TAKEN_BACK, reason, 0)
    for _ in range(30):
        assert life.look(GOOD) == replace(found, since=read(life.stored).since)  # type: ignore[union-attr]
    assert life.weights[-1] == 0


@pytest.mark.parametrize("counts", [(400.0, 1200.0, 0.0), (1000.0, 3000.0, 1500.0), (1000.0, 0.0, 0.0)])
def test_acceptance_that_is_as_published_or_not_known_takes_nothing_back(life: Life, counts: tuple[float, ...]) -> None:
    life.look()
    assert life.look(OPEN, evidence=replace(LOOKED, canary=Record((), *counts))).phase is Phase.PROGRESSING


def test_acceptance_that_is_as_low_as_this_objects_is_the_requests_fault(life: Life) -> None:
    life.look()
    low = Record((), 1000.0, 3000.0, 300.0)
    assert life.look(OPEN, evidence=replace(LOOKED, canary=low, stable=low)).phase is Phase.PROGRESSING


def test_undecided_at_the_deadline_is_taken_back_and_not_a_look_before(life: Life) -> None:
    found = life.until_the_end(OPEN)
    assert (found.phase, found.reason) == (Phase.TAKEN_BACK, Reason.CANARY_UNDECIDED)
    assert life.weights.count(5) == ANALYSIS.deadline_seconds / TICK
    assert "the interval is too wide" in found.message


@pytest.mark.parametrize(
    ("measure", "low", "high", "worse"),
    [
        (Measure.TPOT, 1.06, 1.09, True),
        (Measure.TPOT, 1.02, 1.09, False),
        (Measure.TTFT, 1.06, 1.09, False),
        (Measure.TTFT, 1.26, 1.40, True),
        (Measure.TPOT_P99, 1.06, None, True),
        (Measure.THROUGHPUT, 0.8, 0.94, True),
        (Measure.THROUGHPUT, 0.8, 0.97, False),
    ],
)
def test_worse_is_what_is_surely_beyond_the_tolerance(
    life: Life, monkeypatch: pytest.MonkeyPatch, measure: Measure, low: float, high: float | None, worse: bool
) -> None:
    judged = Judged(measure, BAD, "", 1.0, 1.0, 1.0, low, high)
    life.look()
    monkeypatch.setattr(canary, "compare", lambda *_: Comparison(BAD, "", (judged,)))
    assert (life.look().phase is Phase.TAKEN_BACK) is worse


def test_a_look_without_new_samples_compares_nothing_anew(monkeypatch: pytest.MonkeyPatch, life: Life) -> None:
    looked: list[Any] = []

    def compare(*sides: Any) -> Comparison:
        looked.append(sides)
        return saying(OPEN)

    monkeypatch.setattr(canary, "compare", compare)
    life.look()
    world = life.world()
    first, again = canary.follow(world, NOW + 30.0), canary.follow(world, NOW + 45.0)
    assert (first, len(looked)) == (again, 1)
    later = replace(LOOKED, canary=Record(tuple(samples(1, 1))))
    canary.follow(replace(world, evidence=later), NOW + 60.0)
    assert len(looked) == 2


def test_figures_that_are_missing_are_told_at_the_deadline(life: Life) -> None:
    for _ in range(25):
        found = life.look(OPEN, evidence=replace(LOOKED, gap="prometheus is unreachable"))
    assert "prometheus is unreachable" in found.message


def test_a_canary_waits_until_it_can_answer(life: Life) -> None:
    for seen in (None, CanarySeen(), replace(SEEN, answering=0)):
        found = life.look(seen=seen)
        assert (found.phase, found.weight) == (Phase.WAITING, 0)
    assert life.look().phase is Phase.PROGRESSING


def test_a_canary_that_is_out_passes_no_step(life: Life) -> None:
    life.look()
    for _ in range(10):
        assert life.look(seen=replace(SEEN, answering=0)).step == 1
    assert life.look().step == 2


@pytest.mark.parametrize("end", [GOOD, BAD])
def test_another_canary_and_another_analysis_begin_anew(life: Life, end: Verdict) -> None:
    life.until_the_end(end)
    assert life.look(seen=replace(SEEN, made_of="b")).step == 1
    assert life.weights[-1] == 0, "before what is stored speaks of this one"
    life.until_the_end(end)
    life.analysis = replace(ANALYSIS, step_seconds=60)
    assert life.look().phase is Phase.PROGRESSING


def test_what_is_promoted_stays_so_while_nobody_else_could_answer(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    life.until_the_end(GOOD)
    monkeypatch.setitem(globals(), "BASE", replace(BASE, rollout=replace(BASE.rollout, ready=0)))
    assert life.look(seen=replace(SEEN, made_of="b")).phase is Phase.PROMOTED
    assert life.weights[-1] == 100


def test_replicas_of_the_canary_and_its_absence_leave_the_end_as_it_is(life: Life) -> None:
    found = life.until_the_end(GOOD)
    assert life.look(seen=None) == replace(found, since=read(life.stored).since)  # type: ignore[union-attr]


def test_approval_promotes_what_passed_and_nothing_that_became_worse(life: Life) -> None:
    life.analysis = replace(ANALYSIS, promotion=Promotion.APPROVE)
    while (found := life.look()).phase is not Phase.NEEDS_APPROVAL:
        pass
    for _ in range(50):
        assert life.look(OPEN).weight == 50, "there is no deadline for people"
    life.accept = "other"
    assert life.look().phase is Phase.NEEDS_APPROVAL
    life.accept = found.accept
    assert life.look(evidence=None).phase is Phase.NEEDS_APPROVAL
    worse = Life(life.said, life.analysis, life.now, dict(life.stored), life.accept)
    assert worse.look(BAD).phase is Phase.TAKEN_BACK
    assert life.look().phase is Phase.PROMOTED


LOOK = st.tuples(
    st.sampled_from(list(Verdict)),
    st.sampled_from([SEEN, replace(SEEN, answering=0), replace(SEEN, restarts=0), None]),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(LOOK, max_size=60))
def test_the_weight_rises_only_by_a_passed_step(looks: list[tuple[Verdict, CanarySeen | None, bool, bool]]) -> None:
    life, steps = Life([GOOD]), (0, *ANALYSIS.steps, 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canary, "compare", lambda *_: saying(life.said[-1]))
        for verdict, seen, known, lost in looks:
            before = read(life.stored)
            found = life.look(verdict, seen=seen, evidence=LOOKED if known else None, lost=lost)
            held = before.weight if before is not None else 0
            answers = seen is not None and seen.answering > 0
            if found.weight > held:
                assert steps.index(found.weight) == steps.index(held) + 1
                assert answers
                if held:
                    assert known
                    assert verdict in (GOOD, Verdict.EQUIVALENT)
                    assert life.now - TICK - (before.since if before and before.since else 0) >= ANALYSIS.step_seconds
            if not known and before is not None and before.phase is Phase.PROGRESSING:
                assert found.weight == held or found.reason is Reason.CANARY_FAILED
            assert life.weights[-1] == held, "the weight is that of the status as it was stored"


@given(st.sampled_from([GOOD, BAD, OPEN]), st.lists(st.booleans(), max_size=40))
def test_the_end_is_the_same_whenever_the_operator_ends(verdict: Verdict, lost: list[bool]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canary, "compare", lambda *_: saying(verdict))
        ends = [Life([verdict]).until_the_end(verdict, tuple(given)) for given in ([], lost)]
    assert ends[0].phase is ends[1].phase
    assert ends[0].reason is ends[1].reason


WORDS = st.sampled_from(["Promoted", "Progressing", "CanaryPromoted", "next"])


@given(st.dictionaries(st.sampled_from(["of", "phase", "step", "weight", "reason", "name"]), st.integers() | WORDS))
def test_an_absurd_status_never_gives_a_weight(block: dict[str, Any]) -> None:
    life = Life([GOOD], stored=block)
    assert weight_of(life.world()) == 0


def test_the_route_follows_on_a_cluster_and_events_come_once(verdicts: list[Verdict]) -> None:
    cluster = Cluster(spec=led(), capabilities=Capabilities(http_route=True), canary=SEEN)
    cluster.settle()
    cluster.evidence = LOOKED
    told = []

    def share() -> int:
        (rule,) = cluster.children["HTTPRoute", SPEC.name]["spec"]["rules"]
        return int(next((one["weight"] for one in rule["backendRefs"] if one["name"] == "next"), 0))

    shares = []
    for _ in range(40):
        told += [one.reason for one in cluster.tick(seconds=30.0).events]
        shares.append(share())
    assert list(dict.fromkeys(shares)) == [5, 25, 50, 100]
    assert [one for one in told if one.startswith("Canary")] == ["CanaryInStep"] * 2 + ["CanaryPromoted"]
    assert cluster.templates == 1
    cluster.spec = replace(cluster.spec, paused=True)
    cluster.canary = replace(SEEN, answering=0)
    cluster.tick()
    assert cluster.status["canary"]["phase"] == "Promoted"
    cluster.spec = replace(SPEC, generation=3, route=Route("public"))
    cluster.tick()
    assert "canary" not in cluster.status
