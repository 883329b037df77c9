"""When K = 0 has lasted, and what workers leave out then: nothing else, and nothing where anything is odd."""

from __future__ import annotations

import importlib
import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from speculative_operator.domain.spec import EngineType
from speculative_operator.engines.matrix.rows import CELLS
from speculative_operator.payload import speculative_off as off
from speculative_operator.payload import speculative_worker as worker

REQUESTS = {"a": 1, "b": 1}
ROWS = {"a": 0, "b": 1, "c": 2}


def steps(latch: off.Latch, ks: list[int], requests: dict[str, int] | None = None) -> list[bool]:
    at = REQUESTS if requests is None else requests
    return [latch.step(k, k, at, at) for k in ks]


def request(computed: int, tokens: int) -> Any:
    return SimpleNamespace(
        num_computed_tokens=computed, num_tokens=tokens, num_output_placeholders=0, output_token_ids=[1]
    )


def scheduled(**changes: Any) -> Any:
    """vLLM's plan of a step."""
    told = {
        "num_spec_tokens_to_schedule": 0, "scheduled_spec_decode_tokens": {}, "total_num_scheduled_tokens": 2,
        "num_scheduled_tokens": {"a": 1, "b": 1}, "scheduled_new_reqs": [],
    }  # fmt: skip
    return SimpleNamespace(**{**told, **changes})


def telling(missing: int | None) -> Any:
    """The first worker's output, of so many requests that it has missed something of."""
    return SimpleNamespace(speculative_off=(0, "", missing, False))


def off_latch(missing: int | None) -> off.Latch:
    latch = off.Latch(1)
    latch.missing = missing
    return latch


