"""`speculative simulate`: loads and deployments that it takes, policies that it runs, and what it prints."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from speculative_lab.cli import simulate
from speculative_lab.plant import layout as at
from speculative_lab.plant.given import Given, world_of
from speculative_lab.plant.world import World
from speculative_operator.cli.main import main


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    simulate.add_arguments(parser)
    return parser.parse_args(words)


def given(*words: str) -> Given:
    return simulate.described(options(*words))


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three minutes of four requests a second."""
    rng = np.random.default_rng(1)
    rows = [
        {"timestamp": round(1000 * float(at)), "input_length": 400, "output_length": int(rng.integers(50, 250))}
        for at in np.sort(rng.uniform(0, 180, 720))
    ]
    path = tmp_path_factory.mktemp("trace") / "load.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def world(trace: Path) -> World:
    return world_of(given("--trace", str(trace), "--seed", "3", "--replicas", "2"))


@pytest.fixture(scope="module")
def rows(world: World) -> list[dict[str, Any]]:
    """A short competition that several tests look at."""
    return simulate.standings(world, [])


def test_requests_go_to_replicas_in_turn(world: World, trace: Path) -> None:
    recorded = given("--trace", str(trace)).trace
    assert [replica.opened for replica in world.replicas] == [360, 360]
    assert world.replicas[1].requests[:, at.ARRIVE].tolist() == recorded.arrival[1::2].tolist()
    assert world.replicas[0].requests[:, at.OUT].tolist() == recorded.output[::2].tolist()


def test_every_policy_gets_the_same_load_and_references_run_unasked(rows: list[dict[str, Any]], world: World) -> None:
    statics = {f"static_{k}" for k in world.policy.knobs.ks if k}
    laws = {"ours", "counters", "smartspec", "timed", "adaptive"}
    assert {row["policy"] for row in rows} == {"oracle", "off", *statics, *laws}
    asked = simulate.standings(world, ["smartspec"])
    assert {row["policy"] for row in asked} == {"oracle", "off", *statics, "smartspec"}
    served = [row["requests"] for row in rows]
    assert max(served) - min(served) < 30, "requests still under way at the end"


def test_the_fastest_comes_first_and_no_constant_beats_the_best_table(rows: list[dict[str, Any]]) -> None:
    speeds = [row["speed"] for row in rows]
    assert speeds == sorted(speeds, reverse=True)
    by_name = {row["policy"]: row for row in rows}
    assert by_name["oracle"]["regretPercent"] == 0
    assert all(row["regretPercent"] >= 0 for name, row in by_name.items() if name.startswith(("static", "off")))
    assert by_name["ours"]["tpotMs"]["p50"] < by_name["ours"]["tpotMs"]["p99"]
    assert by_name["ours"]["writes"] is not None
    assert by_name["off"]["writes"] is by_name["smartspec"]["writes"] is None


