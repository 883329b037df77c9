"""What TensorRT-LLM is told: its command line and its file, whose schedule changed its meaning between releases."""

from __future__ import annotations

from bisect import bisect_left
from itertools import product
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engines.building import valued
from tests.unit.engines.kinds import of, refused

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import (
    EngineType,
    LoraLimits,
    Method,
    Mode,
    ModelSource,
    OffPolicy,
    Scheme,
)
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.matrix.rows import CELLS
from speculative_operator.engines.tensorrt_llm.adapter import ENGINE, schedule

TABLE = KTable.from_rows([[1, 8, 5], [9, 40, 2], [41, 256, 1]])
TABLED = (Method.EAGLE3, Method.MTP, Method.DRAFT_MODEL, Method.SUFFIX, Method.DFLASH, Method.DSPARK)
NEW = "1.4.0"


def trt(method: Method | None = Method.EAGLE3, version: str = NEW, **others: Any) -> Any:
    return of(EngineType.TENSORRT_LLM, method, version=version, **others)


def file_of(subject: Any, table: KTable = TABLE) -> Any:
    return yaml.safe_load(ENGINE.container(subject, table).files["engine.yaml"])


def drafts_at(content: dict[int, int], batch: int) -> int:
    """The engine's own look-up since #10860: the first key not below the batch, 0 above the last."""
    keys = list(content)
    place = bisect_left(keys, batch)
    return content[keys[place]] if place < len(keys) else 0


falling = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 8)), min_size=1, max_size=6).map(
    lambda runs: KTable.from_dense(
        [
            k
            for (length, _), k in zip(runs, sorted((k for _, k in runs), reverse=True), strict=True)
            for _ in range(length)
        ]
    )
)


@settings(max_examples=80, deadline=None)
@given(falling)
def test_the_engine_looks_up_what_the_table_says_and_never_nothing(table: KTable) -> None:
    content = schedule(table)
    assert list(content) == sorted(content)
    assert content[min(content)] == max(content.values()) == max(1, table.max_k)
    for batch in range(1, table.max_batch + 1):
        assert drafts_at(content, batch) == max(1, table.k_at(batch))


def test_a_table_that_rises_cannot_be_told() -> None:
    with pytest.raises(ValueError, match="rises"):
        schedule(KTable.from_rows([[1, 4, 2], [5, 8, 3]]))


def test_the_file() -> None:
    container = ENGINE.container(trt(), TABLE)
    assert container.command == ("trtllm-serve",)
    assert container.args[0] == "Qwen/Qwen3-8B"
    assert container.metrics_path == "/prometheus/metrics"
    assert valued(container.args, "--config") == "/etc/speculative/config/engine.yaml"
    assert valued(container.args, "--max_batch_size") == "256"
    assert file_of(trt()) == {
        "return_perf_metrics": True,
        "enable_iter_perf_stats": True,
        "speculative_config": {
            "decoding_type": "Eagle3",
            "max_draft_len": 5,
            "speculative_model_dir": "someone/head",
            "draft_len_schedule": {8: 5, 40: 2, 256: 1},
        },
    }


def test_never_a_gate_a_second_cutoff_or_a_relaxed_acceptance() -> None:
    forbidden = ("acceptance", "concurrency", "relaxed", "window", "threshold")
    methods = [method for method in Method if any(cell.method is method for cell in CELLS[EngineType.TENSORRT_LLM])]
    for method, version in product(methods, ("1.0.0", "1.2.1", "1.3.0rc4", "1.3.0rc15", "1.3.0", "1.4.0rc1")):
        subject = trt(method, version)
        if not ENGINE.refusals(subject):
            config = file_of(subject)["speculative_config"]
            assert not [key for key in config if any(word in key for word in forbidden)], (method, version)
            assert 0 not in config.get("draft_len_schedule", {}).values(), (method, version)


@pytest.mark.parametrize("method", TABLED)
def test_a_schedule_only_where_its_meaning_is_known(method: Method) -> None:
    for version, has in (
        ("1.1.0", False), ("1.2.0", False), ("1.2.1", False), ("1.3.0rc4", False), ("1.3.0rc14.post1", False),
        ("1.3.0rc15", True), ("1.3.0", True), ("1.4.0rc1", True), ("v1.4.0", True),
    ):  # fmt: skip
        subject = trt(method, version)
        if ENGINE.refusals(subject):
            assert "needs engine.version" in ENGINE.refusals(subject)[0].message
            continue
        knobs = ENGINE.knobs(subject)
        assert knobs.actuator is (Actuator.TABLE if has else Actuator.RESTART)
        assert knobs.falling is has
        assert 0 not in knobs.ks
        assert ("draft_len_schedule" in file_of(subject)["speculative_config"]) is has
        assert bool(ENGINE.notices(subject)) is not has


