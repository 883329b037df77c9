"""How often the speculator runs on vLLM's V2 runner: never in a step that is off, and K times for K drafts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from payloadbench.server import PAYLOAD
from realengine import serving

pytestmark = pytest.mark.timeout(900)
KS = (3, 0, 1, 0, 3, 2, 0)


def probed(python: Path, models: Path, home: Path, method: str, **more: str) -> dict[str, Any]:
    home.mkdir(exist_ok=True)
    variables = {
        **serving.environment(home), **serving.v2(), "PYTHONPATH": str(PAYLOAD), "SPECULATIVE_TELEMETRY_PORT": "off",
        "SPECULATIVE_TABLE_FILE": str(home / "table.json"), **more,
    }  # fmt: skip
    speculator = {"draft_model": str(models / "draft"), "eagle3": str(models / "eagle3"), "ngram": ""}[method]
    script = Path(__file__).with_name("passes_probe.py")
    done = subprocess.run(
        [python, script, method, models / "target", speculator, home / "table.json", *map(str, KS)],
        env={**os.environ, **variables}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.parametrize("method", ["draft_model", "eagle3", "ngram"])
def test_the_speculator_runs_as_often_as_k_asks(
    method: str, engine_python: Path, small_models: Path, tmp_path: Path
) -> None:
    running = probed(engine_python, small_models, tmp_path / "running", method)
    found = probed(engine_python, small_models, tmp_path / "off", method, SPECULATIVE_OFF_STEPS="2")
    assert (found["refused"], running["refused"], running["rested"]) == ("", "", 0)
    steps, passes = found["steps"], found["passes"]
    off = {key: number for key, number in steps.items() if " off " in key}
    assert found["rested"] == sum(off.values()) > 10
    assert {key: passes.get(key, 0) for key in off} == dict.fromkeys(off, 0)
    assert method == "eagle3" or "K 0 off prompts" in off
    assert running["passes"]["K 0 on decoding"] == running["steps"]["K 0 on decoding"] > 10
    if method == "ngram":
        return
    for k in (1, 2, 3):
        key = f"K {k} on decoding"
        catching_up = {1: 2, 2: 0, 3: 1}[k] if method == "draft_model" else 0
        """The third request joins while off; its prompt is one that the first K after it computes, too."""
        assert k * steps[key] <= passes[key] <= k * steps[key] + catching_up, (key, steps, passes)
    assert running["passes"]["K 1 on decoding"] == running["steps"]["K 1 on decoding"]
    assert all(left[: len(right)] == right or right[: len(left)] == left for left, right in common(found, running))


def common(one: dict[str, Any], other: dict[str, Any]) -> list[tuple[list[int], list[int]]]:
    """Tokens of the same request in two runs."""
    return [(one["texts"][name], other["texts"][name]) for name in one["texts"]]