class TestLatch:
    def test_off_begins_when_k_0_has_lasted_and_ends_with_the_first_other_k(self) -> None:
        latch = off.Latch(4)
        assert steps(latch, [0] * 6) == [False] * 3 + [True] * 3
        assert steps(latch, [2]) == [False]
        assert not latch.off
        assert steps(latch, [0] * 4) == [False] * 3 + [True]
        assert latch.steps == 4

    def test_what_flaps_is_never_off(self) -> None:
        assert not any(steps(off.Latch(4), [0, 0, 0, 1] * 50))

    def test_a_drafter_that_catches_up_rests_soon(self) -> None:
        """The load of a peak comes within a second, and vLLM's own K = 0 has the drafter take in all its prompts."""
        latch = off.Latch(64)
        latch.missing = 0
        assert steps(latch, [0] * (off.SOON + 1)) == [False] * (off.SOON - 1) + [True] * 2
        assert not any(steps(latch, [1, *[0] * (off.SOON - 1)] * 20))

    def test_a_tried_k_0_is_off_at_once_and_leaves_no_gap_to_tell(self) -> None:
        latch = off.Latch(4)
        assert [latch.step(k, 2, REQUESTS, REQUESTS) for k in (2, 0, 0, 2)] == [False, True, True, False]
        assert latch.steps == 2
        assert not latch.gapped

    def test_another_k_is_tried_while_off_and_off_goes_on_after_it(self) -> None:
        latch = off.Latch(4)
        steps(latch, [0] * 5)
        assert [latch.step(k, 0, REQUESTS, REQUESTS) for k in (2, 2, 0)] == [False, False, True]

    def test_k_0_of_the_table_that_is_young_is_vllms_own_also_where_it_was_tried_before(self) -> None:
        latch = off.Latch(4)
        assert latch.step(0, 2, REQUESTS, REQUESTS)
        assert not latch.step(0, 0, REQUESTS, REQUESTS)

    @pytest.mark.parametrize(
        ("changes", "off"),
        [
            ({}, True),
            ({"scheduled_spec_decode_tokens": {"a": [7]}, "total_num_scheduled_tokens": 3}, False),
            ({"num_scheduled_tokens": {"a": 1, "p": 7}, "total_num_scheduled_tokens": 8}, False),
            ({"num_scheduled_tokens": {"a": 1, "p": 1}}, False),
        ],
    )
    def test_a_step_is_off_where_nothing_is_verified_and_no_prompt_computed(
        self, changes: dict[str, Any], off: bool
    ) -> None:
        """Where the speculator catches up, prompts do not matter."""
        known = {name: request(9, 10) for name in "ab"} | {"p": request(3, 10)}
        for missing in (None, 0):
            latch, told = off_latch(missing), scheduled(**changes)
            latch.step(0, 0, told.num_scheduled_tokens, known)
            latch.mark(told, known)
            verifies = bool(told.scheduled_spec_decode_tokens)
            assert getattr(told, "speculative_off", False) == (off or (missing == 0 and not verifies))
            assert not hasattr(told, "speculative_catches_up")

    def test_workers_are_told_to_catch_up_until_nothing_is_missing(self) -> None:
        known = {name: request(9, 10) for name in "abc"}

        def drafting(**changes: Any) -> Any:
            told = scheduled(num_spec_tokens_to_schedule=2, **changes)
            latch.step(2, 2, told.num_scheduled_tokens, known)
            latch.mark(told, known)
            return told

        latch = off_latch(0)
        cached = {"scheduled_new_reqs": [SimpleNamespace(num_computed_tokens=16)]}
        assert not hasattr(drafting(**cached), "speculative_catches_up"), "it was never off"
        latch.step(0, 0, known, known)
        first, second = drafting(), drafting()  # the second is planned before the first has told
        assert first.speculative_catches_up == second.speculative_catches_up == 1
        latch.hear(first, telling(2))
        assert drafting().speculative_catches_up
        latch.hear(second, telling(0))
        assert not hasattr(drafting(), "speculative_catches_up")
        assert drafting(**cached).speculative_catches_up, "with blocks that were written while off, maybe"
        fresh = {"scheduled_new_reqs": [SimpleNamespace(num_computed_tokens=0)]}
        assert not hasattr(drafting(**fresh), "speculative_catches_up")
        late = drafting(**cached)
        latch.step(0, 0, known, known)
        latch.hear(late, telling(0))
        assert drafting().speculative_catches_up, "it was off again before that was told"
        latch.hear(late, telling(None))
        assert not hasattr(drafting(**cached), "speculative_catches_up"), "EAGLE heads cannot"

    def test_requests_that_were_there_have_gaps_until_they_end(self) -> None:
        latch = off.Latch(2)
        steps(latch, [0, 0, 0])
        assert set(latch.gapped) == {"a", "b"}
        steps(latch, [3], {"b": 1, "c": 1})
        assert set(latch.gapped) == {"b"}
        steps(latch, [3], {"c": 1})
        assert not latch.gapped

    def test_drafts_of_those_that_were_there_are_counted_by_their_age_since(self) -> None:
        latch = off.Latch(2)
        steps(latch, [0, 0, 0])
        steps(latch, [3], {"a": 1, "b": 1, "c": 1})
        verified = SimpleNamespace(scheduled_spec_decode_tokens={"a": [7] * 3, "c": [7] * 3})
        output = SimpleNamespace(sampled_token_ids=[[5, 5], [5], [5, 5, 5, 5]], req_id_to_index=ROWS)
        for _ in range(20):
            latch.count_drafts(verified, output)
        assert latch.drafts == {"32": (3 * 17, 17), "128": (9, 3), "512": (0, 0), "+Inf": (0, 0)}
        steps(latch, [0, 0, 3])
        latch.count_drafts(verified, output)
        assert latch.drafts["32"] == (3 * 18, 18), "off again: their ages begin anew"

    @pytest.mark.parametrize(
        "output",
        [
            SimpleNamespace(),
            SimpleNamespace(sampled_token_ids=[], req_id_to_index={}),
            SimpleNamespace(sampled_token_ids=[[], [], []], req_id_to_index=ROWS),
        ],
    )
    def test_nothing_that_was_sampled_is_no_draft(self, output: Any) -> None:
        latch = off.Latch(1)
        steps(latch, [0, 0, 3])
        latch.count_drafts(SimpleNamespace(scheduled_spec_decode_tokens={"a": [7]}), output)
        latch.count_drafts(SimpleNamespace(scheduled_spec_decode_tokens={}), None)
        assert set(latch.drafts.values()) == {(0, 0)}

    def test_the_pod_says_how_long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(off.VARIABLE, raising=False)
        assert off.from_environment() is None
        monkeypatch.setenv(off.VARIABLE, "64")
        assert off.from_environment() is not None
        for odd in ("0", "-1", "many"):
            monkeypatch.setenv(off.VARIABLE, odd)
            with pytest.raises(ValueError, match=r"."):
                off.from_environment()

    def test_what_the_first_worker_tells_is_known(self) -> None:
        latch = off.Latch(1)
        latch.hear(scheduled(), SimpleNamespace(speculative_off=(7, "", 2, True)))
        assert (latch.rested, latch.missing, latch.behind) == (7, 2, True)
        with pytest.raises(RuntimeError, match="an error"):
            latch.hear(scheduled(), SimpleNamespace(speculative_off=(8, "an error", None, False)))

    @pytest.mark.parametrize("odd", [None, 3, (1,), (7, "", 2), [1, ""], SimpleNamespace()])
    def test_what_tells_nothing_changes_nothing_unless_a_step_was_to_be_off(self, odd: object) -> None:
        latch = off_latch(2)
        latch.hear(scheduled(), SimpleNamespace(speculative_off=odd))
        assert (latch.rested, latch.missing, latch.behind) == (0, 2, False)
        with pytest.raises(RuntimeError, match="no worker says"):
            latch.hear(scheduled(speculative_off=True), SimpleNamespace(speculative_off=odd))


