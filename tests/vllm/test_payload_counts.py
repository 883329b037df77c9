"""The payload in vLLM's own scheduler classes, synchronous and asynchronous: it counts what vLLM counts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from payloadbench.server import PAYLOAD

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def told(engine_python: Path, small_models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the probe prints: 400 steps of either class, with prompts in chunks, aborts and stops."""
    home = tmp_path_factory.mktemp("probe")
    table = {
        "version": 1,
        "rows": [[1, 4, 4], [5, 8, 2], [9, 16, 1]],
        "try": {"steps": 4, "rows": [[1, 4, [2], 0.4], [5, 16, [4], 0.4]]},
    }
    (home / "table.json").write_text(json.dumps(table))
    variables = {
        "PYTHONPATH": str(PAYLOAD),
        "SPECULATIVE_TABLE_FILE": str(home / "table.json"),
        "SPECULATIVE_TELEMETRY_PORT": "off",
        "SPECULATIVE_TINY_MODELS": str(small_models),
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "HOME": str(home),
    }
    probe = Path(__file__).with_name("scheduler_probe.py")
    done = subprocess.run(
        [engine_python, probe],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_totals_are_vllms_own(told: dict[str, Any], kind: str) -> None:
    vllm, payload = told[kind]["vllm"], told[kind]["payload"]
    assert vllm["steps"] > 200
    assert sum(vllm["drafted"]) > 1000
    assert {name: payload[name] for name in vllm} == vllm


@pytest.mark.parametrize(("kind", "base"), [("sync", "Scheduler"), ("async", "AsyncScheduler")])
def test_the_class_is_the_one_that_vllm_would_take(told: dict[str, Any], kind: str, base: str) -> None:
    assert told[kind]["classes"][2] == base
    assert told[kind]["payload"]["scheduler"] == kind


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_k_is_the_tables_and_not_that_of_the_start(told: dict[str, Any], kind: str) -> None:
    assert set(told[kind]["payload"]["ks"]) <= {0, 1, 2, 4}
    assert 2 in told[kind]["payload"]["ks"], "the start's schedule has no 2 where the table has it"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_k_is_looked_up_by_the_requests_that_get_a_token(told: dict[str, Any], kind: str) -> None:
    right, wrong = told[kind]["keys"]
    assert wrong == 0
    assert right > 200


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_k_are_tried_and_compared(told: dict[str, Any], kind: str) -> None:
    """Whatever vLLM verified of a tried block is of its K: each of its steps has at most K drafts for each request."""
    assert told[kind]["off"] == {}
    found = told[kind]["comparisons"]
    assert found
    for k, against, _, _, blocks, tried, beside, *_ in found:
        assert k != against
        assert blocks <= tried[0] <= 4 * blocks, "a step of a millisecond may take far too long"
        assert beside[0] == 8 * blocks
        assert tried[4] <= tried[2] * (k + 1)
        assert beside[4] <= beside[2] * (against + 1)
