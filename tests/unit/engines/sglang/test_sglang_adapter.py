"""What SGLang is told: its command line and its adaptive file, held to the law of the engine's adaptive mode."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engines.building import valued
from tests.unit.engines.kinds import of, refused

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import (
    AcceleratorRequest,
    EngineType,
    LoraLimits,
    Method,
    Mode,
    ModelSource,
    OffPolicy,
    Scheme,
)
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.sglang.adapter import ALGORITHMS, ENGINE, UNREACHED, adaptive, first_steps

TABLE = KTable.from_rows([[1, 8, 5], [9, 40, 2], [41, 256, 0]])
TABLED = (Method.EAGLE, Method.EAGLE3, Method.MTP)


def sglang(method: Method | None = Method.EAGLE3, **others: Any) -> Any:
    return of(EngineType.SGLANG, method, **others)


def arguments(subject: Any, table: KTable = TABLE) -> tuple[str, ...]:
    return ENGINE.container(subject, table).args


class AdaptiveSlot:
    """One slot of the engine's adaptive mode (SGLang 0.5.23 speculative/adaptive_spec_params.py), with its defaults."""

    def __init__(self, candidates: list[int], initial: int) -> None:
        self.candidates = sorted(set(candidates))
        self.steps = initial if initial in self.candidates else self.candidates[len(self.candidates) // 2]
        self.mean = float(self.steps - 1)
        self.batches = 0

    def verified(self, accepted: list[int]) -> None:
        if self.steps > 0:
            self.mean = 0.8 * self.mean + 0.2 * sum(accepted) / len(accepted)
        self.batches += 1
        if self.batches <= 10 or (self.batches - 10) % 5:
            return
        place = self.candidates.index(self.steps)
        if self.steps == 0:
            self.steps = self.candidates[min(place + 1, len(self.candidates) - 1)]
            return
        while place > 0 and self.mean <= max(self.candidates[place - 1] - 0.5, 0.5) - 0.25:
            place -= 1
        if self.candidates[place] == self.steps:
            while place < len(self.candidates) - 1 and self.mean > self.candidates[place] - 0.5:
                place += 1
        self.steps = self.candidates[place]


def routed(table: KTable, graphs: list[int], accepted: list[int], batch: int) -> int:
    """Steps that the engine takes at `batch`, after it saw `accepted` there, with CUDA graphs of the sizes `graphs`."""
    content = json.loads(adaptive(table))
    keys = sorted(map(int, content))
    slots = {key: AdaptiveSlot(content[str(key)]["candidate_steps"], first_steps(table)) for key in keys}
    place = bisect_left(graphs, batch)
    padded = graphs[place] if place < len(graphs) else batch
    slot = slots[keys[max(0, bisect_right(keys, padded) - 1)]]
    for count in accepted:
        slot.verified([count])
    return slot.steps


tables = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 8)), min_size=1, max_size=6).map(
    lambda runs: KTable.from_dense([k for length, k in runs for _ in range(length)])
)


@settings(max_examples=60, deadline=None)
@given(tables, st.lists(st.integers(0, 9), max_size=60), st.data())
def test_the_engine_never_adapts_by_itself(table: KTable, accepted: list[int], data: st.DataObject) -> None:
    batch = data.draw(st.integers(1, table.max_batch))
    assert routed(table, [], accepted, batch) == table.k_at(batch)


@settings(max_examples=60, deadline=None)
@given(tables, st.data())
def test_padding_to_a_graph_begins_a_band_one_size_early_at_most(table: KTable, data: st.DataObject) -> None:
    graphs = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8)]
    batch = data.draw(st.integers(1, table.max_batch))
    padded = next((size for size in graphs if size >= batch), batch)
    assert routed(table, graphs, [], batch) == table.k_at(padded)


def test_the_start_value_is_a_candidate_and_a_table_of_zeros_has_a_slot_out_of_reach() -> None:
    for table in (TABLE, KTable.constant(4, 256), KTable.constant(0, 256)):
        content = json.loads(adaptive(table))
        union = {step for slot in content.values() for step in slot["candidate_steps"]}
        assert first_steps(table) in union
        assert first_steps(table) >= 1
    assert json.loads(adaptive(KTable.constant(0, 256))) == {
        "1": {"candidate_steps": [0]},
        str(UNREACHED): {"candidate_steps": [1]},
    }


def test_the_table_reaches_the_engine_in_a_file() -> None:
    container = ENGINE.container(sglang(), TABLE)
    assert container.command == ("python3", "-m", "sglang.launch_server")
    assert json.loads(container.files["adaptive.json"]) == {
        "1": {"candidate_steps": [5]},
        "9": {"candidate_steps": [2]},
        "41": {"candidate_steps": [0]},
    }
    assert valued(container.args, "--speculative-adaptive-config") == "/etc/speculative/config/adaptive.json"
    assert "--speculative-adaptive" in container.args
    assert valued(container.args, "--speculative-num-steps") == "5"
    assert valued(container.args, "--speculative-num-draft-tokens") == "6"


