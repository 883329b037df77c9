"""TensorRT-LLM's face: the file, the schedule, and which metrics are told when."""

from __future__ import annotations

import csv
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from tests.unit.emulator.dialects import MODEL, TENSORRT_LLM, DialectRun, parsed, tensorrt_llm

from speculative_lab.emulator.errors import ConfigError, ValidationError
from speculative_lab.emulator.tensorrt_llm import config
from speculative_lab.emulator.tensorrt_llm.flags import CONFIG_FLAGS, EFFECTIVE, INERT


def eagle3(**more: Any) -> dict[str, Any]:
    return {
        "speculative_config": {"decoding_type": "Eagle3", "max_draft_len": 4, "speculative_model_dir": "/x", **more}
    }


def test_every_flag_on_record_is_known() -> None:
    text = resources.files("speculative_lab.emulator").joinpath("data", "dialect_flags.csv").read_text()
    rows = [row["flag"] for row in csv.DictReader(text.splitlines()) if row["engine"] == "TensorRTLLM"]
    known = {name for flag in (*EFFECTIVE, *INERT) for name in flag.names}
    assert {flag for flag in rows if flag.startswith("--")} <= known | set(CONFIG_FLAGS)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"no_such_key": 1}, "Extra inputs are not permitted"),
        (eagle3(no_such_key=1), "Extra inputs are not permitted"),
        ({"speculative_config": {"decoding_type": "Magic"}}, "Invalid decoding type"),
        (eagle3(max_draft_len=0), "must be > 0"),
        ({"speculative_config": {"decoding_type": "Eagle3", "max_draft_len": 3}}, "Field required"),
        (eagle3(draft_len_schedule={"4": 3, "8": 2}), "must hold draft lengths up to max_draft_len=4"),
        (eagle3(draft_len_schedule={"0": 4}), "must hold draft lengths"),
        (eagle3(draft_len_schedule={"1": 4, "2": 5}), "must hold draft lengths"),
        (eagle3(draft_len_schedule={"x": 4}), "valid integer"),
        (eagle3(draft_len_schedule=[]), "must hold draft lengths"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, content: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        tensorrt_llm(tmp_path, content)


def test_the_file_overrides_flags(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("max_batch_size: 8\n")
    for flag in CONFIG_FLAGS:
        assert parsed(config.parse, MODEL, flag, str(path)).engine.max_num_seqs == 8
    with pytest.raises(ConfigError, match="No such file"):
        parsed(config.parse, MODEL, "--config", "/no/such/file")
    with pytest.raises(SystemExit):
        parsed(config.parse, MODEL, "--max-batch-size", "8")


def test_the_server_listens_on_the_loopback_address_unless_told() -> None:
    assert parsed(config.parse, MODEL).server.host == "localhost"


def test_bounds_of_a_schedule_are_the_largest_batches_of_their_k(tmp_path: Path) -> None:
    program = tensorrt_llm(tmp_path, eagle3(draft_len_schedule={"8": 2, "4": 4}))
    assert program.lengths is not None
    assert [program.lengths.next(batch, batch) for batch in (1, 4, 5, 8, 9)] == [4, 4, 2, 2, 0]


def test_drafts_follow_the_schedule_and_are_told_by_position(tmp_path: Path) -> None:
    run = DialectRun(tensorrt_llm(tmp_path, eagle3(draft_len_schedule={"4": 4, "64": 1})), TENSORRT_LLM)
    for _ in range(4):
        run.add(output=40)
    run.until_idle()
    for _ in range(10):
        run.add(output=40)
    run.until_idle()
    value = run.ledger.value
    drafted = [value("trtllm_spec_decode_drafted_tokens_total", str(position)) for position in range(4)]
    accepted = [value("trtllm_spec_decode_accepted_tokens_total", str(position)) for position in range(4)]
    assert drafted[0] > drafted[1] == drafted[2] == drafted[3] > 0
    assert sum(drafted) == sum(result.draft_tokens for result in run.results)
    assert sum(accepted) == sum(int(result.accepted.sum()) for result in run.results)
    assert all(taken <= offered for taken, offered in zip(accepted, drafted, strict=True))
    assert value("trtllm_request_success_total", "length") == 14
    assert value("trtllm_generation_tokens_total") == 560


def test_requests_are_told_when_they_end(tmp_path: Path) -> None:
    run = DialectRun(tensorrt_llm(tmp_path, eagle3()), TENSORRT_LLM)
    run.add(output=60)
    for _ in range(5):
        run.step()
    assert run.ledger.value("trtllm_generation_tokens_total") == 0
    assert run.ledger.value("trtllm_num_generation_requests") == 1
    run.until_idle()
    assert run.ledger.value("trtllm_generation_tokens_total") == 60


def test_metrics_are_off_unless_asked_for(tmp_path: Path) -> None:
    assert not tensorrt_llm(tmp_path, {"return_perf_metrics": False}).server.metrics
    run = DialectRun(tensorrt_llm(tmp_path, {"enable_iter_perf_stats": False}), TENSORRT_LLM)
    run.add(output=5)
    run.until_idle()
    assert run.ledger.value("trtllm_request_success_total", "length") == 1
    assert "trtllm_num_requests_running" not in {metric.name for metric in run.ledger.collect()}
