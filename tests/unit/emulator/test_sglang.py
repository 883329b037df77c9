"""SGLang's face: flags and traps, the adaptive law, and which metrics are fresh when."""

from __future__ import annotations

import csv
import json
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from tests.unit.emulator.dialects import MODEL, DialectRun, parsed, sglang

from speculative_lab.emulator.errors import ConfigError
from speculative_lab.emulator.sglang import config as sglang_config
from speculative_lab.emulator.sglang.adaptive import (
    DEFAULT,
    AdaptiveSteps,
    Slot,
    SlotConfig,
    initial,
    slots,
    union,
)
from speculative_lab.emulator.sglang.flags import EFFECTIVE, INERT

EAGLE3 = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "x/head")
CHAIN = (*EAGLE3, "--speculative-num-steps", "3", "--speculative-eagle-topk", "1")
STEPS = "sglang:spec_num_steps"


def adaptive(folder: Path, content: object, *words: str) -> DialectRun:
    """A server with that adaptive file."""
    path = folder / "adaptive.json"
    path.write_text(json.dumps(content))
    words = (*EAGLE3, "--speculative-adaptive", "--speculative-adaptive-config", str(path), *words)
    return DialectRun(sglang("--max-running-requests", "128", *words))


def test_every_flag_on_record_is_known() -> None:
    text = resources.files("speculative_lab.emulator").joinpath("data", "dialect_flags.csv").read_text()
    wanted = {row["flag"] for row in csv.DictReader(text.splitlines()) if row["engine"] == "SGLang"}
    assert wanted <= {name for flag in (*EFFECTIVE, *INERT) for name in flag.names}


