"""TensorRT-LLM's face: the file, the schedule, and which metrics are told when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.emulator.dialects import MODEL, QUIET, DialectRun, tensorrt_llm

from speculative_lab.emulator.errors import ConfigError
from speculative_lab.emulator.tensorrt_llm import DIALECT, parse


def eagle3(**more: Any) -> dict[str, Any]:
    return {
        "speculative_config": {"decoding_type": "Eagle3", "max_draft_len": 4, "speculative_model_dir": "/x", **more}
    }


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"no_such_key": 1}, "Extra inputs are not permitted"),
        (eagle3(no_such_key=1), "Extra inputs are not permitted"),
        ({"speculative_config": {"decoding_type": "Magic"}}, "Invalid decoding type"),
        (eagle3(max_draft_len=0), "must be > 0"),
        ({"speculative_config": {"decoding_type": "Eagle3", "max_draft_len": 3}}, "Field required"),
        (eagle3(draft_len_schedule={4: 3, 8: 2}), "must hold draft lengths up to max_draft_len=4"),
        (eagle3(draft_len_schedule={0: 4}), "must hold draft lengths"),
        (eagle3(draft_len_schedule={1: 4, 2: 5}), "must hold draft lengths"),
        (eagle3(draft_len_schedule={"4": 4}), "must hold draft lengths"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, content: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        tensorrt_llm(tmp_path, content)


def test_the_file_overrides_flags(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("max_batch_size: 8\n")
    for flag in ("--config", "--extra_llm_api_options"):
        assert parse([MODEL, flag, str(path)], {}, QUIET).engine.max_num_seqs == 8
    with pytest.raises(ConfigError, match="No such file"):
        parse([MODEL, "--config", "/no/such/file"], {}, QUIET)


def test_metrics_are_off_unless_asked_for(tmp_path: Path) -> None:
    assert tensorrt_llm(tmp_path, {}).server.metrics
    assert not tensorrt_llm(tmp_path, {"return_perf_metrics": False}).server.metrics
    assert not tensorrt_llm(tmp_path, {"enable_iter_perf_stats": False}).server.metrics


def test_drafts_follow_the_schedule_and_are_told_by_position(tmp_path: Path) -> None:
    run = DialectRun(tensorrt_llm(tmp_path, eagle3(draft_len_schedule={4: 4, 64: 1})), DIALECT)
    for requests in (4, 10):
        for _ in range(requests):
            run.add(output=40)
        run.until_idle()
    value = run.metrics.value
    drafted = [value("trtllm_spec_decode_drafted_tokens_total", str(position)) for position in range(4)]
    accepted = [value("trtllm_spec_decode_accepted_tokens_total", str(position)) for position in range(4)]
    assert drafted[0] > drafted[1] == drafted[2] == drafted[3] > 0
    assert sum(drafted) == sum(result.draft_tokens for result in run.results)
    assert sum(accepted) == sum(int(result.accepted.sum()) for result in run.results)
    assert all(taken <= offered for taken, offered in zip(accepted, drafted, strict=True))
    assert value("trtllm_request_success_total", "length") == 14
    assert value("trtllm_generation_tokens_total") == 560


def test_requests_are_told_when_they_end(tmp_path: Path) -> None:
    run = DialectRun(tensorrt_llm(tmp_path, eagle3()), DIALECT)
    run.add(output=60)
    for _ in range(5):
        run.step()
    assert run.metrics.value("trtllm_generation_tokens_total") == 0
    assert run.metrics.value("trtllm_num_generation_requests") == 1
    run.until_idle()
    assert run.metrics.value("trtllm_generation_tokens_total") == 60