def test_a_release_that_cannot_be_tuned_says_so() -> None:
    (notice,) = ENGINE.notices(trt(version="1.2.0"))
    assert notice.reason is Reason.UNSUPPORTED_BY_ENGINE
    assert "1.3.0rc15" in notice.message
    (notice,) = ENGINE.notices(trt(version="1.3.0rc4"))
    assert "lower or as upper bounds" in notice.message
    assert ENGINE.notices(trt(version="1.2.0", mode=Mode.STATIC, num_speculative_tokens=3)) == ()
    assert ENGINE.notices(trt(None, version="1.2.0")) == ()


def test_names_by_release() -> None:
    assert file_of(trt(version="1.2.0"))["speculative_config"]["decoding_type"] == "Eagle"
    assert file_of(trt(version="1.3.0"))["speculative_config"]["decoding_type"] == "Eagle3"
    assert "--extra_llm_api_options" in ENGINE.container(trt(version="1.1.0"), TABLE).args
    assert "--config" in ENGINE.container(trt(version="1.2.0"), TABLE).args
    mtp = file_of(trt(Method.MTP, source=None))["speculative_config"]
    assert (mtp["num_nextn_predict_layers"], "max_draft_len" in mtp) == (5, False)
    parallel = trt(Method.DRAFT_MODEL, drafting={"parallel_drafting": True})
    assert file_of(parallel)["speculative_config"]["decoding_type"] == "PARD"
    assert ENGINE.knobs(parallel).drafts_blocks
    assert file_of(trt(Method.SUFFIX))["speculative_config"]["decoding_type"] == "SA"


def test_one_k_and_none() -> None:
    static = trt(mode=Mode.STATIC, num_speculative_tokens=4)
    assert "draft_len_schedule" not in file_of(static, KTable.constant(4, 256))["speculative_config"]
    old = trt(version="1.2.0", off_policy=OffPolicy.REMOVE)
    assert 0 in ENGINE.knobs(old).ks
    assert "speculative_config" not in file_of(old, KTable.constant(0, 256))
    assert "speculative_config" not in file_of(trt(None))
    assert "speculative_config" not in file_of(trt(mode=Mode.DISABLED))
    assert ENGINE.knobs(trt(mode=Mode.DISABLED)).actuator is Actuator.NONE


def test_the_verifiers_fields() -> None:
    fields = {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 2,
        "expert_parallel": True,
        "max_model_len": 8192,
        "max_num_batched_tokens": 4096,
        "max_num_seqs": 64,
        "dtype": "bfloat16",
        "kv_cache_dtype": "fp8",
        "gpu_memory_utilization_percent": 80,
        "lora": LoraLimits(4, 32),
        "source": ModelSource(Scheme.HF, "Qwen/Qwen3-8B", "abc"),
    }
    subject = trt(None, verifier=fields)
    args = ENGINE.container(subject, TABLE).args
    wanted = {
        "--tp_size": "2", "--pp_size": "2", "--ep_size": "2", "--max_seq_len": "8192", "--max_num_tokens": "4096",
        "--max_batch_size": "64",
    }  # fmt: skip
    assert {flag: valued(args, flag) for flag in wanted} == wanted
    content = file_of(subject)
    assert content["revision"] == "abc"
    assert content["dtype"] == "bfloat16"
    assert content["kv_cache_config"] == {"dtype": "fp8", "free_gpu_memory_fraction": 0.8}
    assert content["lora_config"] == {"max_lora_rank": 32, "max_loras": 4}


# Further ones: tests/contract/refused_engines.py.
REFUSED: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
    ("dspark early", {"method": Method.DSPARK, "version": "1.3.0"}, ("dspark", "1.4.0")),
    ("quantization", {"verifier": {"quantization": "fp8"}}, ("fp8", "remove it")),
    ("drafter quantization", {"drafting": {"quantization": "fp8"}}, ("fp8", "remove it")),
    ("drafter revision", {"source": ModelSource(Scheme.HF, "a/b", "r1")}, ("r1", "pvc://")),
    ("lookup minimum", {"method": Method.NGRAM, "drafting": {"prompt_lookup_min": 2}}, ("promptLookup.max",)),
    ("zero in a schedule", {"mode": Mode.STATIC, "schedule": KTable.from_rows([[1, 4, 2], [5, 256, 0]])}, ("use 1",)),
    ("schedule early", {"version": "1.2.0", "mode": Mode.STATIC, "schedule": TABLE}, ("numSpeculativeTokens",)),
    ("schedule of a candidate", {"version": "1.3.0rc2", "mode": Mode.STATIC, "schedule": TABLE}, ("1.3.0rc15",)),
)


@pytest.mark.parametrize(("case", "parts"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_refused(case: dict[str, Any], parts: tuple[str, ...]) -> None:
    refused(trt(case.get("method", Method.EAGLE3), **{k: v for k, v in case.items() if k != "method"}), *parts)


@pytest.mark.parametrize(
    "argument",
    ["--config=/x", "--extra_llm_api_options", "--max_batch_size=8", "--tensor_parallel_size=2", "--backend=tensorrt"],
)
def test_flags_that_the_operator_owns(argument: str) -> None:
    refused(trt(args=(argument,)), argument, "remove it from engine.args", field="spec.engine.args")