@pytest.mark.parametrize("method", [None, *ALGORITHMS])
def test_running_requests_and_metrics_are_always_said(method: Method | None) -> None:
    """With a speculator and the first flag unset the engine would run 48 requests at most."""
    for limit, said in ((None, "256"), (64, "64")):
        args = arguments(sglang(method, verifier={"max_num_seqs": limit}))
        assert valued(args, "--max-running-requests") == said
        assert "--enable-metrics" in args


@pytest.mark.parametrize(("method", "algorithm"), ALGORITHMS.items())
def test_methods(method: Method, algorithm: str) -> None:
    args = arguments(sglang(method), KTable.constant(3, 256))
    assert valued(args, "--speculative-algorithm") == algorithm
    assert ("--speculative-draft-model-path" in args) is not method.draft_free
    if method in (*TABLED, Method.DRAFT_MODEL):
        assert valued(args, "--speculative-num-steps") == "3"
        assert valued(args, "--speculative-eagle-topk") == "1"
    if method is Method.DSPARK:
        assert valued(args, "--speculative-dspark-block-size") == "3"
    else:
        assert valued(args, "--speculative-num-draft-tokens") == "4"
    assert ("--speculative-adaptive" in args) is (method in TABLED)
    if method is Method.NGRAM:
        assert valued(args, "--speculative-ngram-max-bfs-breadth") == "1"


@pytest.mark.parametrize("method", ALGORITHMS)
def test_knobs(method: Method) -> None:
    knobs = ENGINE.knobs(sglang(method))
    tabled = method in TABLED
    assert knobs.actuator is (Actuator.TABLE if tabled else Actuator.RESTART)
    assert knobs.ks == ((0, 1, 2, 3, 5, 7, 8) if tabled else tuple(range(1, 9)))
    assert knobs.passes_at_zero == (1.0 if tabled else 0.0)
    assert knobs.drafts_blocks is (method in (Method.DFLASH, Method.DSPARK))
    assert knobs.draft_free is method.draft_free
    assert not knobs.falling


def test_what_takes_the_table_away() -> None:
    cases: tuple[dict[str, Any], ...] = (
        {"verifier": {"lora": LoraLimits()}},
        {"verifier": {"data_parallel_size": 2}},
        {"mode": Mode.STATIC, "num_speculative_tokens": 3},
    )
    for case in cases:
        assert ENGINE.knobs(sglang(**case)).actuator is Actuator.RESTART
        assert "--speculative-adaptive" not in arguments(sglang(**case))
        assert not ENGINE.container(sglang(**case), TABLE).files


def test_zero_is_in_the_table_where_the_policy_allows_it_and_by_restart_only_for_hard() -> None:
    assert 0 not in ENGINE.knobs(sglang(off_policy=OffPolicy.NEVER)).ks
    assert 0 in ENGINE.knobs(sglang(off_policy=OffPolicy.KEEP_RUNNING)).ks
    assert 0 not in ENGINE.knobs(sglang(Method.NGRAM, off_policy=OffPolicy.KEEP_RUNNING)).ks
    assert 0 in ENGINE.knobs(sglang(Method.NGRAM, off_policy=OffPolicy.REMOVE)).ks
    assert "--speculative-algorithm" not in arguments(sglang(Method.NGRAM), KTable.constant(0, 256))
    assert "--speculative-algorithm" in arguments(sglang(), KTable.constant(0, 256))
    assert ENGINE.knobs(sglang(mode=Mode.DISABLED)).actuator is Actuator.NONE
    assert ENGINE.knobs(sglang(None)).ks == (0,)


def test_the_verifiers_fields_are_flags() -> None:
    fields = {
        "tensor_parallel_size": 2,
        "expert_parallel": True,
        "max_model_len": 8192,
        "max_num_batched_tokens": 4096,
        "dtype": "bfloat16",
        "quantization": "fp8",
        "kv_cache_dtype": "fp8_e4m3",
        "gpu_memory_utilization_percent": 85,
        "lora": LoraLimits(4, 32),
    }
    args = arguments(sglang(None, verifier=fields))
    wanted = {
        "--tp-size": "2", "--ep-size": "2", "--context-length": "8192", "--chunked-prefill-size": "4096",
        "--dtype": "bfloat16", "--quantization": "fp8", "--kv-cache-dtype": "fp8_e4m3",
        "--mem-fraction-static": "0.85", "--max-loras-per-batch": "4", "--max-lora-rank": "32",
    }  # fmt: skip
    assert {flag: valued(args, flag) for flag in wanted} == wanted
    assert all(left != right for left, right in pairwise(args) if left.startswith("--"))
    assert "--disable-overlap-schedule" in arguments(sglang(Method.MTP, verifier={"pipeline_parallel_size": 2}))


