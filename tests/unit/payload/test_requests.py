"""Caps by request: who is withheld, who never is, how a request comes back, and what the counters say of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.payload.engine_steps import Clock, Plan, outputs

from speculative_operator.payload.speculative_requests import LEAST_BATCH, PROBE_EVERY, Caps
from speculative_operator.payload.speculative_telemetry import Meter

K = 3


class Engine:
    """Synchronous steps of `batch` requests, each accepting a fixed number of drafts when it has that many."""

    def __init__(self, accepts: dict[str, int]) -> None:
        self.accepts = accepts
        self.requests = {name: SimpleNamespace(spec_token_ids=[]) for name in accepts}
        self.caps = Caps()
        self.emitted = dict.fromkeys(accepts, 0)

    def step(self) -> dict[str, int]:
        """Drafts verified by request in this step; then all are given K new ones."""
        drafts = {name: len(request.spec_token_ids) for name, request in self.requests.items()}
        plan = Plan(drafts)
        taken = {name: min(self.accepts[name], count) for name, count in drafts.items()}
        names = list(drafts)
        sampled = [[7] * (taken[name] + 1) for name in names]
        self.caps.sampled(plan, self.output(names, sampled), self.requests)
        for name in names:
            self.emitted[name] += taken[name] + 1
            self.requests[name].spec_token_ids = [5] * K
        self.caps.drafted(names, self.requests)
        return drafts

    @staticmethod
    def output(names: list[str], sampled: list[list[int]]) -> Any:
        return SimpleNamespace(
            sampled_token_ids=sampled, req_id_to_index={name: place for place, name in enumerate(names)}
        )


def engine(good: int = 0, bad: int = 0, fair: int = 0) -> Engine:
    kinds = {"good": (good, K), "fair": (fair, 1), "bad": (bad, 0)}
    return Engine({f"{kind}{n}": accepted for kind, (count, accepted) in kinds.items() for n in range(count)})


def test_only_requests_whose_drafts_are_rejected_are_withheld() -> None:
    subject = engine(good=6, bad=6, fair=6)
    steps = [subject.step() for _ in range(100)]
    assert all(drafts["good0"] == drafts["fair0"] == K for drafts in steps[1:])
    cut = next(number for number, drafts in enumerate(steps) if number and drafts["bad0"] == 0)
    assert 10 <= cut <= 30, "soon, but not on a few rejections"
    after = [drafts["bad0"] for drafts in steps[cut:]]
    assert set(after) == {0, 1}
    assert after.count(1) == len(after) // PROBE_EVERY


def test_a_request_comes_back_as_soon_as_its_text_becomes_predictable() -> None:
    subject = engine(bad=LEAST_BATCH)
    for _ in range(60):
        subject.step()
    assert subject.requests["bad0"].spec_token_ids == []
    subject.accepts["bad0"] = K
    back = next(number for number in range(200) if subject.step()["bad0"] == K)
    assert back <= 2 * PROBE_EVERY + 1


def test_small_batches_are_left_alone() -> None:
    subject = engine(bad=LEAST_BATCH - 1)
    assert all(set(subject.step().values()) == {K} for _ in range(100) if subject.emitted["bad0"])


def test_records_of_requests_that_ended_are_dropped() -> None:
    subject = Caps()
    for number in range(5000):
        name = str(number)
        requests = {name: SimpleNamespace(spec_token_ids=[1])}
        subject.sampled(Plan({name: 1}), Engine.output([name], [[7]]), requests)
    assert len(subject._records) < 100


def test_requests_that_vanished_or_have_no_drafts_are_passed_over() -> None:
    subject = engine(bad=LEAST_BATCH)
    for _ in range(60):
        subject.step()
    names = list(subject.requests)
    subject.requests["bad1"].spec_token_ids = []
    del subject.requests["bad0"]
    subject.caps.drafted([*names, "stranger"], subject.requests)
    assert subject.requests["bad1"].spec_token_ids == []


def test_an_output_without_tokens_is_no_verification() -> None:
    subject = Caps()
    subject.sampled(Plan({"a": 2}), SimpleNamespace(sampled_token_ids=[], req_id_to_index={"a": 0}), {})
    subject.sampled(Plan({"a": 2}), Engine.output(["a"], [[]]), {})
    assert subject._records == {}


@settings(deadline=None)
@given(st.lists(st.integers(0, K), min_size=LEAST_BATCH, max_size=12), st.integers(1, 80))
def test_a_cap_only_takes_away(accepts: list[int], steps: int) -> None:
    """Every step of every request emits a token at least, and never verifies more than was drafted."""
    subject = Engine({str(number): count for number, count in enumerate(accepts)})
    for _ in range(steps):
        assert all(0 <= count <= K for count in subject.step().values())
    assert all(count >= steps for count in subject.emitted.values())


def test_what_is_withheld_counts_as_drafted_and_rejected() -> None:
    """So that the survival of a position stays that of a draft which the table asks for."""
    clock = Clock()
    meter = Meter((0, K), varied=False, clock=clock)
    prompt = Plan({}, {"a": 4}, next_k=K)
    meter.scheduling()
    meter.scheduled(prompt)
    clock.now += 1
    meter.finished(prompt, outputs({}, prompt, first=["a"]), True)
    plan = Plan({"a": K, "b": 0, "c": 1}, next_k=K)
    subject = Caps()
    subject._withheld = {"b": (0, K), "c": (1, K), "absent": (0, K)}
    withheld = subject.withheld(plan, 8)
    assert withheld == [1, 2, 2, 0, 0, 0, 0, 0]
    meter.scheduling()
    meter.scheduled(plan)
    clock.now += 1
    meter.finished(plan, outputs({"a": 3, "b": 0, "c": 0}, plan), True, withheld)
    assert meter.positions == {K: ((3, 3, 3, 0, 0, 0, 0, 0), (1, 1, 1, 0, 0, 0, 0, 0))}
    everything_withheld = Plan({"b": 0})
    meter.scheduling()
    meter.scheduled(everything_withheld)
    clock.now += 1
    meter.finished(everything_withheld, outputs({"b": 0}, everything_withheld), True, [1, 1, 1])
    assert (K, 1) in meter.cells, "a step of the table's K, not of K 0"
    assert meter.positions[K][0][:3] == (4, 4, 4)
