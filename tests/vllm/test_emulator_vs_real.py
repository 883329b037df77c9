"""The emulator beside the real vLLM: one script of requests to both, then names, types, labels and relations compared.

Runs where the real engine is installed (`make vllm`). Both are started with the same flags and the same payload. Speed
is not compared: the real engine runs on a CPU. Relations between counters are identities; where one is not, its
tolerance stands beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from tests.contract.emulator_process import ROOT, SOURCES, command, environment
from tests.ports import free_port

from realengine import paths, serving
from speculative_lab.emulator import schedule
from speculative_lab.emulator.captures import CaptureFlags, DecodeShape, capture_sizes
from speculative_lab.emulator.errors import ConfigError

ENGINE = paths.python()
MODELS = paths.models()
pytestmark = [
    pytest.mark.skipif(ENGINE is None, reason=paths.MISSING),
    pytest.mark.timeout(400),
]

PAYLOAD = ROOT / "operator" / "speculative_operator" / "payload"
TABLE = [[1, 2, 3], [3, 15, 1], [16, 16, 0]]
TOKENS = 40
ALONE, TOGETHER, ABREAST = 4, 12, 4
"""Requests one after the other (K = 3), then so many, ABREAST at a time (K = 1)."""
START_SECONDS = 240.0
_OF_THE_PROCESS = ("process_", "python_", "http_")


@dataclass(frozen=True)
class Told:
    """What one engine exposed after each part of the script, and what it answered."""

    alone: str
    together: str
    payload: str
    texts: tuple[str, ...]

    def value(self, name: str, text: str = "", **labels: str) -> float:
        """Sum of the series of a vLLM metric that carry `labels`."""
        return sum(
            sample.value
            for family in text_string_to_metric_families(text or self.together)
            for sample in family.samples
            if sample.name == f"vllm:{name}" and labels.items() <= sample.labels.items()
        )


def flags() -> list[str]:
    speculative = {
        "method": "draft_model",
        "model": str(MODELS / "draft"),
        "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": TABLE,
    }
    scheduler = "speculative_scheduler.scheduler"
    return ["--scheduler-cls", scheduler, "--speculative-config", json.dumps(speculative)]


@contextlib.contextmanager
def running(argv: Sequence[str], variables: Mapping[str, str], port: int, log: Path) -> Iterator[str]:
    """A healthy server; its address."""
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as sink:
        process = subprocess.Popen(argv, env={**os.environ, **variables}, stdout=sink, stderr=sink)
    try:
        end = time.monotonic() + START_SECONDS
        while True:
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < end, f"not healthy: {log.read_text()[-3000:]}"
            with contextlib.suppress(requests.ConnectionError):
                if requests.get(f"{url}/health", timeout=5).status_code == 200:
                    break
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def script(url: str, telemetry: str) -> Told:
    """The requests: ALONE, then TOGETHER; a scrape after each."""

    def ask(number: int) -> str:
        prompt = [(number * 37 + place * 11) % 1900 + 10 for place in range(20 + number)]
        body = {"model": "tiny", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
        answer = requests.post(f"{url}/v1/completions", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["text"])

    texts = [ask(number) for number in range(ALONE)]
    alone = requests.get(f"{url}/metrics", timeout=10).text
    with ThreadPoolExecutor(ABREAST) as pool:
        texts += pool.map(ask, range(ALONE, ALONE + TOGETHER))
    together = requests.get(f"{url}/metrics", timeout=10).text
    return Told(alone, together, requests.get(telemetry, timeout=10).text, tuple(texts))


def mounted(folder: Path, path: str) -> tuple[dict[str, str], str]:
    """Variables of a pod with the payload and its table, and the address of its telemetry."""
    (folder / "table.json").write_text(json.dumps({"version": 1, "rows": TABLE}))
    port = free_port()
    variables = {
        "PYTHONPATH": f"{PAYLOAD}:{path}",
        "SPECULATIVE_TABLE_FILE": str(folder / "table.json"),
        "SPECULATIVE_TELEMETRY_HOST": "127.0.0.1",
        "SPECULATIVE_TELEMETRY_PORT": str(port),
    }
    return variables, f"http://127.0.0.1:{port}/metrics"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The real engine's side."""
    assert ENGINE is not None
    folder, port = tmp_path_factory.mktemp("real"), free_port()
    variables, telemetry = mounted(folder, "")
    argv = serving.argv(ENGINE, MODELS / "target", port, flags())
    with running(argv, {**serving.environment(folder), **variables}, port, folder / "log") as url:
        return script(url, telemetry)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The emulator's side, with the same flags; a CPU forces the V1 runner and synchronous scheduling on the other."""
    folder, port = tmp_path_factory.mktemp("emulated"), free_port()
    variables, telemetry = mounted(folder, SOURCES)
    given = serving.argv(Path("vllm"), MODELS / "target", port, ["--no-async-scheduling", *flags()])
    argv = command(*given[given.index("serve") :])
    own = environment(VLLM_USE_V2_MODEL_RUNNER="0", EMULATOR_LOAD_SECONDS="0", **variables)
    with running(argv, own, port, folder / "log") as url:
        return script(url, telemetry)


