"""`speculative plan`: what the operator would start from, as figures by load and a verdict."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cli.test_check import LLAMA, model

from speculative_operator.cli.main import main
from speculative_operator.cli.plan import add_arguments
from speculative_operator.cli.planning import plan_of
from speculative_operator.cli.subject import subject
from speculative_operator.domain.spec import Workload
from speculative_operator.pairing.catalogue import load_packaged
from speculative_operator.physics.catalog import rows
from speculative_operator.tuner.judge import table_by_prior

ROOT = Path(__file__).resolve().parents[3]
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
    assert re.search(r"guides: 60 to 80 % .*; here \d+ % with K \d, and drafts pay from \d+ % on\n", out)
    assert re.search(r"guides: 1 to 8 requests .*; here \+\d+ % at 1, and \+\d+ % at 8 with K \d\n", out)
    rate, price = re.search(r"cost: ([\d,]+) tokens/s at 3.60 an hour is ([\d.]+) per", out).groups()  # type: ignore[union-attr]
    assert float(price) == pytest.approx(1.0 / float(rate.replace(",", "")), rel=0.01)
    assert "why: " not in out


def test_the_figures_are_those_of_the_tuner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out = run(tmp_path, capsys, QWEN, "--output", "json")
    plan = json.loads(out)
    table = table_by_prior(subject({"spec": QWEN}).policy)
    assert [one["startK"] for one in plan["rows"]] == [table.k_at(one["requests"]) for one in plan["rows"]]
    assert [one["requests"] for one in plan["rows"]] == [1, 2, 4, 8, 16, 32, 64, 128]
    for one in plan["rows"]:
        low, mid, high = one["gainPercent"]
        assert low <= mid <= high
        assert one["tpotOffMs"] / one["tpotMs"] == pytest.approx(1 + mid / 100, rel=1e-2)
        cost = 1000 * 3.60 / 3600 / (one["requests"] / one["tpotMs"] * 1000)
        assert one["costPerThousandTokens"] == pytest.approx(cost, rel=1e-3)
    assert plan["rows"][0]["gainPercent"][1] > plan["rows"][-1]["gainPercent"][1] + 20


def test_the_kind_of_text_is_told_and_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gains = {}
    for kind in ("Code", "creative"):
        status, out = run(tmp_path, capsys, QWEN, "--workload", kind, "--load", "1")
        assert status == 0
        assert f"text        {kind.capitalize()}, with the published acceptance" in out
        gains[kind] = json.loads(run(tmp_path, capsys, QWEN, "--workload", kind, "-o", "json")[1])
    assert gains["Code"]["workload"] == "Code"
    best = {kind: plan["rows"][0]["gainPercent"][1] for kind, plan in gains.items()}
    assert best["Code"] > best["creative"] + 20
    assert "text        Mixed, with" in run(tmp_path, capsys, QWEN)[1]
    stated = {**QWEN, "speculation": {"workload": "Code"}}
    assert json.loads(run(tmp_path, capsys, stated, "-o", "json")[1])["rows"] == gains["Code"]["rows"]


def test_the_kinds_of_text_are_those_with_a_published_acceptance() -> None:
    published = {row["workload"] for row in rows("acceptance")}
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for kind in published:
        assert parser.parse_args(["x", "--workload", kind]).workload == kind
    assert set(Workload) == published


def test_an_unknown_kind_of_text_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(tmp_path, capsys, QWEN, "--workload", "Poems")
    assert end.value.code == 2
    assert "Creative" in capsys.readouterr().err


def test_below_one_and_a_half_it_says_why_and_what_would_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {**QWEN, "speculator": {"method": "ngram"}}
    status, out = run(tmp_path, capsys, spec, "--load", "4")
    assert status == 0
    assert "verdict: some gain, below 1.5x: +" in out
    assert re.search(r"why: a step with K \d yields [\d.]+ tokens per request and takes [\d.]+ times as long", out)
    assert re.search(r"why: 1.5x with K \d at 4 requests takes [a-z\d% ]+; \d+ % are", out)
    assert "helps: spec.speculator: " in out


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


@pytest.mark.parametrize(
    ("model", "product", "missing", "remedy"),
    [
        ("hf://nobody/knows", "H100-SXM", "without the shape of nobody/knows no gain", "give --read"),
        ("hf://Qwen/Qwen3-8B", "A1000", "without the accelerator A1000 no gain", "set spec.accelerator.product"),
        ("hf://Qwen/Qwen3-8B", "", "without the accelerator no gain", "set spec.accelerator.product"),
        ("hf://nobody/knows", "", "the shape of nobody/knows and the accelerator no gain", "give --read"),
    ],
)
def test_what_is_not_known_is_said_and_no_figure_is_given(
    model: str, product: str, missing: str, remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"verifier": {"model": model}, "speculator": {"method": "ngram"}}
    if product:
        spec["accelerator"] = {"product": product}
    status, out = run(tmp_path, capsys, spec)
    assert status == 1
    assert "memory      not known" in out
    assert "verdict: not known: " in out
    assert missing in out
    assert remedy in out
    assert "8B model" not in out
    assert "candidate" not in out
    _, out = run(tmp_path, capsys, spec, "--output", "json")
    plan = json.loads(out)
    assert (plan["rows"], plan["pays"], plan["startTable"]) == ([], False, "")


def test_the_example_of_a_drafting_head_is_known_by_its_quantized_name(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["plan", str(ROOT / "examples" / "eagle3.yaml")])
    out = capsys.readouterr().out
    assert (status, "published figures of models and accelerator" in out) == (0, True)
    found = subject(yaml.safe_load((ROOT / "examples" / "eagle3.yaml").read_text())).policy.facts.verifier
    assert found is not None
    assert (found.name, found.layers, found.bytes_per_parameter) == ("google/gemma-4-31B-it", 60, 1.0)


DFLASH: dict[str, Any] = {
    "verifier": {"model": "hf://google/gemma-4-31B-it", "maxNumSeqs": 256},
    "speculator": {"method": "dflash", "model": "hf://RedHatAI/gemma-4-31B-it-speculator.dflash"},
    "accelerator": {"product": "H100-SXM"},
}


def test_no_row_is_for_more_requests_than_the_cache_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out = run(tmp_path, capsys, DFLASH, "--output", "json")
    plan = json.loads(out)
    tokens = int(re.match(r"([\d,]+) tokens", plan["memory"])[1].replace(",", ""))  # type: ignore[index]
    assert 1000 < tokens < 10_000
    assert plan["rows"][-1]["requests"] == tokens // 1000
    _, out = run(tmp_path, capsys, DFLASH, "--load", "128")
    assert re.search(r"The table ends at \d: no more requests of 1,000 tokens fit the KV cache \(\d without", out)
    assert "schedules up to 256." in out
    assert f"expected at {tokens // 1000} requests" in out


def test_shorter_requests_make_a_longer_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {**DFLASH, "verifier": {**DFLASH["verifier"], "maxModelLen": 100}}
    long = json.loads(run(tmp_path, capsys, DFLASH, "-o", "json")[1])
    short = json.loads(run(tmp_path, capsys, DFLASH, "-o", "json", "--context", "100")[1])
    capped = json.loads(run(tmp_path, capsys, spec, "-o", "json")[1])
    assert len(long["rows"]) < len(short["rows"])
    assert capped["rows"][-1]["requests"] == short["rows"][-1]["requests"]
    tiny = json.loads(run(tmp_path, capsys, DFLASH, "-o", "json", "--context", "1")[1])
    assert (tiny["rows"][-1]["requests"], tiny["tableEnd"]) == (256, "")


def test_a_request_that_does_not_fit_is_no_candidate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = run(tmp_path, capsys, DFLASH, "--context", "50000")
    assert (status, "verdict: no candidate: the KV cache holds " in out) == (1, True)


def test_weights_that_fill_the_memory_get_no_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {**QWEN, "verifier": {"model": "hf://meta-llama/Llama-3.3-70B-Instruct"}, "speculator": {"method": "ngram"}}
    status, out = run(tmp_path, capsys, spec)
    assert (status, "verdict: not known: by the bytes" in out, "candidate" in out) == (1, True, False)
    assert "spec.verifier.quantization" in out
    spec["verifier"] = {**spec["verifier"], "quantization": "fp8", "tensorParallelSize": 2}
    spec["accelerator"] = {"product": "H100-SXM", "perReplica": 2}
    assert "tokens of KV cache" in run(tmp_path, capsys, spec)[1]


def test_reading_the_files_makes_a_model_known_and_counts_its_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    embedding: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (100, 64), "lm_head.weight": (100, 64)}
    model(tmp_path / "models" / "llama", LLAMA, embedding)
    spec: dict[str, Any] = {
        "verifier": {"model": "pvc://models/llama", "maxNumSeqs": 64, "gpuMemoryUtilizationPercent": 90},
        "speculator": {"method": "ngram"},
        "accelerator": {"product": "H100-SXM"},
    }
    status, out = run(tmp_path, capsys, spec)
    assert (status, "verdict: not known: without the shape of models/llama" in out) == (1, True)
    _, out = run(tmp_path, capsys, spec, "--read", "--claims-at", str(tmp_path), "-o", "json", "--context", "64")
    plan = json.loads(out)
    assert plan["rows"][-1]["requests"] == 64
    said = re.search(r"([\d,]+) tokens of KV cache", plan["memory"])
    assert said is not None
    assert int(said[1].replace(",", "")) > 1e6
    assert "compatible" in plan["pair"]


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


def test_a_model_is_planned_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As an object that leaves the speculator to the operator; a file of that name goes first."""
    spec = {"verifier": {"model": "hf://Qwen/Qwen3-8B"}, "speculator": {"auto": True}}
    of_file = run(tmp_path, capsys, {**spec, "accelerator": {"product": "H100-SXM"}})
    assert main(["plan", "Qwen/Qwen3-8B", "--on", "H100-SXM"]) == of_file[0] == 0
    assert capsys.readouterr().out == of_file[1]
    assert main(["plan", "hf://Qwen/Qwen3-8B"]) == 1
    assert "no gain can be told" in capsys.readouterr().out
    assert main(["plan", str(tmp_path / "object.yaml"), "--on", "H100-SXM"]) == 2
    assert "write accelerator.product into the file" in capsys.readouterr().err
    assert main(["plan", "Qwen/absent.yaml"]) == 2
    assert "No such file" in capsys.readouterr().err
