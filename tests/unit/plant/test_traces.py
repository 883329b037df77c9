"""Traces: formats as published, every malformed line named by place, value and remedy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speculative_lab.plant.traces import Format, TraceError, read

TRACES = Path(__file__).resolve().parents[3] / "dev" / "data" / "traces"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"


def test_azure_keeps_seven_digits_and_crlf_and_needs_no_last_newline() -> None:
    text = AZURE + "2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319601,3180,8"
    trace = read(text.splitlines(keepends=True), "azure")
    assert trace.arrival.tolist() == [0.0, 0.0520001]
    assert trace.prompt.tolist() == [4808, 3180]
    assert trace.output.tolist() == [10, 8]


@pytest.mark.parametrize(
    ("name", "requests", "seconds", "prompt", "output"),
    [
        ("azure_llm_2023_code.csv", 8819, 3435.948056, 18_059_974, 245_896),
        ("azure_llm_2023_conv.csv", 19366, 3501.721937, 22_361_870, 4_088_665),
    ],
)
def test_published_traces_add_up(name: str, requests: int, seconds: float, prompt: int, output: int) -> None:
    with (TRACES / name).open(newline="") as lines:
        trace = read(lines, "azure")
    assert len(trace) == requests
    assert trace.arrival[-1] == pytest.approx(seconds, abs=1e-6)
    assert (trace.prompt.sum(), trace.output.sum()) == (prompt, output)


def test_json_lines_are_milliseconds_and_sorted() -> None:
    lines = [
        json.dumps({"timestamp": 27500, "input_length": 10, "output_length": 2, "hash_ids": [1]}),
        "",
        json.dumps({"timestamp": 27000.5, "input_length": 30, "output_length": 4}),
    ]
    trace = read(lines, "jsonl")
    assert trace.arrival.tolist() == [0.0, 0.4995]
    assert trace.prompt.tolist() == [30, 10]


@pytest.mark.parametrize(
    ("header", "first", "second", "gap"),
    [
        ("Timestamp,Model,Request tokens,Response tokens,Total tokens", "5,m,10,2,12", "7.5,m,20,3,23", 2.5),
        ("arrived_at;num_prefill_tokens;num_decode_tokens", "0.25;10;2", "0.5;20.0;3", 0.25),
        ("output_tokens\tprompt_tokens\tarrival_ms", "2\t10\t100", "3\t20\t350", 0.25),
        ("\ufeffTIMESTAMP,ContextTokens,GeneratedTokens", "2024-05-10 00:00:00.5+00:00,10,2",
         "2024-05-10T02:00:01.25+02:00,20,3", 0.75),
    ],
)  # fmt: skip
def test_csv_columns_go_by_name_and_unit(header: str, first: str, second: str, gap: float) -> None:
    trace = read(["\n", header + "\n", first + "\n", "\n", second], "csv")
    assert trace.arrival.tolist() == [0.0, gap]
    assert trace.prompt.tolist() == [10, 20]
    assert trace.output.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("form", "text", "fragments"),
    [
        ("azure", AZURE + "2023-11-16 18:17:03,8,1\n2023-11-16 18:17:04,many,8", ["line 3", "ContextTokens", "'many'"]),
        ("azure", AZURE + "2023-11-16 18:17:03,4808", ["line 2", "2 columns", "cut off"]),
        ("azure", AZURE + "2023-11-36 18:17:03,4808,1", ["line 2", "TIMESTAMP", "YYYY-MM-DD"]),
        ("azure", AZURE + "yesterday,4808,1", ["line 2", "TIMESTAMP", "'yesterday'"]),
        ("azure", AZURE + "2023-11-16 18:17:03,4808,0", ["GeneratedTokens", "'0'", "leave failed requests out"]),
        ("azure", AZURE, ["no request"]),
        ("jsonl", '{"timestamp": 1', ["line 1", "one object a line"]),
        ("jsonl", "[1, 2]", ["line 1", "object"]),
        ("jsonl", '{"timestamp": 1, "input_length": 5}', ["line 1", "'output_length'"]),
        ("jsonl", '\n{"timestamp": NaN, "input_length": 5, "output_length": 1}', ["line 2", "timestamp", "'NaN'"]),
        ("jsonl", '{"timestamp": 1, "input_length": true, "output_length": 1}', ["input_length", "True"]),
        ("jsonl", '{"timestamp": 1, "input_length": 2.5, "output_length": 1}', ["input_length", "2.5"]),
        ("csv", "time,prompt,output\n1,-2,3", ["line 2", "prompt", "'-2'"]),
        ("csv", "time,prompt,output\n1e999,2,3", ["line 2", "time", "'1e999'"]),
        ("csv", "time,prompt,output\n1,2,1e999999999", ["line 2", "output"]),
        ("csv", "when,prompt,output\n1,2,3", ["time column", "'when'"]),
        ("csv", "time,timestamp,prompt,output\n1,1,2,3", ["'time' and 'timestamp'", "exactly one"]),
        ("csv", 'time,prompt,output\n1,"2,3', ["line 2", "quotes"]),
        ("csv", "", ["time column"]),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(form: Format, text: str, fragments: list[str]) -> None:
    with pytest.raises(TraceError) as caught:
        read(text.splitlines(keepends=True), form)
    for fragment in fragments:
        assert fragment in str(caught.value)


TOKENS = st.integers(1, 200_000)
REQUESTS = st.lists(st.tuples(st.integers(0, 10**9), TOKENS, TOKENS), min_size=1, max_size=30)


@given(REQUESTS)
def test_every_format_reads_back_what_was_written(requests: list[tuple[int, int, int]]) -> None:
    """Times in milliseconds; ties keep no order, so requests are compared as sorted rows."""
    lines = [json.dumps({"timestamp": t, "input_length": i, "output_length": o}) for t, i, o in requests]
    table = ["output,arrival_ms,prompt", *(f"{o},{t},{i}" for t, i, o in requests)]
    expected = sorted(requests)
    for trace in (read(lines, "jsonl"), read(table, "csv")):
        assert trace.arrival.tolist() == pytest.approx([(t - expected[0][0]) / 1e3 for t, _, _ in expected], abs=1e-9)
        assert list(zip(trace.prompt.tolist(), trace.output.tolist(), strict=True)) == [(i, o) for _, i, o in expected]


@settings(max_examples=200)
@given(st.sampled_from(["csv", "jsonl"]), st.lists(st.text(max_size=40), max_size=6), st.booleans())
def test_whatever_the_lines_are_there_is_a_trace_or_a_named_fault(form: Format, lines: list[str], head: bool) -> None:
    try:
        trace = read([*(["time,prompt,output"] if head else []), *lines], form)
    except TraceError:
        return
    assert len(trace) > 0
    assert np.all(np.diff(trace.arrival) >= 0)
    assert trace.arrival[0] == 0


def test_a_trace_can_be_cut_and_sped_up() -> None:
    trace = read(["time,prompt,output", "0,1,10", "10,2,20", "20,3,30"], "csv")
    assert trace.sped_up(2.0).arrival.tolist() == [0.0, 5.0, 10.0]
    assert trace.until(20.0).prompt.tolist() == [1, 2]