def test_json_has_an_object_for_each_policy_and_a_summary(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--trace", str(trace), "-o", "json", "--policy", "ours"]) == 0
    *rows, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_name = {row["policy"]: row for row in rows}
    summary = last["summary"]
    assert (summary["simulatedSeconds"], summary["seed"], summary["replicas"]) == (180, 0, 1)
    assert summary["oursRegretPercent"] == by_name["ours"]["regretPercent"]
    over = 100 * (by_name["ours"]["speed"] / by_name[summary["bestStatic"]]["speed"] - 1)
    assert summary["oursOverBestStaticPercent"] == pytest.approx(over, abs=1e-2)


def test_text_is_a_table_and_what_it_means(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--trace", str(trace), "--seconds", "2m", "--policy", "ours"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert re.match(r"4\d\d requests of load.jsonl on meta-llama/.*, eagle3, H100-SXM", out[0])
    assert out[2].split()[:3] == ["POLICY", "SPEED", "REGRET"]
    assert "than the best table" in out[-2]
    assert out[-1] == "120 s simulated, seed 0."


def test_a_negative_regret_is_faster() -> None:
    told = {"simulatedSeconds": 60.0, "seed": 1, "oursRegretPercent": -0.03, "oursOverOffPercent": None}
    assert simulate._sentence(told) == "ours is 0.03 % faster than the best table.\n60 s simulated, seed 1."


def test_the_seed_draws_what_nobody_knows_of_a_machine(trace: Path) -> None:
    drawn = [world_of(given("--trace", str(trace), "--seed", seed)).replicas[0] for seed in ("1", "1", "2")]
    assert np.array_equal(drawn[0].machine.par, drawn[1].machine.par)
    assert drawn[0].machine.par[at.DENSE_SECONDS] != drawn[2].machine.par[at.DENSE_SECONDS]


def test_the_formats_of_a_trace_are_told_by_their_looks(tmp_path: Path) -> None:
    texts = {
        "a": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.5,10,20\n2023-11-16 18:17:05.5,30,40\n",
        "b": '{"timestamp": 0, "input_length": 10, "output_length": 20}\n'
        '{"timestamp": 2000, "input_length": 30, "output_length": 40}\n',
        "c": "time;prompt;output\n7;10;20\n9;30;40\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        found = given("--trace", str(tmp_path / name), "--speed-up", "4", "--seconds", "3m")
        assert found.trace.arrival.tolist() == [0, 0.5]
        assert found.trace.output.tolist() == [20, 40]
        assert found.seconds == 180


def test_options_describe_the_deployment(trace: Path) -> None:
    words = ["--verifier", "Qwen/Qwen3-8B", "--speculator", "Qwen/Qwen3-0.6B", "--method", "draft_model"]
    words += ["--accelerator", "A100-80GB", "--max-k", "3", "--workload", "Code", "--replicas", "2"]
    found = given("--trace", str(trace), *words)
    facts = found.policy.facts
    assert facts.verifier is not None
    assert facts.speculator is not None
    assert (facts.verifier.name, facts.speculator.name) == ("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B")
    assert max(found.policy.knobs.ks) == 3
    assert found.replicas == 2
    assert facts.kv_capacity_tokens is not None
    assert facts.kv_capacity_tokens_without_speculator is not None
    assert facts.kv_capacity_tokens < facts.kv_capacity_tokens_without_speculator
    machine = world_of(found).replicas[0].machine
    assert machine.par[at.KV_CAPACITY] == facts.kv_capacity_tokens
    assert machine.par[at.SEATS] == found.policy.knobs.max_batch
    assert found.first_accepted > given("--trace", str(trace), *words, "--workload", "Creative").first_accepted


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [
        (["--trace", "TRACE", "--policy", "magic"], "--policy 'magic' is not known; use one of ours", 2),
        (["--trace", "TRACE", "--speed-up", "0"], "--speed-up is 0", 2),
        (["--trace", "TRACE", "--replicas", "0"], "--replicas is 0", 2),
        (["--trace", "TRACE", "--seed", "-1"], "--seed is -1", 2),
        (["--trace", "TRACE", "--seconds", "long"], "--seconds is 'long'", 2),
        (["--trace", "/nowhere"], "--trace /nowhere: No such file", 2),
        (["--trace", "TRACE", "--format", "csv"], "could be the time column", 1),
        (["--trace", "TRACE", "--verifier", "someone/unheard-of", "--method", "ngram"], "give their shapes", 1),
        (["--trace", "TRACE", "--verifier", "Qwen/Qwen3-8B"], "spec.speculator.model", 1),
        (["--trace", "TRACE", "--method", "magic"], "spec.speculator.method", 1),
        (
            ["--trace", "TRACE", "--accelerator", "A40", "--verifier", "Qwen/Qwen3-32B", "--method", "ngram"],
            "no room",
            1,
        ),
        (["--trace", "TRACE", "--spec", "/nowhere"], "--spec /nowhere: No such file", 2),
    ],
)
def test_wrong_use(trace: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str, status: int) -> None:
    given = [str(trace) if word == "TRACE" else word for word in words]
    assert main(["simulate", *given]) == status
    problem = capsys.readouterr().err
    assert problem.startswith("error: ")
    assert said in problem
    assert problem.count("\n") == 1


def test_a_deployment_whose_k_needs_a_rollout_is_refused(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "verifier: {model: hf://Qwen/Qwen3-8B}\nspeculator: {method: ngram}\nengine: {type: SGLang}\n"
        "accelerator: {product: H100-SXM}\n"
    )
    assert main(["simulate", "--trace", str(trace), "--spec", str(spec)]) == 1
    assert "K of this deployment is not set while it serves" in capsys.readouterr().err


def test_without_the_compiler_it_says_how_to_get_it(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith("speculative_lab.plant")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "numba", None)
    assert main(["simulate", "--trace", str(trace)]) == 1
    said = capsys.readouterr().err
    assert said == "error: the simulation needs numba; install it with: pip install . './lab[sim]'\n"
