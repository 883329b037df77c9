"""`speculative plan`: what the operator would start from, as figures by load and a verdict."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from speculative_operator.cli.main import main
from speculative_operator.cli.planning import plan_of
from speculative_operator.cli.subject import subject
from speculative_operator.pairing.catalogue import load_packaged
from speculative_operator.tuner.judge import initial_table

QWEN: dict[str, Any] = {
    "verifier": {"model": "hf://Qwen/Qwen3-8B", "maxNumSeqs": 128},
    "speculator": {"method": "eagle3", "model": "hf://RedHatAI/Qwen3-8B-speculator.eagle3"},
    "accelerator": {"product": "H100-SXM", "hourlyCost": "3.60"},
}


def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], spec: dict[str, Any], *words: str) -> tuple[int, str]:
    file = tmp_path / "object.yaml"
    file.write_text(yaml.safe_dump({"spec": spec}))
    status = main(["plan", str(file), *words])
    out, err = capsys.readouterr()
    assert status == 2 or not err, err
    return status, out or err


def test_a_clear_candidate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = run(tmp_path, capsys, QWEN)
    assert status == 0
    assert "verdict: candidate: +" in out
    assert "1.5x or more at 1 to " in out
    assert "published figures of models and accelerator" in out


def test_the_figures_are_those_of_the_tuner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out = run(tmp_path, capsys, QWEN, "--output", "json")
    plan = json.loads(out)
    table = initial_table(subject({"spec": QWEN}).policy)
    assert [one["startK"] for one in plan["rows"]] == [table.k_at(one["requests"]) for one in plan["rows"]]
    assert [one["requests"] for one in plan["rows"]] == [1, 2, 4, 8, 16, 32, 64, 128]
    for one in plan["rows"]:
        low, mid, high = one["gainPercent"]
        assert low <= mid <= high
        assert one["tpotOffMs"] / one["tpotMs"] == pytest.approx(1 + mid / 100, rel=1e-2)
        cost = 1000 * 3.60 / 3600 / (one["requests"] / one["tpotMs"] * 1000)
        assert one["costPerThousandTokens"] == pytest.approx(cost, rel=1e-3)
    assert plan["rows"][0]["gainPercent"][1] > plan["rows"][-1]["gainPercent"][1] + 20


def test_below_one_and_a_half_it_says_why_and_what_would_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {**QWEN, "speculator": {"method": "ngram"}}
    status, out = run(tmp_path, capsys, spec, "--load", "4")
    assert status == 0
    assert "verdict: some gain, below 1.5x: +" in out
    assert re.search(r"why: a step with K \d yields [\d.]+ tokens per request and takes [\d.]+ times as long", out)
    assert "would help: spec.speculator: " in out


def test_where_the_interval_reaches_below_zero_it_says_how_to_find_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    advice = "the interval reaches below 0: compare with a copy in mode Disabled"
    draft = {**QWEN, "speculator": {"method": "draft_model", "model": "hf://Qwen/Qwen3-0.6B"}}
    status, out = run(tmp_path, capsys, draft, "--load", "4")
    assert (status, advice in out) == (0, True)
    head = {**QWEN, "speculator": {"method": "eagle3", "model": "hf://RedHatAI/Qwen3-8B-speculator.eagle3"}}
    status, out = run(tmp_path, capsys, head, "--load", "4")
    assert (status, advice in out) == (0, False)


def test_no_candidate_at_a_high_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {**QWEN, "speculator": {"method": "ngram"}}
    status, out = run(tmp_path, capsys, spec, "--load", "128")
    assert status == 1
    assert "verdict: no candidate: " in out
    assert "more replicas keep the load of a pod below that" in out


def test_without_a_speculator_there_is_nothing_to_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"verifier": QWEN["verifier"], "speculation": {"mode": "Disabled"}}
    status, out = run(tmp_path, capsys, spec)
    assert (status, "no candidate: the spec has no speculator" in out) == (1, True)


def test_what_is_not_known_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"verifier": {"model": "hf://nobody/knows"}, "speculator": {"method": "ngram"}}
    _, out = run(tmp_path, capsys, spec)
    assert "memory      not known" in out
    assert "a typical 8B model on a large accelerator" in out


@pytest.mark.parametrize("words", [("--load", "0"), ("--context", "nan"), ("--prompt-ratio", "-1")])
def test_an_absurd_number_is_wrong_use(
    words: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out = run(tmp_path, capsys, QWEN, *words)
    assert (status, out.startswith("error: ")) == (2, True)


@settings(max_examples=6, deadline=None)
@given(st.floats(1, 200_000), st.floats(0, 100), st.one_of(st.none(), st.floats(1, 1000)))
def test_every_load_has_a_verdict(context: float, ratio: float, load: float | None) -> None:
    plan = plan_of(subject({"spec": QWEN}), load_packaged(), context, ratio, load)
    assert plan.verdict
    assert plan.pays == (not plan.verdict.startswith("no candidate"))
    assert all(one.best.tpot_ms > 0 for one in plan.rows)
    json.dumps(plan.to_json(), allow_nan=False)
