"""When K = 0 has lasted, and what workers leave out then: nothing else, and nothing where anything is odd."""

from __future__ import annotations

import importlib
import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from speculative_operator.engines.vllm.capability import OFF_PROVEN, RESTS
from speculative_operator.payload import speculative_off as off
from speculative_operator.payload import speculative_worker as worker

REQUESTS = {"a": 1, "b": 1}
ROWS = {"a": 0, "b": 1, "c": 2}


def steps(latch: off.Latch, ks: list[int], requests: dict[str, int] | None = None) -> list[bool]:
    at = REQUESTS if requests is None else requests
    return [latch.step(k, k, at, at) for k in ks]


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


TORCH = SimpleNamespace(
    empty=lambda rows, columns, **_: Tensor(rows, columns), is_tensor=lambda x: isinstance(x, Tensor), int64=0
)


def config(**changes: Any) -> Any:
    drafter = {"method": "eagle3", "disable_padded_drafter_batch": False, "draft_sample_method": "greedy"}
    parallel = {"world_size_across_dp": 1}
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
        self.device = "cpu"
        self.input_batch = SimpleNamespace(req_ids=["a", "b"])
        self.discard_request_mask = SimpleNamespace(np=np.zeros(4, dtype=bool))
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

    def sample_tokens(self, plan: Any) -> Any:
        self._sample(None, SimpleNamespace(num_draft_tokens=[0, 0]))
        self._draft_token_ids = self.propose_draft_token_ids(plan)
        self._copy_draft_token_ids_to_cpu(plan)
        return SimpleNamespace(req_ids=["a", "b"])


def plan(**changes: Any) -> Any:
    told = {
        "speculative_off": True, "num_spec_tokens_to_schedule": 0, "scheduled_spec_decode_tokens": {},
        "total_num_scheduled_tokens": 2, "num_scheduled_tokens": {"a": 1, "b": 1},
    }  # fmt: skip
    return SimpleNamespace(**{**told, **changes})


@pytest.fixture
def runners(monkeypatch: pytest.MonkeyPatch) -> type[Runner]:
    monkeypatch.setattr(worker, "STATE", worker._State())
    changed = type("Changed", (Runner,), dict(Runner.__dict__))
    worker.change(changed, TORCH)
    return changed


class TestWorker:
    def test_in_an_off_step_nothing_of_the_drafter_runs(self, runners: type[Runner]) -> None:
        runner = runners()
        output = runner.sample_tokens(plan())
        assert runner.done == ["plain"]
        assert runner.prev_num_spec_tokens == 0
        assert output.speculative_off == (1, "", None, False)

    @pytest.mark.parametrize(
        "changes",
        [
            {"speculative_off": False},
            {"num_spec_tokens_to_schedule": 2},
            {"scheduled_spec_decode_tokens": {"a": [7]}, "total_num_scheduled_tokens": 3},
            {"total_num_scheduled_tokens": 9},
        ],
    )
    def test_in_every_other_step_it_runs(self, runners: type[Runner], changes: dict[str, Any]) -> None:
        runner = runners()
        runner.sample_tokens(plan(**changes))
        assert "drafted" in runner.done
        assert "copied" in runner.done

    def test_a_prompt_that_ends_is_seen_by_the_drafter(self, runners: type[Runner]) -> None:
        runner = runners()
        runner.discard_request_mask.np[1] = True
        runner.sample_tokens(plan())
        assert "drafted" in runner.done

    def test_drafts_are_verified_by_the_rejection_sampler(self, runners: type[Runner]) -> None:
        runner = runners()
        runner._sample(None, SimpleNamespace(num_draft_tokens=[0, 2]))
        runner._sample(None, None)
        assert runner.done == ["rejection", "plain"]

    @pytest.mark.parametrize(
        "changes",
        [
            {"method": "mtp"},
            {"method": "ngram"},
            {"disable_padded_drafter_batch": True},
            {"draft_sample_method": "probabilistic"},
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
            outputs = [runner.sample_tokens(plan()) for _ in range(3)]
        assert runner.done.count("drafted") == 3
        assert outputs[-1].speculative_off[1]
        assert len(caplog.records) == 1

    @pytest.mark.parametrize("missing", ["input_batch", "discard_request_mask", "vllm_config", "_draft_token_ids"])
    def test_whatever_is_missing_the_step_is_vllms_own(self, runners: type[Runner], missing: str) -> None:
        runner = runners()
        runner.sample_tokens(plan(speculative_off=False))
        runner.done.clear()
        worker.STATE.looked = False
        if missing != "_draft_token_ids":
            delattr(runner, missing)
            runner.propose_draft_token_ids(plan())
            assert runner.done == ["drafted"]
        else:
            delattr(runner, missing)
            runner._copy_draft_token_ids_to_cpu(plan())
            assert runner.done == ["copied"]
        assert worker.STATE.refused

    def test_what_cannot_be_told_to_the_scheduler_ends_off_and_the_next_step_tells_that(
        self, runners: type[Runner], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runner = runners()
        runner.sample_tokens(plan())
        monkeypatch.setattr(worker.STATE, "unseen", SimpleNamespace(rest=lambda plan: None, before_pass=print))
        assert not hasattr(runner.sample_tokens(plan()), "speculative_off")
        assert runner.sample_tokens(plan()).speculative_off == (2, worker.STATE.refused, None, False)
        assert runner.done[-3:] == ["plain", "drafted", "copied"]

    def test_odd_metadata_leaves_the_rejection_sampler(self, runners: type[Runner]) -> None:
        runner = runners()
        runner._sample(None, SimpleNamespace(num_draft_tokens=None))
        runner._sample(None, SimpleNamespace(num_draft_tokens=[0]))
        assert runner.done == ["rejection", "rejection"]

    def test_a_runner_that_lacks_a_method_is_left_as_it_is(self) -> None:
        lacking = type("Lacking", (), {"_sample": Runner._sample})
        with pytest.raises(AttributeError):
            worker.change(lacking, TORCH)
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
