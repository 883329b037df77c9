"""SGLang's face: flags and traps, K by batch size, and which metrics are fresh when."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.unit.emulator.dialects import MODEL, QUIET, DialectRun, sglang

from speculative_lab.emulator.errors import ConfigError
from speculative_lab.emulator.sglang import parse

EAGLE3 = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "x/head")
CHAIN = (*EAGLE3, "--speculative-num-steps", "3", "--speculative-eagle-topk", "1")


def adaptive(folder: Path, content: object) -> tuple[str, ...]:
    """Flags of that adaptive file."""
    path = folder / "adaptive.json"
    path.write_text(json.dumps(content))
    return ("--speculative-adaptive", "--speculative-adaptive-config", str(path))


def test_48_requests_with_a_speculator(caplog: pytest.LogCaptureFixture) -> None:
    assert sglang().engine.max_num_seqs == 2048
    assert sglang(*CHAIN).engine.max_num_seqs == 48
    assert "reset to 48" in caplog.text
    assert sglang(*CHAIN, "--max-running-requests", "200").engine.max_num_seqs == 200


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--speculative-algorithm", "EAGLE3", *CHAIN[4:]), "--speculative-draft-model-path is required"),
        ((*EAGLE3, "--speculative-eagle-topk", "4"), "tree of drafts"),
        ((*EAGLE3, "--speculative-num-steps", "0", *CHAIN[-2:]), "1 or more"),
        ((*CHAIN, "--speculative-adaptive", "--speculative-adaptive-config", "/no/such/file"), "No such file"),
    ],
)
def test_refusals(words: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        sglang(*words)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([], "list"),
        ({"one": {"candidate_steps": [1]}}, "invalid literal"),
        ({"1": {"candidate_steps": [1, 3]}}, "not emulated"),
        ({"1": {"candidate_steps": [5]}}, "must be one of the candidate steps"),
    ],
)
def test_adaptive_files_that_are_refused(tmp_path: Path, content: object, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        sglang(*CHAIN, *adaptive(tmp_path, content))


def test_k_of_each_algorithm(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    def k(*words: str) -> int:
        return sglang(*words).engine.max_k

    assert k(*CHAIN) == 3
    assert k("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8") == 7
    dspark = ("--speculative-algorithm", "DSPARK", "--speculative-draft-model-path", "x")
    assert k(*dspark, "--speculative-dspark-block-size", "5") == 5
    assert k("--speculative-algorithm", "STANDALONE", *CHAIN[2:], *adaptive(tmp_path, {})) == 3
    assert "only EAGLE/EAGLE3 are supported" in caplog.text


def test_a_batch_counts_as_the_next_graph(tmp_path: Path) -> None:
    """33 requests run in the graph of 34."""
    table = {"1": {"candidate_steps": [3]}, "33": {"candidate_steps": [1]}, "34": {"candidate_steps": [0]}}
    program = sglang(*CHAIN, "--cuda-graph-max-bs", "34", *adaptive(tmp_path, table))
    assert program.lengths is not None
    assert [program.lengths(0, batch) for batch in (0, 1, 32, 33, 100)] == [3, 3, 3, 0, 0]


def test_gauges_are_stale_between_every_40th_pass() -> None:
    run = DialectRun(sglang(*CHAIN, "--max-running-requests", "64"))
    value = run.metrics.value
    assert exposed(run).count("num_running_reqs") == 0, "nothing before the first request"
    run.add(output=400)
    run.step()
    assert value("sglang:num_running_reqs") == 1
    for _ in range(39):
        run.step()
    assert value("sglang:spec_accept_length") == 0
    run.step()
    assert value("sglang:spec_accept_length") > 1
    assert value("sglang:spec_num_draft_tokens") == 4
    run.until_idle()
    assert value("sglang:num_running_reqs") == 1, "stale while idle"
    run.now += 31
    exposed(run)
    assert value("sglang:num_running_reqs") == 0


def test_idle_time_runs_on_between_passes() -> None:
    run = DialectRun(sglang())
    run.now = 10.0
    run.add(output=30)
    run.until_idle()
    run.now += 5.0
    exposed(run)
    assert run.metrics.value("sglang:scheduler_idle_seconds_total") == pytest.approx(15.0)


def test_what_is_counted_when() -> None:
    run = DialectRun(sglang(*CHAIN, "--max-running-requests", "64"))
    run.add(output=120)
    run.add(output=80, streams=True)
    run.until_idle()
    value = run.metrics.value
    decoded = [result for result in run.results if result.decoded]
    assert value("sglang:cuda_graph_passes_total", "decode_cuda_graph") == len(decoded)
    assert value("sglang:realtime_tokens_total", "decode") == 198, "first tokens are the prefill's"
    assert value("sglang:generation_tokens_total", "true") == 80
    assert value("sglang:generation_tokens_total", "false") == 120
    assert value("sglang:spec_verify_calls_total") == sum(request.steps for request in run.ended)
    told = run.metrics.histogram("sglang:inter_token_latency_seconds")
    assert told.count == 79 + 70, "each token of a stream, and what came after 50 tokens of the other"
    assert run.metrics.histogram("sglang:time_to_first_token_seconds", "false").count == 1


def exposed(run: DialectRun) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(run.metrics)
    return generate_latest(registry).decode()


def test_without_the_flag_there_are_no_metrics() -> None:
    assert sglang().server.metrics
    assert not parse(["--model-path", MODEL], {}, QUIET).server.metrics