class Drafts:
    """vLLM's tensor of drafts, as far as it is looked at."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __getitem__(self, rows: slice) -> Drafts:
        return Drafts(min(rows.stop, self.rows))


TORCH: Any = SimpleNamespace()


def ALONE() -> Any:  # noqa: N802
    return SimpleNamespace(world_size=1)


def config(**changes: Any) -> Any:
    drafter = {"method": "eagle3", "draft_sample_method": "greedy"}
    parallel = dict.fromkeys(
        (
            "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size", "tensor_parallel_size",
            "world_size_across_dp",
        ),
        1,
    )  # fmt: skip
    return SimpleNamespace(
        speculative_config=SimpleNamespace(**{name: changes.get(name, value) for name, value in drafter.items()}),
        parallel_config=SimpleNamespace(**{name: changes.get(name, value) for name, value in parallel.items()}),
        kv_transfer_config=changes.get("kv_transfer_config"),
        model_config=SimpleNamespace(is_hybrid=changes.get("is_hybrid", False)),
    )


class Speculator:
    """vLLM's, which tells how many passes it was asked for."""

    def __init__(self) -> None:
        self.num_speculative_steps = 3
        self.draft_tokens = self.drafts = Drafts(4)
        self.passes: list[int] = []

    def propose(
        self, input_batch: Any, *, num_speculative_tokens: int | None = None, dummy_run: bool = False
    ) -> Drafts:
        self.passes.append(self.num_speculative_steps)
        return self.draft_tokens[: input_batch.num_reqs]


class Runner:
    """As much of vLLM's V2 runner as is changed."""

    def __init__(self, served: Any = None) -> None:
        self.vllm_config = served or config()
        self.speculator: Any = Speculator()
        self.batch = SimpleNamespace(num_reqs=2, req_ids=["a", "b"])

    def execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> None:
        self.plan = scheduler_output

    def sample_tokens(self, grammar_output: Any) -> Any:
        drafts = self.speculator.propose(self.batch, num_speculative_tokens=self.plan.num_spec_tokens_to_schedule)
        assert drafts.rows == 2
        return SimpleNamespace(model_runner_output=SimpleNamespace(req_ids=["a", "b"]))

    def step(self, plan: Any) -> Any:
        """What vLLM's worker gives for a step."""
        self.execute_model(plan)
        return self.sample_tokens(None).model_runner_output


def plan(k: int = 0, off: bool = True) -> Any:
    told = SimpleNamespace(num_spec_tokens_to_schedule=k, num_scheduled_tokens={"a": 1, "b": 1})
    if off:
        told.speculative_off = True
    return told


@pytest.fixture
def runners(monkeypatch: pytest.MonkeyPatch) -> type[Runner]:
    monkeypatch.setattr(worker, "STATE", worker._State())
    changed = type("Changed", (Runner,), dict(Runner.__dict__))
    worker.change(changed, TORCH, ALONE)
    return changed


