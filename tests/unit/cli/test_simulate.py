"""`speculative simulate`: loads it takes, policies it runs, what it prints, and the page it writes."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.narrow import too_wide

from speculative_lab.cli import arena as arenas
from speculative_lab.cli import report, simulate
from speculative_lab.cli.arena import Arena, Result
from speculative_lab.cli.standings import sentences, standings
from speculative_lab.sim import experiment
from speculative_lab.sim.deployment import MissingCompilerError
from speculative_operator.cli.main import main

pytest.importorskip("numba", reason="the simulator needs numba")

POLICIES = ("ours", "off", "static", "cutoff32")


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    simulate.add_arguments(parser)
    return parser.parse_args(words)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two minutes of six requests a second."""
    rng = np.random.default_rng(1)
    rows = [
        {"timestamp": round(1000 * float(at)), "input_length": 400, "output_length": int(rng.integers(50, 250))}
        for at in np.sort(rng.uniform(0, 120, 720))
    ]
    path = tmp_path_factory.mktemp("trace") / "load.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def fought(trace: Path) -> tuple[Arena, list[Result]]:
    """A short competition that several tests look at."""
    found = arenas.arena(options("--trace", str(trace), "--seed", "3"))
    return found, list(arenas.compete(found, arenas.chosen(found, list(POLICIES))))


def test_every_policy_gets_the_same_load_and_the_oracle_runs_unasked(fought: tuple[Arena, list[Result]]) -> None:
    found, results = fought
    names = [result.run.name for result in results]
    statics = [f"static_{k}" for k in found.plant.knobs.ks if k]
    assert names == ["oracle", "ours", "off", *statics, "cutoff32"]
    served = {result.run.name: len(result.watched.ttft) for result in results}
    assert max(served.values()) - min(served.values()) < 15, "requests still under way at the end"


def test_the_standings_agree_with_the_truth(fought: tuple[Arena, list[Result]]) -> None:
    """Tokens per second and latencies by two ways: per request as it ended, and from the counters of the pods."""
    _, results = fought
    table = standings(results)
    speeds = [row.speed or 0.0 for row in table.rows]
    assert speeds == sorted(speeds, reverse=True)
    oracle, off = table.of("oracle"), table.of("off")
    assert oracle is not None
    assert off is not None
    assert oracle.regret_percent == 0
    assert off.regret_percent is not None
    assert off.regret_percent > 10, "a low load, on which drafts pay"
    assert table.best_static is not None
    for result in results:
        row = table.of(result.run.name)
        assert row is not None
        assert row.tpot.mean is not None
        assert row.tpot.p50 is not None
        assert row.tpot.p99 is not None
        assert row.tpot.p50 < row.tpot.p99
        course = [sight.tpot for sight in result.watched.sights if sight.tpot is not None]
        assert 1e3 * float(np.mean(course)) == pytest.approx(row.tpot.mean, rel=0.25)
        ks = [sight.k for sight in result.watched.sights if sight.k is not None]
        if result.run.name.startswith("static_"):
            assert max(ks) == pytest.approx(int(result.run.name[7:]), abs=0.05)
        if result.run.name == "off":
            assert max(ks) == 0


def test_a_negative_regret_is_faster_and_a_policy_has_one_colour(fought: tuple[Arena, list[Result]]) -> None:
    found, results = fought
    table = standings(results)
    rows = tuple(replace(row, regret_percent=-0.03) if row.name == "ours" else row for row in table.rows)
    said = " ".join(sentences(found, results, replace(table, rows=rows)))
    assert "ours is 0.03 % faster than the oracle" in said
    colours: dict[str, set[str]] = {}
    for line in report._course(results, table).data:
        colours.setdefault(line.name, set()).add(line.line.color)
    assert {len(one) for one in colours.values()} == {1}
    assert len({min(one) for one in colours.values()}) == len(colours)


