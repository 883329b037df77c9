"""`speculative tune`: what it answers to good and bad lines, and that nothing on stdin ends it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cli.scrapes import START, Pod

from speculative_operator.cli.tune import converse
from speculative_operator.domain.decision import Decision, Policy
from speculative_operator.domain.observation import BlockTotals, Comparison, Observation
from speculative_operator.domain.table import Trial
from speculative_operator.replay import session
from speculative_operator.tuner import Memory, decide

ROOT = Path(__file__).resolve().parents[3]
SPEC: dict[str, Any] = {
    "verifier": {"model": "hf://meta-llama/Llama-3.1-8B-Instruct", "maxNumSeqs": 64},
    "speculator": {"method": "eagle3", "model": "hf://yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"},
    "speculation": {"maxSpeculativeTokens": 5},
    "accelerator": {"product": "H100-SXM"},
}
FIGURES = {
    "gainPercent", "proposedGainPercent", "removalGainPercent", "acceptanceLength", "acceptanceRate", "concurrency",
    "k", "tpotMs", "tpotOffMs", "tokensPerSecond", "costPerThousandTokens",
}  # fmt: skip


def answers(*lines: Any) -> list[dict[str, Any]]:
    """What is answered to lines given as objects, text or bytes."""
    given = b"".join(_line(line) + b"\n" for line in lines)
    out = io.StringIO()
    assert converse(io.BytesIO(given), out, io.StringIO()) == 0
    return [json.loads(line) for line in out.getvalue().splitlines()]


def _line(line: Any) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line)).encode()


def scrapes(count: int, **pods: Pod) -> list[dict[str, Any]]:
    served = pods or {"a": Pod()}
    return [
        {"time": START + index * 5, "pods": {name: pod.run(5).text() for name, pod in served.items()}}
        for index in range(count)
    ]


def test_one_answer_for_each_scrape_and_none_for_the_first_line() -> None:
    given = scrapes(6)
    found = answers({"spec": {"spec": SPEC}}, *given)
    assert [answer["time"] for answer in found] == [scrape["time"] for scrape in given]
    assert [answer["valid"] for answer in found[:1]] == [False]
    assert found[0]["reason"] == "Starting"
    last = found[-1]
    assert set(last) == {
        *("time", "state", "table", "reason", "message", "valid", "changed", "tries", "speculatorRemoved", "estimate")
    }
    assert last["state"] in {"On", "Off", "Removed", "Holding", "Probing"}
    assert last["valid"]
    assert [last["table"][0][0], last["table"][-1][1]] == [1, 64]
    figures = last["estimate"]
    assert set(figures) == FIGURES
    assert figures["acceptanceLength"] == pytest.approx(2.55)
    assert figures["tpotMs"] == pytest.approx(10 / 2.55, rel=1e-3)
    low, mid, high = figures["gainPercent"]
    assert low <= mid <= high


def test_it_decides_as_a_session_does() -> None:
    """Nothing is lost or added on the way: the answers are the decisions of the session, fed with the same texts."""
    from speculative_operator.cli.subject import subject
    from speculative_operator.cli.tune import answer

    session, given = subject(SPEC).session(), scrapes(20, a=Pod(requests=40), b=Pod(requests=10))
    expected = [answer(one["time"], session.feed(one["time"], one["pods"]), session.trials) for one in given]
    assert answers({"spec": SPEC}, *given) == json.loads(json.dumps(expected))


def test_what_may_be_tried_is_told_as_the_tables_file_has_it() -> None:
    from speculative_operator.cli.subject import subject
    from speculative_operator.cli.tune import answer

    decision = subject(SPEC).session().feed(START, {"a": Pod().run(5).text()})
    told = answer(START, decision, (Trial(1, 4, (2, 5), 0.05), Trial(9, 12, (3,), 0.02)))
    assert told["tries"] == {"steps": 8, "rows": [[1, 4, [2, 5], 0.05], [9, 12, [3], 0.02]]}
    assert answer(START, decision)["tries"] is None


FIGURES_OF_BLOCKS: dict[str, float] = {
    "blocks": 2, "seconds_square": 0.25, "tokens_square": 0.5, "steps": 32, "step_seconds": 0.5, "requests": 64,
    "request_seconds": 1.0, "tokens": 128, "decode_steps": 24, "decode_step_seconds": 0.25,
}  # fmt: skip
BUCKETS = """vllm:time_to_first_token_seconds_bucket{{engine="0",le="0.1"}} {0}
vllm:time_to_first_token_seconds_bucket{{engine="0",le="+Inf"}} {1}
"""


def told_of_blocks(figures: dict[str, float]) -> str:
    lines = ['speculative_payload_info{live="true",engine_version="mine"} 1']
    for name, value in figures.items():
        sides = ("",) if name in {"blocks", "seconds_square", "tokens_square"} else (',side="tried"', ',side="beside"')
        lines += [
            f'speculative_payload_tried_{name}_total{{k="3",against="5",first="1",last="4"{side}}} {value}'
            for side in sides
        ]
    return "\n".join([*lines, ""])


def test_comparisons_and_latencies_of_a_scrape_reach_the_tuner(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Observation] = []

    def spy(memory: Memory, seen: Observation, policy: Policy, now: float) -> tuple[Memory, Decision]:
        looks.append(seen)
        return decide(memory, seen, policy, now)

    monkeypatch.setattr(session, "decide", spy)
    nothing: dict[str, float] = dict.fromkeys(FIGURES_OF_BLOCKS, 0.0)
    given = scrapes(2)
    for one, figures, counts in zip(given, (nothing, FIGURES_OF_BLOCKS), ((1, 4), (3, 9)), strict=True):
        one["pods"]["a"] += told_of_blocks(figures) + BUCKETS.format(*counts)
    answers({"spec": SPEC}, *given)
    (window,) = looks[-1].windows.values()
    blocks = BlockTotals(32.0, 0.5, 64.0, 1.0, 128.0, 24.0, 0.25)
    assert window.comparisons == (Comparison(3, 5, 1, 4, 2.0, blocks, blocks, 0.25, 0.5),)
    assert window.ttft_histogram == ((0.1, 2.0), (float("inf"), 3.0))


def test_cost_and_removal_are_spelt_out() -> None:
    priced = {**SPEC, "accelerator": {"product": "H100-SXM", "perReplica": 2, "hourlyCost": "5.00"}}
    priced["verifier"] = {**priced["verifier"], "tensorParallelSize": 2}
    last = answers({"spec": priced}, *scrapes(4))[-1]
    assert last["speculatorRemoved"] is False
    rate = last["estimate"]["tokensPerSecond"]
    assert last["estimate"]["costPerThousandTokens"] == pytest.approx(2 * 5.0 / 3.6 / rate, rel=1e-4)
    assert answers({"spec": SPEC}, *scrapes(4))[-1]["estimate"]["costPerThousandTokens"] is None


@pytest.mark.parametrize(
    ("line", "said", "field"),
    [
        ("", "the line is empty", None),
        ("nonsense", "not JSON", None),
        ('{"spec": ', "not JSON", None),
        ("[1, 2]", "not a JSON object", None),
        ("7", "not a JSON object", None),
        (b'{"spec": "\xff"}', "not UTF-8", None),
        ('{"spec": NaN}', "NaN is not a JSON number", None),
        ("[" * 100_000, "not JSON", None),
        ('{"time": ' + "9" * 5000 + "}", "not JSON", None),
        ({}, "the first line has no spec", "spec"),
        ({"time": 5, "pods": {}}, "the first line has no spec", "spec"),
        ({"spec": None}, "spec is not set", "spec"),
        ({"spec": []}, "use a SpeculativeDeployment", "spec"),
        ({"spec": {"kind": "Deployment", "spec": SPEC}}, 'kind is "Deployment"', "kind"),
        ({"spec": {"metadata": [], "spec": SPEC}}, "metadata is []", "metadata"),
        ({"spec": {"metadata": {"name": "Upper"}, "spec": SPEC}}, 'metadata.name is "Upper"', "metadata.name"),
        ({"spec": {"metadata": {"annotations": 5}, "spec": SPEC}}, "is 5", "metadata.annotations"),
        ({"spec": {}}, "spec is {}: it is empty", "spec"),
        ({"spec": {"spec": {}}}, "spec.verifier is not set: it is required", "spec.verifier"),
        ({"spec": {**SPEC, "replicaz": 1}}, "spec.replicaz is 1: the field does not exist", "spec.replicaz"),
        (
            {"spec": {**SPEC, "speculation": {"mode": "Sometimes"}}},
            'spec.speculation.mode is "Sometimes": use one of',
            "spec.speculation.mode",
        ),
        (
            {"spec": {**SPEC, "speculation": {"numSpeculativeTokens": 9, "maxSpeculativeTokens": 4}}},
            "is 9: write at most maxSpeculativeTokens (4)",
            "spec.speculation.numSpeculativeTokens",
        ),
        ({"spec": {**SPEC, "engine": {"type": "TGI"}}}, "TGI has ngram and medusa only", "spec.speculator.method"),
        ({"spec": SPEC, "facts": 5}, "facts is 5", "facts"),
        ({"spec": SPEC, "facts": {"verifier": 5}}, "facts.verifier is 5", "facts.verifier"),
        ({"spec": SPEC, "facts": {"verifier": {"parameters": 8}}}, "such as 8.03e9", "facts.verifier.parameters"),
        ({"spec": SPEC, "facts": {"verifier": {"layers": 3.5}}}, "a whole number", "facts.verifier.layers"),
        ({"spec": SPEC, "facts": {"verifier": {"layers": True}}}, "a whole number", "facts.verifier.layers"),
        ({"spec": SPEC, "facts": {"verifier": {"layers": 10**400}}}, "a whole number", "facts.verifier.layers"),
        ({"spec": SPEC, "facts": {"verifier": {"headDim": "64"}}}, "a whole number", "facts.verifier.headDim"),
        (
            {"spec": SPEC, "facts": {"verifier": {"parameters": 8e9, "activeParameters": 9e9}}},
            "at most parameters",
            "facts.verifier.activeParameters",
        ),
        ({"spec": SPEC, "facts": {"speculator": {"method": "magic"}}}, "use one of", "facts.speculator.method"),
        ({"spec": SPEC, "facts": {"captureSizes": 8}}, "captured for", "facts.captureSizes"),
        ({"spec": SPEC, "facts": {"captureSizes": [1, -2]}}, "captured for", "facts.captureSizes[1]"),
        (
            {"spec": SPEC, "facts": {"kvCapacityTokens": {"withSpeculator": 0}}},
            "KV cache",
            "facts.kvCapacityTokens.withSpeculator",
        ),
    ],
)
def test_a_bad_first_line_is_named_and_the_next_one_is_tried(line: Any, said: str, field: str | None) -> None:
    found = answers(line, {"spec": SPEC}, *scrapes(2))
    assert len(found) == 3
    assert found[0]["error"]["line"] == 1
    assert said in found[0]["error"]["message"]
    assert found[0]["error"].get("field") == field
    assert len(found[0]["error"]["message"]) < 400
    assert [answer["reason"] for answer in found[1:]] == ["Starting", "Starting"]


@pytest.mark.parametrize(
    ("line", "said", "field"),
    [
        ("", "the line is empty", None),
        ({"pods": {}}, "time is not set", "time"),
        ({"time": "now", "pods": {}}, 'time is "now"', "time"),
        ({"time": True, "pods": {}}, "time is true", "time"),
        ({"time": -1, "pods": {}}, "time is -1", "time"),
        ({"time": 1.7e12, "pods": {}}, "unix seconds", "time"),
        ({"time": 5}, "pods must be an object", "pods"),
        ({"time": 5, "pods": ["a"]}, "pods must be an object", "pods"),
        ({"time": 5, "pods": {"a": 3}}, "pods.a is 3", "pods.a"),
        ({"spec": SPEC}, "time is not set", "time"),
    ],
)
def test_a_bad_scrape_is_named_and_moves_nothing(line: Any, said: str, field: str | None) -> None:
    given = scrapes(8)
    plain = answers({"spec": SPEC}, *given)
    found = answers({"spec": SPEC}, *given[:4], line, *given[4:])
    error = found.pop(4)["error"]
    assert error["line"] == 6
    assert said in error["message"]
    assert error.get("field") == field
    assert found == plain


def test_a_failed_scrape_is_a_gap_and_no_error() -> None:
    given = scrapes(5)
    given[4]["pods"]["a"] = None
    last = answers({"spec": SPEC}, *given)[-1]
    assert (last["valid"], last["reason"]) == (False, "MetricsMissing")


def test_facts_that_nothing_reads_are_told_to_the_human() -> None:
    hints, out = io.StringIO(), io.StringIO()
    first = {"spec": SPEC, "facts": {"colour": "blue", "verifier": {"layerz": 3}}}
    converse(io.BytesIO(_line(first)), out, hints)
    assert out.getvalue() == ""
    assert hints.getvalue().splitlines() == [
        "warning: facts.colour is unknown and ignored",
        "warning: facts.verifier.layerz is unknown and ignored",
    ]


def test_a_fault_of_this_program_is_told_and_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    from speculative_operator.replay.session import Session

    def broken(*_: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(Session, "feed", broken)
    found = answers({"spec": SPEC}, *scrapes(2))
    assert [one["error"]["message"] for one in found] == ["internal error: RuntimeError: out of luck"] * 2


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.binary(max_size=30)
        | JSON.map(lambda value: json.dumps(value).encode())
        | st.fixed_dictionaries(
            {}, optional={"time": JSON, "pods": JSON | st.just({"a": "vllm:x 1"}), "spec": JSON, "facts": JSON}
        ).map(lambda value: json.dumps(value).encode()),
        max_size=6,
    ),
    st.booleans(),
)
def test_no_input_ends_it(lines: list[bytes], begun: bool) -> None:
    given = [line.replace(b"\n", b" ") for line in lines]
    found = answers(*([{"spec": SPEC}] if begun else []), *given)
    assert len(found) == len(given)
    for answer in found:
        assert ("error" in answer) != ("state" in answer)


# --- as a program ---


def tune(**options: Any) -> subprocess.Popen[bytes]:
    """The command as a process of its own, as a terminal starts it: where tests run in a shell's background, Ctrl-C is
    ignored."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from speculative_operator.cli.main import main; sys.exit(main(['tune']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, **{**pipes, **options})


def test_each_answer_is_there_before_the_next_line_is_written() -> None:
    process = tune()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(_line({"spec": SPEC}) + b"\n")
    for scrape in scrapes(3):
        process.stdin.write(_line(scrape) + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["time"] == scrape["time"]
    out, errors = process.communicate(timeout=30)
    assert (out, errors, process.returncode) == (b"", b"", 0)


def test_a_reader_that_goes_and_ctrl_c_end_it_quietly() -> None:
    gone = tune()
    assert gone.stdin is not None
    assert gone.stdout is not None
    assert gone.stderr is not None
    gone.stdout.close()
    gone.stdin.write(b"nonsense\n" * 3)
    gone.stdin.close()
    assert gone.wait(30) == 0
    assert gone.stderr.read() == b""
    gone.stderr.close()
    with tune() as interrupted:
        assert interrupted.stdin is not None
        assert interrupted.stdout is not None
        interrupted.stdin.write(b"nonsense\n")
        interrupted.stdin.flush()
        assert b"error" in interrupted.stdout.readline()
        interrupted.send_signal(signal.SIGINT)
        assert interrupted.communicate(timeout=60)[1] == b""
        assert interrupted.returncode == 130
