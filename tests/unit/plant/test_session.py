"""From scrapes to decisions: figures, changes that come into force, and nothing odd that moves the table."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.plant.scrapes import KNOBS, START, Pod, policy

from speculative_lab.plant import session as module
from speculative_lab.plant.session import Session
from speculative_operator.domain.decision import Decision, Policy
from speculative_operator.domain.observation import Observation
from speculative_operator.engines.vllm.adapter import ENGINE
from speculative_operator.tuner import Memory, decide

STEP = 5.0


def fed(session: Session, pods: dict[str, Pod], scrapes: int, start: float = START) -> list[Decision]:
    """Serve and scrape `scrapes` times, STEP seconds apart; the first scrape is at `start`."""
    return [
        session.feed(start + index * STEP, {name: pod.run(STEP).text() for name, pod in pods.items()})
        for index in range(scrapes)
    ]


def test_windows_join_up_and_figures_are_exact_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Observation] = []

    def spy(memory: Memory, observation: Observation, policy: Policy, now: float) -> tuple[Memory, Decision]:
        looks.append(observation)
        return decide(memory, observation, policy, now)

    monkeypatch.setattr(module, "decide", spy)
    fed(Session(ENGINE, policy()), {"a": Pod(requests=8, steps=100), "b": Pod()}, 4)
    windows = [look.windows["a"] for look in looks if look.windows]
    assert [(one.start - START, one.end - START) for one in windows] == [(0, 5), (5, 10), (10, 15)]
    window = windows[-1]
    assert (window.steps, window.batch, window.drafts, window.mean_k) == (500, 8, 4000, 3)
    assert window.tokens_per_step == pytest.approx(1 + 0.7 + 0.5 + 0.35)
    assert window.kv_capacity_tokens == 80_000


def test_a_change_comes_into_force_and_the_memory_agrees() -> None:
    """Drafts that are never accepted, in a full batch: K must go down, by tables that the session then holds."""
    session, pod = Session(ENGINE, policy()), Pod(requests=60, steps=30, survival=(0.02, 0.0, 0.0))
    first = session.table
    changes = 0
    for index in range(200):
        pod.k = session.table.k_at(pod.requests)
        pod.steps = 100 / (2 + pod.k)
        decision = fed(session, {"a": pod}, 1, START + STEP * index)[0]
        assert session.memory is not None
        assert session.memory.table == session.table
        if decision.changed:
            changes += 1
            assert session.table == decision.table
    assert changes
    assert session.table.k_at(60) < first.k_at(60)


NAMES = (
    "iteration_tokens_total_count", "inter_token_latency_seconds_count", "inter_token_latency_seconds_sum",
    "generation_tokens_total", "prompt_tokens_total", "num_requests_running", "kv_cache_usage_perc",
    "spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total",
    "spec_decode_num_accepted_tokens_per_pos_total",
)  # fmt: skip
VALUES = ("NaN", "+Inf", "-Inf", "-1", "0", "1e15", "9007199254740993", "1e308", "3.5")
ODD = st.one_of(
    st.none(),
    st.just(""),
    st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)),
    st.sampled_from([("steps", 0.0), ("steps", 1e9), ("k", 20), ("survival", (0.5, 0.6, 2.0)), ("speculates", False)]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ODD, min_size=2, max_size=25))
def test_nothing_that_is_scraped_does_harm(events: list[str | tuple[str, object] | None]) -> None:
    """A value that cannot be, an empty page, rates out of this world, a restart without a speculator: no exception, no
    table that the engine cannot run, and no change without a valid decision."""
    session, pods = Session(ENGINE, policy()), {name: Pod(requests=30) for name in "ab"}
    for index, event in enumerate(events):
        texts = {name: pod.run(STEP).text() for name, pod in pods.items()}
        if event == "":
            texts["b"] = ""
        elif isinstance(event, tuple) and event[0] in NAMES:
            texts["b"] = pods["b"].text(**{event[0]: str(event[1])})
        elif isinstance(event, tuple):
            setattr(pods["b"], event[0], event[1])
            texts["b"] = pods["b"].restart().run(1).text()
        before = session.table
        decision = session.feed(START + STEP * index, texts)
        assert session.table.max_batch == KNOBS.max_batch
        assert session.table.ks <= set(KNOBS.ks)
        if not decision.valid:
            assert (decision.changed, session.table) == (False, before)
