"""Adaptive verification: which drafts are verified, and that it counts as vLLM counts it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.emulator.building import Run, configured, speculation

from speculative_lab.emulator.budget import verified_drafts
from speculative_lab.emulator.settings import Settings
from speculative_operator.domain.spec import Workload

ADAPTIVE: dict[str, Any] = {"enable_adaptive_verification": True}
V2: dict[str, str] = {}


@st.composite
def steps(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, np.ndarray]:
    """Survival, drafts, sampling requests and seconds of a small step."""
    count, k = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    chances = st.lists(st.floats(0.0, 1.0), min_size=k, max_size=k)
    survival = np.array([sorted(draw(chances), reverse=True) for _ in range(count)])
    drafts = np.array([draw(st.integers(1, k)) for _ in range(count)])
    length = int(drafts.sum()) + 1
    more = draw(st.lists(st.floats(0.0, 1.0), min_size=length, max_size=length))
    return survival, drafts, count + draw(st.integers(0, 2)), 1.0 + np.cumsum(more)


@given(steps())
def test_no_other_choice_gives_more_tokens_per_second(step: tuple[np.ndarray, np.ndarray, int, np.ndarray]) -> None:
    survival, drafts, sampling, seconds = step
    chosen = verified_drafts(survival, drafts, sampling, seconds)
    assert (chosen <= drafts).all()

    def speed(lengths: tuple[int, ...]) -> float:
        tokens = sampling + sum(survival[row, :length].sum() for row, length in enumerate(lengths))
        return float(tokens / seconds[sum(lengths)])

    best = max(speed(one) for one in itertools.product(*(range(most + 1) for most in drafts)))
    assert speed(tuple(chosen.tolist())) == pytest.approx(best)


def test_drafts_that_cost_nothing_are_all_verified_and_hopeless_ones_are_not() -> None:
    survival, drafts = np.array([[0.9, 0.5], [0.2, 0.1]]), np.array([2, 1])
    assert verified_drafts(survival, drafts, 2, np.ones(4)).tolist() == [2, 1]
    assert verified_drafts(survival, drafts, 2, np.array([1.0, 1.3, 1.6, 1.9])).tolist() == [1, 0]
    assert verified_drafts(survival, drafts, 2, np.array([1.0, 9.0, 18.0, 27.0])).tolist() == [0, 0]


def run(load: int, k: int, *, adaptive: bool, steps: int = 200, workload: Workload = Workload.CREATIVE) -> Run:
    flags = speculation(k, method="eagle3", model="RedHatAI/Qwen3-8B-speculator.eagle3", **ADAPTIVE if adaptive else {})
    config = configured("--max-cudagraph-capture-size", "1024", *flags, environment=V2)
    engine = Run(config, Settings(step_noise=0.0, acceptance_spread=0.8))
    for _ in range(load):
        engine.add(200, 10_000, workload)
    for _ in range(steps):
        engine.step()
    return engine


def speed(engine: Run) -> float:
    late = engine.results[20:]
    return sum(one.generated_tokens for one in late) / sum(one.seconds for one in late)


def test_a_full_engine_gains_and_an_idle_one_is_as_it_was() -> None:
    assert speed(run(256, 7, adaptive=True)) > 1.2 * speed(run(256, 7, adaptive=False))
    assert speed(run(4, 3, adaptive=True)) == speed(run(4, 3, adaptive=False))


def test_counters_tell_what_was_offered_and_not_what_was_verified() -> None:
    """A draft that was not verified counts as drafted and not accepted, as vLLM's scheduler sees it."""
    engine = run(256, 7, adaptive=True)
    offered = sum(one.draft_tokens for one in engine.results)
    verified = sum(one.verified_tokens for one in engine.results)
    assert verified < 0.5 * offered
    assert engine.count("spec_decode_num_draft_tokens") == offered
    assert engine.count("spec_decode_num_accepted_tokens") == sum(int(one.accepted.sum()) for one in engine.results)
    assert engine.count("spec_decode_num_accepted_tokens") <= verified
    whole = run(256, 7, adaptive=False)
    assert sum(one.verified_tokens for one in whole.results) == sum(one.draft_tokens for one in whole.results)


@pytest.mark.parametrize("workload", [Workload.CREATIVE, Workload.CODE])
@pytest.mark.parametrize("load", [32, 256])
def test_drafts_that_are_left_out_would_hardly_have_been_accepted(load: int, workload: Workload) -> None:
    """So the acceptance of what was offered stays near that of the text, whatever the load: the tuner may take it from
    one load to another. That of what was verified is that of a choice."""

    def accepted(engine: Run, of: str) -> float:
        late = engine.results[20:]
        return sum(int(one.accepted.sum()) for one in late) / sum(int(getattr(one, of)) for one in late)

    plain, trimmed = (run(load, 3, adaptive=adaptive, workload=workload) for adaptive in (False, True))
    truth = accepted(plain, "draft_tokens")
    assert accepted(trimmed, "draft_tokens") == pytest.approx(truth, rel=0.20)
    if load == 256:
        assert accepted(trimmed, "verified_tokens") > 1.1 * truth


def test_the_key_changes_nothing_where_nothing_estimates_drafts() -> None:
    config = configured(*speculation(3, method="ngram", model=None, **ADAPTIVE), environment=V2)
    assert not config.verifies_adaptively