Shape = dict[str, tuple[str, frozenset[tuple[str, frozenset[str]]]]]


def shape(text: str) -> Shape:
    """Family -> its type, and the names and label names of its series."""
    return {
        family.name: (family.type, frozenset((sample.name, frozenset(sample.labels)) for sample in family.samples))
        for family in text_string_to_metric_families(text)
        if not family.name.startswith(_OF_THE_PROCESS)
    }


def test_names_types_and_labels_are_the_same(real: Told, emulated: Told) -> None:
    theirs, ours = shape(real.together), shape(emulated.together)
    assert set(ours) == set(theirs)
    for name, form in theirs.items():
        assert ours[name] == form, name


def test_labels_that_vary_have_the_same_values(real: Told, emulated: Told) -> None:
    """Bucket bounds, positions, reasons, sources; not the labels of `cache_config_info`, which are the machine's."""

    def values(text: str) -> dict[str, set[tuple[str, str]]]:
        found: dict[str, set[tuple[str, str]]] = {}
        for family in text_string_to_metric_families(text):
            if family.name.startswith("vllm:") and family.name != "vllm:cache_config_info":
                pairs = {pair for sample in family.samples for pair in sample.labels.items()}
                found[family.name] = pairs
        return found

    assert values(emulated.together) == values(real.together)


def test_help_texts_are_the_same(real: Told, emulated: Told) -> None:
    def helps(text: str) -> set[str]:
        return {line for line in text.splitlines() if line.startswith("# HELP vllm:")}

    assert helps(emulated.together) == helps(real.together)


@pytest.mark.parametrize("side", ["real", "emulated"])
def test_relations_between_counters(side: str, request: pytest.FixtureRequest) -> None:
    """Each of them an identity, on both."""
    told: Told = request.getfixturevalue(side)
    asked = ALONE + TOGETHER
    prompts = sum(20 + number for number in range(asked))
    steps = told.value("inter_token_latency_seconds_count")
    first = told.value("time_to_first_token_seconds_count")
    tokens = told.value("generation_tokens_total")
    drafts, drafted = told.value("spec_decode_num_drafts_total"), told.value("spec_decode_num_draft_tokens_total")
    accepted = told.value("spec_decode_num_accepted_tokens_total")
    assert (first, tokens) == (asked, asked * TOKENS)
    assert told.value("prompt_tokens_total") == prompts
    assert told.value("iteration_tokens_total_sum") == prompts + tokens
    assert told.value("request_success_total", finished_reason="length") == asked
    assert drafts == steps, "every decoding request-step verifies drafts, K being 1 or more"
    positions = [told.value("spec_decode_num_accepted_tokens_per_pos_total", position=str(place)) for place in range(3)]
    assert sum(positions) == accepted
    assert positions == sorted(positions, reverse=True)
    # what was accepted beyond the last token asked for is cut off: at most K per request
    assert 0 <= steps + accepted - (tokens - first) <= 3 * asked
    assert drafts <= drafted <= 3 * drafts


@pytest.mark.parametrize("side", ["real", "emulated"])
def test_k_is_the_table_s_at_each_load(side: str, request: pytest.FixtureRequest) -> None:
    """Alone exactly 3; together 1, but for steps at which fewer than 3 requests were under way (30 % are allowed)."""
    told: Told = request.getfixturevalue(side)
    drafts, drafted = (
        [told.value(f"spec_decode_num_{name}_total", text) for text in (told.alone, told.together)]
        for name in ("drafts", "draft_tokens")
    )
    assert drafted[0] == 3 * drafts[0]
    together = (drafted[1] - drafted[0]) / (drafts[1] - drafts[0])
    assert 1.0 <= together <= 1.0 + 0.3 * 2


