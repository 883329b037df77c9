"""The emulator as clients and kubelets meet it: a process with a port, signals and an exit code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from tests.contract.emulator_process import (
    DRAFT,
    MODEL,
    ROOT,
    SOURCES,
    Emulator,
    command,
    emulator,
    environment,
)
from tests.ports import free_port

PAYLOAD = ROOT / "operator" / "speculative_operator" / "payload"
HOT = ("--scheduler-cls", "speculative_scheduler.scheduler")


def speculation(k: int, schedule: list[list[int]] | None = None) -> tuple[str, str]:
    config: dict[str, Any] = {"method": "draft_model", "model": DRAFT, "num_speculative_tokens": k}
    if schedule:
        config["num_speculative_tokens_per_batch_size"] = schedule
    return ("--speculative-config", json.dumps(config))


@pytest.fixture(scope="module")
def server() -> Iterator[Emulator]:
    with emulator("--served-model-name", "qwen", "other", *speculation(3)) as running:
        yield running


def events(answer: requests.Response) -> list[dict[str, Any]]:
    lines = [line for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_small_routes(server: Emulator) -> None:
    models = requests.get(f"{server.url}/v1/models", timeout=5).json()
    assert [(model["id"], model["root"], model["max_model_len"]) for model in models["data"]] == [
        ("qwen", MODEL, 4096),
        ("other", MODEL, 4096),
    ]
    assert requests.get(f"{server.url}/health", timeout=5).content == b""
    assert requests.post(f"{server.url}/ping", timeout=5).status_code == 200
    assert requests.get(f"{server.url}/version", timeout=5).json()["version"] == "0.32.0"
    assert requests.get(f"{server.url}/server_info", timeout=5).status_code == 404
    assert requests.get(f"{server.url}/v1/completions", timeout=5).status_code == 405


def test_whole_answer(server: Emulator) -> None:
    body = server.complete(model="other", max_tokens=20, ignore_eos=True).json()
    choice = body["choices"][0]
    assert (body["object"], body["model"], choice["finish_reason"]) == ("text_completion", "other", "length")
    assert body["usage"] == {
        "prompt_tokens": 3, "completion_tokens": 20, "total_tokens": 23, "prompt_tokens_details": None,
    }  # fmt: skip
    assert len(choice["text"].split()) == 20


@pytest.mark.parametrize("route", ["completions", "chat/completions"])
def test_stream_says_what_the_whole_answer_says(server: Emulator, route: str) -> None:
    body: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}
    body |= {"messages": [{"role": "user", "content": "hi"}]} if "chat" in route else {"prompt": "hi"}
    url = f"{server.url}/v1/{route}"
    whole = requests.post(url, json=body, timeout=30).json()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = events(requests.post(url, json=body | options, timeout=30))
    pieces = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    if "chat" in route:
        assert pieces[0]["delta"] == {"role": "assistant", "content": ""}
        said = "".join(piece["delta"]["content"] for piece in pieces)
        assert said == whole["choices"][0]["message"]["content"]
    else:
        assert "".join(piece["text"] for piece in pieces) == whole["choices"][0]["text"]
    assert [piece["finish_reason"] for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert 10 < len(pieces) <= 41, "one chunk per engine step"
    assert chunks[-1]["usage"] == whole["usage"]


def test_answers_end_by_themselves(server: Emulator) -> None:
    assert server.complete(max_tokens=4000).json()["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"model": "missing"}, 404, "The model `missing` does not exist."),
        ({"max_tokens": 5000}, 400, "is too large: 5000"),
        ({"prompt": [1] * 4096}, 400, "maximum context length is 4096 tokens"),
        ({"prompt": 7}, 400, "prompt"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_refused_requests(server: Emulator, body: dict[str, Any], status: int, text: str) -> None:
    answer = server.complete(**body)
    assert answer.status_code == status
    assert text in answer.json()["error"]["message"]


def test_a_client_that_leaves_aborts_its_request(server: Emulator) -> None:
    before = server.metric("request_success_total", 'finished_reason="abort"')
    with pytest.raises(requests.ReadTimeout):
        server.complete(timeout=0.3, max_tokens=4000, ignore_eos=True)
    body = {"prompt": "hi", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with requests.post(f"{server.url}/v1/completions", json=body, timeout=5, stream=True) as answer:
        assert next(answer.iter_lines()).startswith(b"data: ")
    assert _eventually(lambda: server.metric("request_success_total", 'finished_reason="abort"') == before + 2)
    assert _eventually(lambda: server.metric("num_requests_running") == 0)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--num-speculative-tokens", "3"), 2, "unrecognized arguments: --num-speculative-tokens"),
        (("--speculative-config", "{"), 2, "cannot be converted"),
        (("--speculative-config", '{"foo": 1}'), 1, "1 validation error for SpeculativeConfig\nfoo\n"),
        (("--speculative-config", '{"method":"ngram","num_speculative_tokens":0}'), 1, "greater than 0"),
        (("--scheduler-cls", "no_such_module.scheduler"), 1, "No module named 'no_such_module'"),
        (speculation(3, [[2, 8, 3]]), 1, "ValueError: The first batch-size range must start at 1"),
        (("--num-gpu-blocks-override", "3"), 1, "To serve at least one request"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_refused_starts(words: tuple[str, ...], code: int, text: str) -> None:
    ended = subprocess.run(
        command("serve", MODEL, "--port", str(free_port()), "--host", "127.0.0.1", *words),
        env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == code
    assert text in ended.stderr


def test_the_port_is_closed_while_loading_and_a_stop_then_is_clean(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    words = command("serve", MODEL, "--host", "127.0.0.1", "--port", str(port))
    with log.open("wb") as sink:
        process = subprocess.Popen(words, env=environment(EMULATOR_LOAD_SECONDS="60"), stderr=sink)
    try:
        assert _eventually(lambda: "This is an emulation" in log.read_text())
        with pytest.raises(requests.ConnectionError):
            requests.get(f"http://127.0.0.1:{port}/health", timeout=2)
        assert process.poll() is None
    finally:
        process.terminate()
    assert process.wait(10) == 0


def test_drain_lets_running_requests_end_and_refuses_new_ones() -> None:
    with ThreadPoolExecutor(4) as pool, emulator("--shutdown-timeout", "20", *speculation(3)) as running:
        flying = [pool.submit(running.complete, max_tokens=400, ignore_eos=True) for _ in range(4)]
        assert _eventually(lambda: running.metric("num_requests_running") == 4)
        running.process.terminate()
        assert _eventually(lambda: running.complete(max_tokens=1).status_code == 500)
        late = running.complete(max_tokens=1)
        assert "cannot schedule new futures after shutdown" in late.json()["error"]["message"]
        for answer in flying:
            assert answer.result().json()["usage"]["completion_tokens"] == 400
        assert running.process.wait(10) == 0


def test_a_drain_that_takes_too_long_is_cut() -> None:
    with ThreadPoolExecutor(1) as pool, emulator("--shutdown-timeout", "0.5") as running:
        pool.submit(running.complete, max_tokens=4000, ignore_eos=True)
        assert _eventually(lambda: running.metric("num_requests_running") == 1)
        start = time.monotonic()
        running.process.terminate()
        assert running.process.wait(30) == 0
        assert 0.4 < time.monotonic() - start < 20


def mounted(directory: Path) -> dict[str, str]:
    """Environment of a pod with the payload and its table file mounted at `directory`, on the V1 runner."""
    for file in PAYLOAD.glob("speculative_*.py"):
        shutil.copy(file, directory)
    return {
        "SPECULATIVE_TELEMETRY_HOST": "127.0.0.1",
        "SPECULATIVE_TELEMETRY_PORT": str(free_port()),
        "PYTHONPATH": f"{directory}:{SOURCES}",
        "SPECULATIVE_TABLE_FILE": str(directory / "table.json"),
        "VLLM_USE_V2_MODEL_RUNNER": "0",
    }


def test_outputs_are_identical_whatever_k_is_and_while_it_changes(tmp_path: Path) -> None:
    """Eight prompts, two constant settings, and a table that is rewritten meanwhile: one text for each prompt."""
    variables = mounted(tmp_path)
    _table(tmp_path, 1, 3)
    live = ("--max-num-seqs", "256", *speculation(3, [[1, 254, 3], [255, 255, 1], [256, 256, 0]]), *HOT)
    with emulator() as running:
        plain = _eight(running)
    with emulator(*speculation(3)) as running:
        constant = _eight(running)
    with emulator(*live, **variables) as running:
        changing = _eight(running, lambda: _table(tmp_path, 2, 0))
        assert 0 < running.metric("spec_decode_num_drafts_total") < running.metric("inter_token_latency_seconds_count")
    assert plain == constant == changing


def _eight(running: Emulator, meanwhile: Callable[[], None] | None = None) -> list[str]:
    """The answers to eight prompts asked at once."""
    with ThreadPoolExecutor(8) as pool:
        answers = [
            pool.submit(running.complete, prompt=[number] * 30, max_tokens=200, ignore_eos=True) for number in range(8)
        ]
        if meanwhile is not None:
            assert _eventually(lambda: running.metric("num_requests_running") == 8)
            time.sleep(0.3)
            meanwhile()
        return [answer.result().json()["choices"][0]["text"] for answer in answers]


def _table(directory: Path, version: int, k: int) -> None:
    fresh = directory / "table.new"
    fresh.write_text(json.dumps({"version": version, "rows": [[1, 256, k]]}))
    fresh.replace(directory / "table.json")


def test_hot_retune_reaches_the_counters(tmp_path: Path) -> None:
    """4 running requests, K rewritten through the mounted file, as on a real engine (0.12-0.33 s there)."""
    variables = mounted(tmp_path)
    flags = ("--max-num-seqs", "256", *speculation(4, [[1, 252, 4], [253, 253, 3], [254, 254, 1], [255, 256, 0]]))
    with ThreadPoolExecutor(4) as pool, emulator(*flags, *HOT, **variables) as running:
        flying = [pool.submit(running.complete, max_tokens=4000, ignore_eos=True, timeout=60) for _ in range(4)]
        assert _eventually(lambda: running.metric("num_requests_running") == 4)
        assert _settles(running, 4)
        for version, k in enumerate((0, 1, 3), start=1):
            _table(tmp_path, version, k)
            assert _settles(running, k)
        (tmp_path / "table.json").write_text("{broken")
        time.sleep(0.5)
        assert _settles(running, 3)
        _table(tmp_path, 9, 2)
        time.sleep(0.5)
        assert _settles(running, 3), "2 was not prepared at start"
        assert not any(answer.done() for answer in flying)
        assert re.search(r"speculative: table version 3 in force.*: 1-256:3\n", running.log.read_text())


def _settles(running: Emulator, k: int) -> bool:
    """True when the counters show this K within three seconds."""
    return _eventually(lambda: _k(running) == k, seconds=3.0)


def _k(running: Emulator) -> float:
    """Draft tokens per decoding request-step over a short window; 0 when nothing is drafted."""

    names = ("spec_decode_num_draft_tokens_total", "inter_token_latency_seconds_count")
    before = [running.metric(name) for name in names]
    time.sleep(0.4)
    drafted, steps = (running.metric(name) - start for name, start in zip(names, before, strict=True))
    assert steps > 0
    return round(drafted / steps)


def test_steps_are_told_on_a_port_of_their_own(tmp_path: Path) -> None:
    """Counted by the payload, they agree with vLLM's counters; without the payload nothing listens there."""
    variables = mounted(tmp_path)
    _table(tmp_path, 1, 3)
    url = f"http://127.0.0.1:{variables['SPECULATIVE_TELEMETRY_PORT']}/metrics"
    flags = ("--max-num-seqs", "256", *speculation(3, [[1, 254, 3], [255, 255, 1], [256, 256, 0]]))
    with emulator(*flags, *HOT, **variables) as running:
        _eight(running)
        told = payload_counters(requests.get(url, timeout=5).text)
        assert told["steps"] == running.metric("iteration_tokens_total_count")
        assert told["tokens"] == running.metric("generation_tokens_total")
        assert told["prefill_tokens"] == running.metric("prompt_tokens_total")
        assert told["drafted_tokens"] == running.metric("spec_decode_num_draft_tokens_total")
        assert told["accepted_tokens"] == running.metric("spec_decode_num_accepted_tokens_total")
        # at most eight were under way and at least one; what a stalled machine gave up is in the waits alone
        waited = running.metric("inter_token_latency_seconds_sum")
        assert waited / 16 < told["step_seconds"] <= waited
    with emulator(*flags, **variables), pytest.raises(requests.ConnectionError):
        requests.get(url, timeout=5)


def payload_counters(text: str) -> dict[str, float]:
    """Sums over all labels of the payload's counters, by their short names."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        found = re.fullmatch(r"speculative_payload_(\w+)_total\{.*\} (\S+)", line)
        if found:
            sums[found[1]] = sums.get(found[1], 0.0) + float(found[2])
    return sums


def _eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False
