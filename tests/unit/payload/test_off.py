"""When K = 0 has lasted, and what workers leave out then: nothing else, and nothing where anything is odd."""

from __future__ import annotations

import importlib
import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from speculative_operator.engines.vllm.capability import OFF_PROVEN, RESTS
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
        "scheduled_cached_reqs": SimpleNamespace(resumed_req_ids=set()),
    }  # fmt: skip
    return SimpleNamespace(**{**told, **changes})


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
    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_a_step_is_off_where_nothing_is_verified_and_no_prompt_computed(
        self, changes: dict[str, Any], off: bool, asynchronous: bool
    ) -> None:
        """Where the drafter catches up, prompts do not matter."""
        known = {name: request(9, 10) for name in "ab"} | {"p": request(3, 10)}
        for missing in (None, 0):
            latch, told = off_latch(missing), scheduled(**changes)
            latch.step(0, 0, told.num_scheduled_tokens, known)
            latch.mark(told, known, asynchronous)
            verifies = bool(told.scheduled_spec_decode_tokens)
            assert getattr(told, "speculative_off", False) == (off or (missing == 0 and not verifies))
            assert not hasattr(told, "speculative_catches_up")

    def test_workers_are_told_to_catch_up_while_something_may_be_missing(self) -> None:
        known = {name: request(9, 10) for name in "abc"}

        def drafting(missing: int | None, **changes: Any) -> Any:
            latch.missing, told = missing, scheduled(num_spec_tokens_to_schedule=2, **changes)
            latch.step(2, 2, told.num_scheduled_tokens, known)
            latch.mark(told, known, asynchronous=True)
            return told

        latch = off.Latch(1)
        joins = {"scheduled_new_reqs": [object()]}
        assert not hasattr(drafting(0, **joins), "speculative_catches_up"), "it was never off"
        latch.step(0, 0, known, known)
        told = drafting(2)
        assert told.speculative_catches_up
        assert told.speculative_ids == {"a": [1], "b": [1]}
        assert drafting(1).speculative_catches_up
        assert not hasattr(drafting(0), "speculative_catches_up")
        assert drafting(0, **joins).speculative_catches_up, "with blocks that were written while off, maybe"
        back = SimpleNamespace(resumed_req_ids={"c"})
        assert drafting(0, scheduled_cached_reqs=back).speculative_catches_up
        assert not hasattr(drafting(None, **joins), "speculative_catches_up"), "EAGLE heads cannot"

    def test_requests_that_were_there_have_gaps_until_they_end(self) -> None:
        latch = off.Latch(2)
        steps(latch, [0, 0, 0])
        assert latch.gapped == {"a", "b"}
        steps(latch, [3], {"b": 1, "c": 1})
        assert latch.gapped == {"b"}
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

    @pytest.mark.parametrize("odd", [None, 3, (1,), (7, "", 2), [1, ""], SimpleNamespace()])
    def test_what_workers_tell_is_taken_or_left(self, odd: object) -> None:
        assert off.told(SimpleNamespace(speculative_off=odd)) is None
        assert off.told(SimpleNamespace(speculative_off=(7, "", 2, True))) == (7, "", 2, True)


class Tensor:
    def __init__(self, rows: int, columns: int) -> None:
        self.shape = (rows, columns)

    def __getitem__(self, rows: slice) -> Tensor:
        return Tensor(min(rows.stop, self.shape[0]), self.shape[1])


TORCH = SimpleNamespace(
    empty=lambda rows, columns, **_: Tensor(rows, columns), is_tensor=lambda x: isinstance(x, Tensor), int64=0
)


def ALONE() -> Any:  # noqa: N802
    return SimpleNamespace(world_size=1)


def config(**changes: Any) -> Any:
    drafter = {"method": "eagle3", "disable_padded_drafter_batch": False, "draft_sample_method": "greedy"}
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