def test_the_payload_tells_the_same_of_both(real: Told, emulated: Told) -> None:
    """Names, types and labels of its metrics; and its counts are vLLM's own."""
    theirs, ours = shape(real.payload), shape(emulated.payload)
    assert set(ours) == set(theirs)
    assert {name: form[0] for name, form in ours.items()} == {name: form[0] for name, form in theirs.items()}
    for told in (real, emulated):
        counted = totals(told.payload)
        assert counted["tokens"] == told.value("generation_tokens_total")
        assert counted["steps"] == told.value("iteration_tokens_total_count")
        assert counted["prefill_tokens"] == told.value("prompt_tokens_total")
        assert counted["drafted_tokens"] == told.value("spec_decode_num_draft_tokens_total")
        assert counted["accepted_tokens"] == told.value("spec_decode_num_accepted_tokens_total")


def totals(text: str) -> dict[str, float]:
    """Sums over all labels of the payload's counters, by their short names."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        found = re.fullmatch(r"speculative_payload_(\w+)_total\{.*\} (\S+)", line)
        if found:
            sums[found[1]] = sums.get(found[1], 0.0) + float(found[2])
    return sums


_SIZES = """
import json, sys
from types import SimpleNamespace as N
from vllm.config.compilation import CompilationConfig, CUDAGraphMode
from vllm.config.vllm import VllmConfig

def sizes(case):
    graphs = N(cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE, cudagraph_capture_sizes=case["sizes"] or None,
               max_cudagraph_capture_size=case["largest"], post_init_cudagraph_sizes=lambda: None)
    drafts = N(uses_dynamic_speculative_decoding=lambda: bool(case["schedule"]),
               num_speculative_tokens_per_batch_size=case["schedule"]) if case["k"] else None
    limits = N(max_num_seqs=case["seqs"], max_num_batched_tokens=case["budget"])
    config = N(model_config=N(enforce_eager=False), compilation_config=graphs, uniform_decode_query_len=case["k"] + 1,
               scheduler_config=limits, speculative_config=drafts, num_speculative_tokens=case["k"],
               performance_mode="balanced")
    try:
        VllmConfig._set_cudagraph_sizes(config)
        if case["v1"] and not case["schedule"]:
            CompilationConfig.adjust_cudagraph_sizes_for_spec_decode(graphs, case["k"] + 1)
    except ValueError as error:
        return str(error)
    return graphs.cudagraph_capture_sizes

print("SIZES " + json.dumps([sizes(case) for case in json.load(sys.stdin)]))
"""


def size_cases() -> list[dict[str, Any]]:
    return [
        {
            "v1": v1,
            "seqs": seqs,
            "budget": budget,
            "k": k,
            "sizes": given,
            "largest": largest,
            "schedule": [[1, seqs // 2, k], [seqs // 2 + 1, seqs, k // 2]] if scheduled and k else [],
        }
        for v1 in (False, True)
        for seqs, budget in ((5, 8192), (16, 2048), (100, 8192), (1024, 8192), (64, 100))
        for k in (0, 1, 2, 4, 7)
        for given, largest in (([], None), ([1, 2, 4, 8, 100], None), ([], 64), ([1, 2, 128], 200), ([], 1024))
        for scheduled in (False, True)
    ]


def test_graphs_are_captured_for_the_sizes_that_vllm_captures(tmp_path: Path) -> None:
    """Asked of vLLM's own configuration classes, without starting it: 500 combinations of flags."""
    assert ENGINE is not None
    cases = size_cases()
    asked = subprocess.run(
        [str(ENGINE), "-c", _SIZES], input=json.dumps(cases), env={**os.environ, **serving.environment(tmp_path)},
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    (line,) = (line for line in asked.stdout.splitlines() if line.startswith("SIZES "))
    assert len(cases) == 500
    for case, theirs in zip(cases, json.loads(line.removeprefix("SIZES ")), strict=True):
        assert captured(case) == theirs, case


def captured(case: Mapping[str, Any]) -> list[int] | str:
    table = tuple(schedule.lookup(case["schedule"], case["seqs"], case["k"])) if case["schedule"] else ()
    whole = case["v1"] and not table
    shape = DecodeShape(case["seqs"], case["budget"], case["k"], table, whole_multiples=whole)
    try:
        return list(capture_sizes(CaptureFlags(False, tuple(case["sizes"]), case["largest"]), shape))
    except ConfigError as error:
        return str(error)