def test_weights_may_come_from_a_claim() -> None:
    claim = ModelSource(Scheme.PVC, "weights/qwen")
    container = ENGINE.container(sglang(verifier={"source": claim}), TABLE)
    assert valued(container.args, "--model-path") == "/mnt/models/weights/qwen"
    assert [mount.claim for mount in container.pvc_mounts] == ["weights"]


# Further ones: tests/contract/refused_engines.py.
REFUSED: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
    ("nightly", {"version": "nightly"}, ("nightly", "0.5.23")),
    (
        "draft parallelism",
        {"draft_tp": 1, "verifier": {"tensor_parallel_size": 2}},
        ("tensorParallelSize 1", "remove it"),
    ),
    (
        "itself",
        {"source": ModelSource(Scheme.HF, "Qwen/Qwen3-8B")},
        ("Qwen/Qwen3-8B", "set it to the speculator's weights"),
    ),
    (
        "lora beside a draft model",
        {"method": Method.DRAFT_MODEL, "verifier": {"lora": LoraLimits()}},
        ("verifier.lora", "remove verifier.lora"),
    ),
    (
        "lookup lengths",
        {"method": Method.NGRAM, "drafting": {"prompt_lookup_max": 4}},
        ("promptLookup", "--speculative-ngram-max-trie-depth"),
    ),
    (
        "a schedule beside adapters",
        {"mode": Mode.STATIC, "schedule": TABLE, "verifier": {"lora": LoraLimits()}},
        ("LoRA", "numSpeculativeTokens"),
    ),
    ("doubled metrics", {"args": ("--enable-metrics-for-all-schedulers",)}, ("mode: Static",)),
    ("a value first", {"args": ("model",)}, ("'model'", "not a flag")),
)


@pytest.mark.parametrize(("case", "parts"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_refused(case: dict[str, Any], parts: tuple[str, ...]) -> None:
    refused(sglang(case.get("method", Method.EAGLE3), **{k: v for k, v in case.items() if k != "method"}), *parts)


@pytest.mark.parametrize(
    "argument",
    [
        "--max-running-requests=8", "--max-runn=8", "--tp", "--tensor-parallel-size=2", "--port=1",
        "--speculative-adaptive", "--speculative-num-steps=9", "--speculative-eagle-topk=4", "--enable-metrics",
        "--mem-fraction-static=0.5", "--attention-data-parallel-size=2",
    ],
)  # fmt: skip
def test_flags_that_the_operator_owns(argument: str) -> None:
    refused(sglang(args=(argument,)), argument, "remove it from engine.args", field="spec.engine.args")


def test_relaxed_acceptance_is_never_set_and_said_aloud() -> None:
    for method in ALGORITHMS:
        assert not [arg for arg in arguments(sglang(method)) if "threshold" in arg]
    flags = ("--speculative-accept-threshold-single=0.8", "--speculative-accept-threshold-acc", "0.9")
    found = ENGINE.notices(sglang(args=flags))
    assert [notice.reason for notice in found] == [Reason.LOSSY, Reason.LOSSY]
    assert ENGINE.refusals(sglang(args=flags)) == ()
    assert "0.8" in found[0].message
    assert ENGINE.notices(sglang(args=("--speculative-accept-threshold-acc", "1.0"))) == ()
    assert ENGINE.notices(sglang()) == ()


@pytest.mark.parametrize(
    ("method", "args", "said"),
    [
        (Method.EAGLE3, (), 1), (Method.DRAFT_MODEL, (), 1), (Method.EAGLE, (), 0), (Method.MTP, (), 0),
        (Method.EAGLE3, ("--speculative-use-rejection-sampling",), 0),
        (Method.DRAFT_MODEL, ("--speculative-use-rejection-sampling",), 1),
    ],
)  # fmt: skip
def test_that_amd_ignores_temperature_is_said(method: Method, args: tuple[str, ...], said: int) -> None:
    nvidia = sglang(method, args=args)
    amd = replace(nvidia, accelerator=AcceleratorRequest("amd.com/gpu"))
    assert ENGINE.notices(nvidia) == ()
    assert [notice.reason for notice in ENGINE.notices(amd)] == [Reason.LOSSY] * said
    off = replace(amd, speculation=replace(amd.speculation, mode=Mode.DISABLED))
    assert ENGINE.notices(off) == ()
