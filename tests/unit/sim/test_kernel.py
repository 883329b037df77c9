"""The compiled loop: the same run without the compiler, no cache folder needed, numba only on demand, fast."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import pytest
from tests.unit.sim.rigs import knobs, plant, steady

from speculative_lab.sim import layout as at
from speculative_lab.sim.compiled import cached, fingerprint
from speculative_lab.sim.deployment import Deployment
from speculative_lab.sim.workload import Lengths
from speculative_operator.domain.table import KTable

ROOT = Path(__file__).resolve().parents[3]

TINY = """
from speculative_operator.domain.table import KTable, Trial
from speculative_lab.sim.deployment import Deployment
from speculative_lab.sim.drafts import Drafts
from tests.unit.sim.rigs import knobs, plant, steady
import dataclasses
own = plant(noise=0.05, kv_tokens=2500, restart_seconds=1.0, knobs=knobs(max_batch=8), max_batched_tokens=256)
load = steady([(0.0, 3), (1.0, 10)], drafts=Drafts(0.7, 0.8, 0.2, 0.4, 0.7), drift=((1.5, 0.5),))
table = KTable.from_rows([[1, 2, 5], [3, 8, 2]])
run = Deployment(own, load, 2, 11, table, log_steps=4000, telemetry=PLUGIN)
run.set_table(table, 0.0, 1, (Trial(1, 8, (1, 3), 0.4),))
run.advance(2.0)
run.restart(1)
run.advance(4.0)
for replica in (0, 1):
    steps = run.steps(replica)
    for field in dataclasses.fields(steps):
        print(replica, field.name, getattr(steps, field.name).sum().round(9))
    print(replica, run.counters(replica).round(9).tolist())
print(run.exposition())
"""


def python(code: str, **environment: str) -> str:
    path = os.pathsep.join([*(str(ROOT / part) for part in ("operator", "lab")), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("plugin", ["False", "True"])
def test_compiled_and_interpreted_runs_are_one_run(plugin: str) -> None:
    code = TINY.replace("PLUGIN", plugin)
    interpreted = python(code, NUMBA_DISABLE_JIT="1")
    assert interpreted == python(code)
    assert "sim-0-1" in interpreted
    assert ("tried_blocks_total" in interpreted) is (plugin == "True")


def test_nothing_but_a_deployment_brings_numba_in() -> None:
    assert python("""
import sys
from speculative_lab import sim
from speculative_lab.sim import deployment, drafts, exposition, layout, plant, traces, workload
print(any(name.split(".")[0] in {"numba", "llvmlite"} for name in sys.modules))
""").strip() == "False"  # fmt: skip


def test_without_numba_the_remedy_is_named() -> None:
    assert "lab[sim]" in python("""
import sys
sys.modules["numba"] = None
from speculative_lab.sim.deployment import Deployment, MissingCompilerError
from tests.unit.sim.rigs import plant, steady
try:
    Deployment(plant(), steady(1))
except MissingCompilerError as problem:
    print(problem)
""")


def test_where_no_folder_can_be_written_the_loop_is_compiled_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def njit(**options: Any) -> Any:
        asked.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'run': no locator available for file 'kernel.py'")
        return lambda function: function

    monkeypatch.setattr(numba, "njit", njit)
    assert cached(max) is max
    assert [options.get("cache", False) for options in asked] == [True, False]


def test_the_cache_notices_code_of_other_files() -> None:
    def module(text: str) -> ModuleType:
        made = ModuleType("made")
        exec(text, vars(made))
        return made

    texts = [
        "def f(x):\n return x + 1",
        "def f(x):\n return x + 2",
        "def f(x):\n return x - 1",
        "def f(x):\n return x + 1\nA = 3",
    ]
    prints = [fingerprint([module(text)]) for text in texts]
    assert len(set(prints)) == 4
    assert prints[0] == fingerprint([module(texts[0])])


@pytest.mark.parametrize("requests", [1, 16, 256])
def test_it_runs_two_hundred_times_faster_than_time(requests: int) -> None:
    """A floor that a busy machine keeps; docs/simulator.md has the figures of an idle one."""
    own = plant(noise=0.05, knobs=knobs(max_batch=256), kv_tokens=1_000_000)
    run = Deployment(own, steady(requests, output=Lengths(300.0, 0.5)), table=KTable.constant(3, 256))
    run.advance(1.0)
    before = time.process_time()
    run.advance(101.0)
    assert 100.0 / (time.process_time() - before) > 200.0
    assert run.counters(0)[at.STEPS] > 1000
