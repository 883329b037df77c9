"""Full CUDA graphs of every K by vLLM's own dispatch: what tests/unit/engines/test_graph_coverage.py reckons with."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engines.test_graph_coverage import CLASSES, full_graphs, has_graph, offered, on

from realengine import paths
from realengine.serving import environment
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.registry import engine_for
from speculative_operator.engines.vllm.graphs import boot
from speculative_operator.engines.vllm.plan import plan

ENGINE = paths.python()
pytestmark = pytest.mark.skipif(ENGINE is None, reason=paths.MISSING)
PROBE = Path(__file__).with_name("coverage_probe.py")
SECONDS = 300
SPECS = {
    f"{product or 'unknown'}-{seqs}": on(product, seqs)
    for product in CLASSES
    for seqs in (8, 16, 24, 48, 64, 100, 128, 200, 256, 300, 512, 768, 1000, 1024)
}
ODD = {f"{product}-{seqs}": on(product, seqs) for product in ("L4", "H100-SXM") for seqs in (9, 23, 59, 71)}
"""Batches off vLLM's grid, where some sizes find no graph: the reckoning must know these, too."""


def question(name: str, subject: DeploymentSpec) -> dict[str, Any]:
    knobs = engine_for(subject).knobs(subject)
    return {
        "name": name, "sizes": knobs.capture_sizes, "seqs": knobs.max_batch, "ks": knobs.ks,
        "schedule": boot(subject, plan(subject)),
    }  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[int]]]:
    done = subprocess.run(
        [str(ENGINE), str(PROBE)],
        input=json.dumps([question(name, subject) for name, subject in (SPECS | ODD).items()]),
        env={"PATH": "/usr/bin:/bin", **environment(tmp_path_factory.mktemp("vllm"))},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, dict[str, list[int]]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", SPECS)
def test_every_k_has_full_graphs_at_95_percent_of_its_batch_sizes(
    name: str, answers: dict[str, dict[str, list[int]]]
) -> None:
    knobs = engine_for(SPECS[name]).knobs(SPECS[name])
    for k in knobs.ks:
        sizes = offered(knobs, k)
        assert len(set(sizes) & set(answers[name][str(k)])) >= 0.95 * len(sizes), k


@pytest.mark.parametrize("name", SPECS | ODD)
def test_the_reckoning_without_vllm_is_the_same(name: str, answers: dict[str, dict[str, list[int]]]) -> None:
    knobs = engine_for((SPECS | ODD)[name]).knobs((SPECS | ODD)[name])
    found = full_graphs(knobs)
    ascending = sorted(found)
    for k in knobs.ks:
        told = [one for one in range(1, knobs.max_batch + 1) if has_graph(found, ascending, one, k)]
        assert told == answers[name][str(k)]
