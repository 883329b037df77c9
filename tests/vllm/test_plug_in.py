"""The plug-in for the CPU build: what it puts in the place of the engine's kernels, run by the engine's own torch."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import realengine

OVERLAY = Path(realengine.__file__).with_name("overlay")


def run(python: Path, script: str) -> Any:
    """What a script that imports torch and the plug-in prints last, as JSON."""
    head = f"import sys, json, torch; sys.path.insert(0, {str(OVERLAY)!r}); import speculative_cpu as plug\n"
    done = subprocess.run([python, "-P", "-c", head + script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_values_reach_the_tensor_that_was_given(engine_python: Path) -> None:
    script = """
output = torch.zeros(5, dtype=torch.int32)
plug.expand(output, torch.tensor([7, -1, 9], dtype=torch.int32), torch.tensor([2, 3, 5], dtype=torch.int32), -1, 4)
print(json.dumps(output.tolist()))
"""
    assert run(engine_python, script) == [7, 7, 4, 9, 9]


@pytest.mark.parametrize(
    ("uniform", "expected"),
    [
        ([0.0, 0.0, 0.0, 0.0], [[11, 12, 91], [13, 14, 92]]),  # all below: drafts, then the bonus token
        ([0.9, 0.0, 0.0, 0.9], [[21, -7, -7], [13, 24, -7]]),  # rejected at the first, at the second
        ([0.0, 0.6, 0.5, 0.0], [[11, 22, -7], [23, -7, -7]]),  # the rate itself is a rejection
    ],
)
def test_drafts_are_accepted_at_the_rates(engine_python: Path, uniform: list[float], expected: list[list[int]]) -> None:
    script = f"""
named = dict(
    output=torch.full((2, 3), -7, dtype=torch.int32), cumulative=torch.tensor([2, 4], dtype=torch.int32),
    drafts=torch.tensor([11, 12, 13, 14], dtype=torch.int32), bonus=torch.tensor([[91], [92]]),
    uniform=torch.tensor({uniform}, dtype=torch.float64), rates=torch.tensor([0.5, 0.4]),
)
plug.synthesize(named, torch.tensor([21, 22, 23, 24]), [0, 1])
print(json.dumps(named["output"].tolist()))
"""
    assert run(engine_python, script) == expected


def test_padding_is_never_accepted_and_other_rows_are_left_alone(engine_python: Path) -> None:
    script = """
named = dict(
    output=torch.full((2, 2), -7, dtype=torch.int32), cumulative=torch.tensor([1, 2], dtype=torch.int32),
    drafts=torch.tensor([11, -1], dtype=torch.int32), bonus=torch.tensor([91, 92]),
    uniform=torch.tensor([0.0, 0.0]), rates=torch.tensor([1.0]),
)
plug.synthesize(named, torch.tensor([21, 22]), [1])
print(json.dumps(named["output"].tolist()))
"""
    assert run(engine_python, script) == [[-7, -7], [22, -7]]


def test_without_synthetic_acceptance_the_engine_s_own_kernel_runs(engine_python: Path) -> None:
    script = """
seen = []
kernel = plug._greedy(lambda *given: seen.append(len(given)))
kernel(*range(7), None, None, False)
kernel = plug._random(lambda *given: seen.append(len(given)))
kernel(*range(11), None, True, False)
print(json.dumps(seen))
"""
    assert run(engine_python, script) == [10, 14]


@pytest.mark.parametrize("asked", [True, False])
def test_the_engine_s_core_is_forked_only_where_that_is_asked(engine_python: Path, asked: bool) -> None:
    script = f"""
import os
os.environ |= {{"VLLM_TARGET_DEVICE": "cpu", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}}
os.environ |= {{plug.FORK: "1"}} if {asked} else {{}}
plug.register()
from vllm.v1.engine import utils
print(json.dumps(utils.get_mp_context().get_start_method()))
"""
    assert run(engine_python, script) == ("fork" if asked else "spawn")