def test_json_has_an_object_for_each_policy_and_a_summary(
    trace: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["simulate", "--trace", str(trace), "--json", "--seconds", "90s"]
    words += ["--policy", "ours", "--policy", "off", "--policy", "static_3", "--report", str(tmp_path / "new" / "page")]
    assert main(words) == 0
    said = capsys.readouterr()
    *rows, last = [json.loads(line) for line in said.out.splitlines()]
    assert {row["policy"] for row in rows} == {"oracle", "ours", "off", "static_3"}
    assert set(rows[0]) == {
        "policy", "speed", "regretPercent", "tpotMs", "ttftMs", "tokensPerSecond", "requests", "writes", "removals",
        "unsafeWindowsPercent",
    }  # fmt: skip
    summary = last["summary"]
    assert summary["bestStatic"] in {"off", "static_3"}
    assert summary["simulatedSeconds"] == 90
    by_name = {row["policy"]: row for row in rows}
    assert summary["oursRegretPercent"] == by_name["ours"]["regretPercent"]
    over = 100 * (by_name["ours"]["speed"] / by_name["off"]["speed"] - 1)
    assert summary["oursOverOffPercent"] == pytest.approx(over, rel=1e-4)
    assert by_name["off"]["writes"] is None
    page = tmp_path / "new" / "page" / "index.html"
    assert said.err == f"report: {page}\n"
    _check_page(page.read_text())


def _check_page(page: str) -> None:
    """It opens offline: nothing is loaded; every policy is drawn three times over time, and the surface is there."""
    body = page[page.index("</script></head>") :]
    assert too_wide(page[: page.index("<script>")] + body) == []
    assert not re.search(r"""(?:src|href)=["']?https?:""", body)
    for name in ("ours", "oracle", "off", "static_3"):
        assert body.count(f'"name":"{name}"') == 3
        assert f"<td>{name}</td>" in body
    assert '"type":"heatmap"' in body
    assert '"name":"observed"' in body
    assert "chance that the first draft is accepted" in body


def test_text_is_a_table_and_what_it_means(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--trace", str(trace), "--seconds", "70", "--policy", "ours", "--policy", "off"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert re.match(r"4\d\d requests of load.jsonl on meta-llama/", out[0])
    assert out[2].split()[:3] == ["POLICY", "SPEED", "REGRET"]
    assert {line.split()[0] for line in out[3:6]} == {"ours", "oracle", "off"}
    assert "against no drafts" in out[7]
    assert "70 s simulated, seed 0" in out[8]


def test_the_same_seed_gives_the_same_run(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--trace", str(trace), "--json", "--seconds", "60s", "--policy", "ours", "--perturb", "--seed"]
    told = []
    for seed in ("1", "1", "2"):
        assert main([*words, seed]) == 0
        told.append(capsys.readouterr().out.splitlines()[:-1])
    assert told[0] == told[1]
    assert told[0] != told[2]


def test_the_formats_of_a_trace_are_told_by_their_looks(tmp_path: Path) -> None:
    texts = {
        "a": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.5,10,20\n2023-11-16 18:17:05.5,30,40\n",
        "b": '{"timestamp": 0, "input_length": 10, "output_length": 20}\n'
        '{"timestamp": 2000, "input_length": 30, "output_length": 40}\n',
        "c": "time;prompt;output\n7;10;20\n9;30;40\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        found = arenas.arena(options("--trace", str(tmp_path / name), "--speed-up", "4", "--seconds", "2m"))
        assert found.workload.arrival is not None
        assert found.workload.arrival.tolist() == [0, 0.5]
        assert found.workload.output.tolist() == [20, 40]
        assert found.seconds == 120


def test_options_describe_the_deployment(trace: Path) -> None:
    words = ["--verifier", "Qwen/Qwen3-8B", "--speculator", "Qwen/Qwen3-0.6B", "--method", "draft_model"]
    words += ["--accelerator", "A100-80GB", "--max-k", "3", "--workload", "Code", "--replicas", "2"]
    found = arenas.arena(options("--trace", str(trace), *words))
    facts = found.policy.facts
    assert (facts.verifier and facts.verifier.name, facts.speculator and facts.speculator.name) == (
        "Qwen/Qwen3-8B",
        "Qwen/Qwen3-0.6B",
    )
    assert max(found.plant.knobs.ks) == 3
    assert len(found.workload.classes) == 1
    assert found.replicas == 2
    assert facts.kv_capacity_tokens is not None
    assert facts.kv_capacity_tokens_without_speculator is not None
    assert facts.kv_capacity_tokens < facts.kv_capacity_tokens_without_speculator
    assert found.plant.kv_tokens == facts.kv_capacity_tokens
    lookup = arenas.arena(options("--trace", str(trace), "--method", "ngram"))
    assert all(own.draft_share < 1 for own in lookup.workload.classes)


def test_a_scenario_brings_all_of_its_own() -> None:
    found = arenas.arena(options("--scenario", "counter_reset", "--seconds", "10m"))
    assert (found.replicas, found.seconds, len(found.restarts)) == (2, 600, 2)
    assert found.title.startswith("counter_reset: ")


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [
        ([], "no load is given; give --trace FILE or --scenario NAME", 2),
        (["--scenario", "doom"], "--scenario 'doom' is not known; use one of diurnal", 2),
        (["--scenario", "azure_conv"], "replays azure_llm_2023_conv; give its file", 2),
        (["--scenario", "diurnal", "--spec", "x"], "remove --spec", 2),
        (["--trace", "TRACE", "--policy", "magic"], "--policy 'magic' is not known; use one of ours", 2),
        (["--trace", "TRACE", "--speed-up", "0"], "--speed-up is 0", 2),
        (["--trace", "TRACE", "--replicas", "0"], "--replicas is 0", 2),
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


def test_without_the_compiler_it_says_how_to_get_it(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any, **__: Any) -> Iterator[None]:
        raise MissingCompilerError(
            "the simulator needs numba: install it from a checkout with pip install . './lab[sim]'"
        )

    monkeypatch.setattr(experiment, "run", missing)
    assert main(["simulate", "--trace", str(trace)]) == 1
    said = capsys.readouterr().err
    assert said == "error: the simulator needs numba; install it from a checkout with pip install . './lab[sim]'\n"