class Runner:
    """What is changed of vLLM's runner, and what it did."""

    def __init__(self, served: Any = None) -> None:
        self.vllm_config = served or config()
        self.device, self.max_num_reqs = "cpu", 4
        self.input_batch = SimpleNamespace(req_ids=["a", "b"])
        self.prev_num_spec_tokens = 3
        self._draft_token_ids: Any = None
        self.done: list[str] = []

    def propose_draft_token_ids(self, plan: Any, *args: Any) -> Any:
        self.done.append("drafted")
        return Tensor(2, 3)

    def _sample(self, logits: Any, verified: Any) -> Any:
        self.done.append("plain" if verified is None else "rejection")
        return logits

    def _copy_draft_token_ids_to_cpu(self, plan: Any) -> None:
        self.done.append("copied")

    def execute_model(self, plan: Any) -> None:
        self.plan = plan

    def step(self, plan: Any) -> Any:
        """As vLLM's worker has it done."""
        self.execute_model(plan)
        return self.sample_tokens(None)

    def sample_tokens(self, grammar: Any) -> Any:
        plan = self.plan
        self._sample(None, SimpleNamespace(num_draft_tokens=[0, 0]))
        self._draft_token_ids = self.propose_draft_token_ids(plan)
        self._copy_draft_token_ids_to_cpu(plan)
        return SimpleNamespace(req_ids=["a", "b"])


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
    def test_in_an_off_step_nothing_of_the_drafter_runs(self, runners: type[Runner]) -> None:
        runner = runners()
        output = runner.step(plan())
        assert runner.done == ["plain"]
        assert runner.prev_num_spec_tokens == 0
        assert output.speculative_off == (1, "", None, False)

    @pytest.mark.parametrize("told", [plan(off=False), plan(2, off=False)])
    def test_in_every_other_step_it_runs(self, runners: type[Runner], told: Any) -> None:
        runner = runners()
        runner.step(plan())
        runner.done.clear()
        runner.step(told)
        assert "drafted" in runner.done
        assert "copied" in runner.done

    def test_drafts_are_verified_by_the_rejection_sampler(self, runners: type[Runner]) -> None:
        runner = runners()
        runner._sample(None, SimpleNamespace(num_draft_tokens=[0, 2]))
        runner._sample(None, None)
        assert runner.done == ["rejection", "plain"]

    @pytest.mark.parametrize(
        "changes",
        [
            {"method": "dflash"},
            {"method": "ngram"},
            {"disable_padded_drafter_batch": True},
            {"draft_sample_method": "probabilistic"},
            {"pipeline_parallel_size": 2, "world_size_across_dp": 2},
            {"data_parallel_size": 2, "world_size_across_dp": 2},
            {"decode_context_parallel_size": 2, "tensor_parallel_size": 2, "world_size_across_dp": 2},
            {"world_size_across_dp": 2},
            {"kv_transfer_config": object()},
            {"is_hybrid": True},
        ],
    )
    def test_where_it_was_not_proven_the_drafter_always_runs(
        self, runners: type[Runner], changes: dict[str, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        runner = runners(config(**changes))
        with caplog.at_level(logging.WARNING):
            outputs = [runner.step(plan()) for _ in range(3)]
        assert runner.done.count("drafted") == 3
        assert outputs[-1].speculative_off[1]
        assert len(caplog.records) == 1

    @pytest.mark.parametrize("missing", ["vllm_config", "max_num_reqs", "device"])
    def test_whatever_is_missing_the_step_is_vllms_own(self, runners: type[Runner], missing: str) -> None:
        runner = runners()
        delattr(runner, missing)
        for _ in range(2):
            runner.step(plan())
        assert runner.done == ["plain", "drafted", "copied"] * 2
        assert worker.STATE.refused

    def test_drafts_that_cannot_be_told_are_copied(self, runners: type[Runner]) -> None:
        runner = runners()
        del runner._draft_token_ids
        runner._copy_draft_token_ids_to_cpu(plan())
        assert runner.done == ["copied"]
        assert worker.STATE.refused

    def test_what_fails_in_an_off_step_ends_off_with_it(self, runners: type[Runner]) -> None:
        """Other ranks leave the drafter out of it: the scheduler is told, and the next time none agrees."""
        runner = runners()
        runner.step(plan())
        worker.STATE.unseen = SimpleNamespace(requests=0, behind=False)  # nothing that keeps in mind what is missed
        assert runner.step(plan()).speculative_off[:2] == (2, worker.STATE.refused)
        assert "rest" in worker.STATE.refused
        runner.step(plan(2, off=False))
        runner.done.clear()
        runner.step(plan())
        assert runner.done == ["plain", "drafted", "copied"]

    def test_what_cannot_be_told_to_the_scheduler_ends_off_and_the_next_step_tells_that(
        self, runners: type[Runner], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runner = runners()
        runner.step(plan())
        monkeypatch.setattr(worker.STATE, "unseen", SimpleNamespace(rest=lambda plan: None, before_pass=print))
        assert not hasattr(runner.step(plan()), "speculative_off")
        assert runner.step(plan(off=False)).speculative_off == (2, worker.STATE.refused, None, False)
        assert runner.done[-3:] == ["plain", "drafted", "copied"]

    def test_odd_metadata_leaves_the_rejection_sampler(self, runners: type[Runner]) -> None:
        runner = runners()
        runner._sample(None, SimpleNamespace(num_draft_tokens=None))
        runner._sample(None, SimpleNamespace(num_draft_tokens=[0]))
        assert runner.done == ["rejection", "rejection"]

    def test_a_runner_that_lacks_a_method_is_left_as_it_is(self) -> None:
        lacking = type("Lacking", (), {"_sample": Runner._sample})
        with pytest.raises(AttributeError):
            worker.change(lacking, TORCH, ALONE)
        assert lacking._sample is Runner._sample  # type: ignore[attr-defined]

    @pytest.mark.parametrize("version", ["0.24.0", "0.30.1", "0.34.0", "1.0", "odd", ""])
    def test_on_other_releases_nothing_is_changed(self, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
        module = ModuleType("vllm")
        module.__dict__["__version__"] = version
        monkeypatch.setitem(sys.modules, "vllm", module)
        monkeypatch.setattr(worker, "STATE", worker._State())
        worker.install()
        assert worker.STATE.refused

    def test_payload_and_adapter_agree(self) -> None:
        assert worker.PROVEN == OFF_PROVEN
        assert set(worker.METHODS) == set(map(str, RESTS))

    def test_it_is_imported_without_vllm(self) -> None:
        assert importlib.reload(worker).Extension().speculative_rested()[0] == 0
