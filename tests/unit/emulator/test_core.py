"""The engine core in virtual time: admission, chunks, look-up one step later, preemption, ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.emulator.building import Run, configured, quiet, speculation

from speculative_lab.emulator import assembly
from speculative_lab.emulator.acceptance import AcceptanceTable
from speculative_lab.emulator.assembly import constant
from speculative_operator.domain.spec import Workload


def test_one_request_without_speculation() -> None:
    run = Run(configured(), quiet())
    request = run.add(prompt=10, output=3)
    run.until_idle()
    assert [result.generated_tokens for result in run.results] == [1, 1, 1]
    assert [result.prefill_tokens for result in run.results] == [10, 0, 0]
    assert request.done
    assert (request.generated, request.scheduled, request.last_token) == (3, 0.0, run.now)
    assert run.now == pytest.approx(sum(result.seconds for result in run.results))


def test_output_is_cut_at_the_target_but_acceptance_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    certain = AcceptanceTable(3, lambda _: np.ones(3), 0.0, False)
    monkeypatch.setattr(assembly, "acceptance_table", lambda *_: certain)
    run = Run(configured(*speculation(3)), quiet())
    run.add(prompt=10, output=6)
    run.until_idle()
    assert [result.generated_tokens for result in run.results] == [1, 4, 1]
    assert [result.accepted.tolist() for result in run.results] == [[], [3], [3]]


def test_chunked_prefill_shares_the_budget_with_decodes() -> None:
    run = Run(configured("--max-num-batched-tokens", "256"), quiet())
    first = run.add(prompt=100, output=50)
    run.add(prompt=600, output=5)
    step = run.step()
    assert (step.prefill_tokens, step.scheduled, step.generated_tokens) == (256, 2, 1)
    assert first.first_token == run.now
    step = run.step()
    assert (step.prefill_tokens, step.scheduled) == (255, 2), "one token of the budget decodes"
    assert step.generated_tokens == 1, "an unfinished prefill yields nothing"
    assert run.step().generated_tokens == 2


def test_seats_are_given_in_order_of_arrival() -> None:
    run = Run(configured("--max-num-seqs", "2"), quiet())
    requests = [run.add(prompt=10, output=4) for _ in range(4)]
    run.step()
    assert [request.scheduled for request in requests] == [0.0, 0.0, None, None]
    assert len(run.core.waiting) == 2
    run.until_idle()
    starts = [request.scheduled for request in requests]
    assert starts == sorted(starts, key=lambda start: -1.0 if start is None else start)
    assert requests[2].scheduled == requests[0].last_token


def test_k_is_looked_up_by_scheduled_requests_and_holds_one_step_later() -> None:
    run = Run(configured(*speculation(3, [[1, 1, 3], [2, 256, 1]])), quiet())
    run.add(prompt=10, output=60)
    run.step()
    assert run.results[-1].k == 3
    run.add(prompt=10, output=60)
    step = run.step()
    assert (step.scheduled, step.k) == (2, 1), "the newcomer's prefill counts"
    assert step.draft_tokens == 3, "drafted before it came"
    step = run.step()
    assert (step.draft_tokens, step.k) == (2, 1)


def test_waiting_requests_do_not_count_for_the_look_up() -> None:
    run = Run(configured("--max-num-seqs", "1", *speculation(3, [[1, 1, 3], [2, 256, 0]])), quiet())
    for _ in range(5):
        run.add(prompt=10, output=20)
    run.step()
    assert run.step().draft_tokens == 3


def test_zero_drafts_nothing_and_still_pays_a_drafter_pass() -> None:
    off, zero = Run(configured(), quiet()), Run(configured(*speculation(3, [[1, 256, 0]])), quiet())
    for run in (off, zero):
        for _ in range(8):
            run.add(prompt=50, output=30)
        run.until_idle()
    assert zero.count("spec_decode_num_drafts") == 0
    assert zero.count("spec_decode_num_draft_tokens") == 0
    assert len(zero.results) == len(off.results)
    assert zero.now > off.now * 1.05, "the drafter's pass keeps its KV in step"


@pytest.mark.parametrize("k", [1, 2, 4])
def test_tokens_per_draft_equal_k(k: int) -> None:
    run = Run(configured(*speculation(4, [[1, 256, k]])), quiet())
    for _ in range(5):
        run.add(prompt=20, output=40)
    run.until_idle()
    drafts = run.count("spec_decode_num_drafts")
    assert drafts > 0
    assert run.count("spec_decode_num_draft_tokens") == k * drafts


def test_a_table_that_changes_between_steps() -> None:
    run = Run(configured(*speculation(3, [[1, 256, 3]])), quiet())
    run.add(prompt=10, output=200)
    run.step()
    run.step()
    run.core.lengths = constant(1)
    assert run.step().draft_tokens == 3, "already drafted"
    assert run.step().draft_tokens == 1


def test_v2_runner_drafts_a_draft_model_in_full_but_verifies_less() -> None:
    follows = Run(configured(*speculation(4, [[1, 256, 1]])), quiet())
    ignores = Run(configured(*speculation(4, [[1, 256, 1]]), environment={}), quiet())
    for run in (follows, ignores):
        run.add(prompt=20, output=50)
        run.until_idle()
        assert run.count("spec_decode_num_draft_tokens") == run.count("spec_decode_num_drafts")
    assert ignores.now > follows.now * 1.1


def test_a_schedule_costs_the_v1_runner_its_full_graphs() -> None:
    free, taxed = Run(configured(*speculation(3)), quiet()), Run(configured(*speculation(3, [[1, 256, 3]])), quiet())
    for run in (free, taxed):
        run.add(prompt=20, output=50)
        run.step()
        run.step()
    mixed, tax = (taxed.results[step].seconds - free.results[step].seconds for step in (0, 1))
    assert mixed <= 0.0, "a step with prompt tokens has piecewise graphs in both"
    assert tax == pytest.approx(36 * 8e-6 + 46e-6, rel=0.01)


def test_preemption_takes_the_youngest_and_resumes_it() -> None:
    run = Run(configured("--max-model-len", "512", "--num-gpu-blocks-override", "40"), quiet())
    old, young = run.add(prompt=300, output=100), run.add(prompt=300, output=100)
    run.until_idle()
    assert (old.preemptions, young.preemptions) == (0, 1)
    assert (old.generated, young.generated) == (100, 100)
    assert run.count("num_preemptions") == 1
    assert run.count("prompt_tokens") == 600, "a resumed prompt is not counted again"
    assert run.metrics.histogram("vllm:time_to_first_token_seconds").count == 2
    assert run.metrics.histogram("vllm:inter_token_latency_seconds").count == 198


def test_one_request_of_full_length_always_runs() -> None:
    run = Run(configured("--max-model-len", "512", "--num-gpu-blocks-override", "32", *speculation(4)), quiet())
    for _ in range(2):
        run.add(prompt=400, output=112)
    run.until_idle()
    assert [request.generated for request in run.ended] == [112, 112]


def test_abort_waiting_and_running() -> None:
    run = Run(configured("--max-num-seqs", "2"), quiet())
    first, second, third = (run.add(prompt=10, output=50) for _ in range(3))
    run.step()
    assert run.core.abort(first)
    assert run.core.abort(third)
    assert not run.core.abort(third)
    assert (run.core.running, len(run.core.waiting)) == (1, 0)
    run.until_idle()
    assert run.ended == [second]
    assert first.generated == 1


def test_idle_steps_cost_nothing() -> None:
    run = Run(configured())
    step = run.step()
    assert (step.seconds, step.generated_tokens, run.core.steps) == (0.0, 0, 0)


def test_noise_has_mean_one_and_follows_the_seed() -> None:
    times = [Run(configured(), quiet()), Run(configured()), Run(configured())]
    for run in times:
        run.add(prompt=10, output=800)
        run.until_idle()
    exact, noisy, again = (run.now for run in times)
    assert noisy == pytest.approx(exact, rel=0.01)
    assert noisy == again != exact
    seconds = np.array([result.seconds for result in times[1].results[1:]])
    assert seconds.std() / seconds.mean() == pytest.approx(0.05, abs=0.01)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(1, 60), st.integers(0, 30)), min_size=1, max_size=25),
    st.integers(0, 4),
    st.integers(1, 6),
)
def test_every_request_gets_its_tokens(load: list[tuple[int, int, int]], k: int, seats: int) -> None:
    """Any load, tight memory, any K: all end with exactly their tokens, and nothing is left behind."""
    flags = ("--max-num-seqs", str(seats), "--max-model-len", "512", "--num-gpu-blocks-override", "48")
    run = Run(configured(*flags, *speculation(4, [[1, 256, k]])))
    arrivals = sorted(load, key=lambda entry: entry[2])
    requests = []
    for step in range(31):
        requests += [run.add(prompt, output, Workload.CODE) for prompt, output, when in arrivals if when == step]
        run.step()
    run.until_idle()
    assert [request.generated for request in requests] == [request.target for request in requests]
    assert (run.core.running, len(run.core.waiting), run.core.kv_usage) == (0, 0, 0.0)
    assert run.count("generation_tokens") == sum(request.target for request in requests)
    assert run.count("prompt_tokens") == sum(request.prompt_tokens for request in requests)