@pytest.mark.parametrize("words", [("--no-such-flag",), ("--port", "x"), ("--speculative-algorithm", "MAGIC")])
def test_unknown_flags_end_the_start(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        sglang(*words)
    assert ended.value.code == 2


def test_48_requests_with_a_speculator(caplog: pytest.LogCaptureFixture) -> None:
    assert sglang().engine.max_num_seqs == 2048
    assert sglang(*CHAIN).engine.max_num_seqs == 48
    assert "reset to 48" in caplog.text
    assert sglang(*CHAIN, "--max-running-requests", "200").engine.max_num_seqs == 200


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--speculative-algorithm", "EAGLE3"), "--speculative-draft-model-path is required"),
        ((*EAGLE3, "--speculative-eagle-topk", "4"), "tree of drafts"),
        ((*EAGLE3, "--speculative-num-steps", "0"), "at least 1"),
        ((*CHAIN[:-2], "--speculative-adaptive", "--speculative-adaptive-config", "/no/such/file"), "No such file"),
    ],
)
def test_refusals(words: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        sglang(*words)


def test_k_of_each_algorithm() -> None:
    def k(*words: str) -> int:
        return sglang(*words).engine.max_k

    assert k(*CHAIN) == 3
    assert k(*EAGLE3) == 3, "the default for most models"
    assert k("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8") == 7
    dspark = ("--speculative-algorithm", "DSPARK", "--speculative-draft-model-path", "x")
    assert k(*dspark, "--speculative-dspark-block-size", "5") == 5


def test_adaptive_is_for_eagle_alone(caplog: pytest.LogCaptureFixture) -> None:
    words = ("--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", "Qwen/Qwen3-0.6B")
    program = sglang(*words, "--speculative-num-steps", "2", "--speculative-eagle-topk", "1", "--speculative-adaptive")
    assert "only EAGLE/EAGLE3 are supported" in caplog.text
    assert program.lengths is not None
    assert program.lengths.next(1, 1) == 2


def test_the_default_slots_start_at_3_3_1_0() -> None:
    config = slots(DEFAULT)
    assert union(config) == (0, 1, 3, 5, 7)
    start = initial(config, None)
    steps = AdaptiveSteps(config, start)
    assert [steps.slot(batch).steps for batch in (1, 8, 32, 64)] == [3, 3, 1, 0]
    with pytest.raises(ConfigError, match="must be one of the candidate steps"):
        initial(config, 2)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ([], "must be a JSON object"),
        ({"ema_alpha": 0.1}, "at least one integer-string BS key"),
        ({"1": {"candidate_steps": []}}, "BS 1: candidate_steps"),
        ({"1": {"candidate_steps": [-1]}}, "BS 1: candidate_steps"),
        ({"strategy": "throughput_aware", "1": {"candidate_steps": [1]}}, "not emulated"),
    ],
)
def test_adaptive_files_that_are_refused(config: object, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        slots(config)


def test_a_slot_with_one_candidate_never_moves() -> None:
    slot = Slot(SlotConfig((4,)), 4)
    for mean in [4.0] * 50 + [0.0] * 50:
        slot.update(mean)
        assert slot.steps == 4


def test_the_law_by_hand() -> None:
    """0.2 of each mean; looked at after the 15th batch and every fifth from there."""
    slot = Slot(SlotConfig((1, 3, 5)), 3)
    for _ in range(14):
        slot.update(3.0)
    assert slot.steps == 3
    slot.update(3.0)
    assert slot.ema == pytest.approx(3 - 0.8**15)
    assert slot.steps == 5, "above 3 - 0.5"
    for _ in range(5):
        slot.update(0.0)
    assert slot.ema == pytest.approx((3 - 0.8**15) * 0.8**5)
    assert slot.steps == 3, "0.97 is below 3 - 0.5 - 0.25 and above 1 - 0.5 - 0.25"
    for _ in range(10):
        slot.update(0.0)
    assert slot.steps == 1


def test_low_acceptance_is_a_square_wave_of_0_and_1() -> None:
    slot = Slot(SlotConfig((0, 1), down_hysteresis=0.0), 1)
    seen = []
    for _ in range(10 + 5 * 8):
        slot.update(0.0)
        seen.append(slot.steps)
    assert seen[14::5] == [0, 1, 0, 1, 0, 1, 0, 1]


@given(st.lists(st.floats(0, 7), max_size=200), st.sampled_from([0.0, 0.5, 2.0]))
def test_steps_stay_among_the_candidates(means: list[float], ceiling: float) -> None:
    slot = Slot(SlotConfig((0, 1, 3, 7), ceiling_coeff=ceiling), 3)
    for mean in means:
        slot.update(mean)
        assert slot.steps in (0, 1, 3, 7)


def test_a_batch_counts_as_the_next_graph(tmp_path: Path) -> None:
    steps = AdaptiveSteps(slots({"1": {"candidate_steps": [5]}, "8": {"candidate_steps": [1]}}), 5, (1, 2, 4, 8))
    assert [steps.next(0, batch) for batch in (0, 1, 4, 5, 8, 9)] == [5, 5, 5, 1, 1, 1]
    steps.verified(np.array([5, 5]))
    assert steps.slot(2).ema == pytest.approx(0.8 * 4 + 0.2 * 5)


def test_our_table_is_followed_by_the_batch_that_decodes(tmp_path: Path) -> None:
    run = adaptive(
        tmp_path, {"1": {"candidate_steps": [4]}, "5": {"candidate_steps": [1]}, "65": {"candidate_steps": [0]}}
    )
    run.closed_loop(3, 2.0)
    assert {result.k for result in run.results[3:]} == {4}
    run.closed_loop(70, 6.0)
    assert {result.k for result in run.results[-50:]} <= {0, 1}


def test_gauges_are_stale_between_every_40th_pass(tmp_path: Path) -> None:
    run = DialectRun(sglang(*CHAIN, "--max-running-requests", "64"))
    assert generate_latest(registry(run)).decode().count("num_running_reqs") == 0, "nothing before the first request"
    run.add(output=400)
    run.step()
    assert run.ledger.value("sglang:num_running_reqs") == 1
    for _ in range(39):
        run.step()
    assert run.ledger.value("sglang:spec_accept_length") == 0
    run.step()
    assert run.ledger.value("sglang:spec_accept_length") > 1
    assert run.ledger.value(STEPS) == 3
    run.until_idle()
    assert run.ledger.value("sglang:num_running_reqs") == 1, "stale while idle"
    run.now += 31
    generate_latest(registry(run))
    assert run.ledger.value("sglang:num_running_reqs") == 0


def test_idle_time_runs_on_between_passes() -> None:
    run = DialectRun(sglang())
    run.now = 10.0
    run.add(output=30)
    run.until_idle()
    busy = run.now - 10.0
    run.now += 5.0
    generate_latest(registry(run))
    assert run.ledger.value("sglang:scheduler_idle_seconds_total") == pytest.approx(15.0)
    assert busy == pytest.approx(sum(result.seconds for result in run.results))


def test_what_is_counted_when() -> None:
    run = DialectRun(sglang(*CHAIN, "--max-running-requests", "64"))
    run.add(output=120)
    run.add(output=80, streams=True)
    run.until_idle()
    value = run.ledger.value
    decoded = [result for result in run.results if result.decoded]
    assert value("sglang:cuda_graph_passes_total", "decode_cuda_graph") == len(decoded)
    assert value("sglang:realtime_tokens_total", "decode") == 198, "first tokens are the prefill's"
    assert value("sglang:generation_tokens_total", "true") == 80
    assert value("sglang:generation_tokens_total", "false") == 120
    assert value("sglang:spec_verify_calls_total") == sum(request.steps for request in run.ended)
    told = run.ledger.histogram("sglang:inter_token_latency_seconds")
    assert told.count == 79 + 70, "each token of a stream, and what came after 50 tokens of the other"
    assert run.ledger.histogram("sglang:time_to_first_token_seconds", "false").count == 1


def registry(run: DialectRun) -> CollectorRegistry:
    found = CollectorRegistry(auto_describe=False)
    found.register(run.ledger)
    return found


def test_without_the_flag_there_are_no_metrics() -> None:
    assert sglang().server.metrics
    assert not parsed(sglang_config.parse, "--model-path", MODEL).server.metrics