class TestWorker:
    def test_in_an_off_step_the_speculator_does_not_run(self, runners: type[Runner]) -> None:
        runner = runners()
        speculator = runner.speculator
        assert runner.step(plan()).speculative_off == (1, "", None, False)
        assert speculator.passes == []
        runner.step(plan(off=False))
        runner.step(plan(2, off=False))
        assert speculator.passes == [3, 3], "EAGLE heads of vLLM stop at K by themselves"

    def test_a_look_up_has_no_gaps(self, runners: type[Runner]) -> None:
        runner = runners(config(method="ngram"))
        assert runner.step(plan()).speculative_off == (1, "", 0, False)
        assert runner.speculator.passes == []

    @pytest.mark.parametrize(
        "changes",
        [
            {"method": "suffix"},
            {"draft_sample_method": "probabilistic"},
            {"pipeline_parallel_size": 2, "world_size_across_dp": 2},
            {"data_parallel_size": 2, "world_size_across_dp": 2},
            {"decode_context_parallel_size": 2, "tensor_parallel_size": 2, "world_size_across_dp": 2},
            {"world_size_across_dp": 2},
            {"kv_transfer_config": object()},
            {"is_hybrid": True},
        ],
    )
    def test_where_it_was_not_proven_the_speculator_always_runs(
        self, runners: type[Runner], changes: dict[str, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        runner = runners(config(**changes))
        with caplog.at_level(logging.WARNING):
            outputs = [runner.step(plan()) for _ in range(3)]
        assert len(runner.speculator.passes) == 3
        assert outputs[-1].speculative_off[1]
        assert len(caplog.records) == 1

    @pytest.mark.parametrize("missing", ["kv_transfer_config", "parallel_config", "model_config"])
    def test_whatever_is_missing_the_step_is_vllms_own(self, runners: type[Runner], missing: str) -> None:
        runner = runners()
        delattr(runner.vllm_config, missing)
        for _ in range(2):
            runner.step(plan())
        assert len(runner.speculator.passes) == 2
        assert worker.STATE.refused

    def test_what_fails_in_an_off_step_ends_off_with_it(self, runners: type[Runner]) -> None:
        """Other ranks leave the speculator out of it: the scheduler is told, and the next time none agrees."""
        runner = runners()
        runner.step(plan())
        # nothing that keeps in mind what is missed
        worker.STATE.unseen = SimpleNamespace(requests=0, behind=False, learn=lambda plan: None)
        assert runner.step(plan()).speculative_off[:2] == (2, worker.STATE.refused)
        assert "rest" in worker.STATE.refused
        runner.step(plan(2, off=False))
        runner.step(plan())
        assert len(runner.speculator.passes) == 2

    def test_what_cannot_be_told_to_the_scheduler_ends_off_and_the_next_step_tells_that(
        self, runners: type[Runner], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runner = runners()
        runner.step(plan())
        silent = SimpleNamespace(rest=lambda batch: None, learn=lambda plan: None)
        monkeypatch.setattr(worker.STATE, "unseen", silent)
        assert not hasattr(runner.step(plan()), "speculative_off")
        assert runner.step(plan(off=False)).speculative_off == (2, worker.STATE.refused, None, False)

    def test_a_runner_without_a_speculator_is_left_alone(self, runners: type[Runner]) -> None:
        runner = runners()
        runner.speculator = None
        runner.execute_model(plan(off=False))
        assert not worker.STATE.refused

    def test_a_runner_that_lacks_a_method_is_left_as_it_is(self) -> None:
        lacking = type("Lacking", (), {"execute_model": Runner.execute_model})
        with pytest.raises(AttributeError):
            worker.change(lacking, TORCH, ALONE)
        assert lacking.execute_model is Runner.execute_model  # type: ignore[attr-defined]

    def test_where_vllm_lacks_a_hook_nothing_is_changed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
        monkeypatch.setattr(worker, "STATE", worker._State())
        worker.install()
        assert "GPUModelRunner" in worker.STATE.refused

    def test_payload_and_adapter_agree(self) -> None:
        assert set(worker.METHODS) == {str(cell.method) for cell in CELLS[EngineType.VLLM] if cell.skips}

    def test_it_is_imported_without_vllm(self) -> None:
        assert importlib.reload(worker).Extension().speculative_rested()[0] == 0
