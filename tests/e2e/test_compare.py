"""`speculative compare` on a cluster with a real Prometheus: an object with a speculator that pays, beside one
without."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.conftest import LONG, NAMESPACE, Stage, until

from demo import scene
from speculative_operator.cli.main import main

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

PLAIN, QUICK = "compare-plain", "compare-quick"
RATES = {PLAIN: 4.0, QUICK: 7.0}
"""Requests a second: objects are compared at equal batch size, and the quicker one answers more at the same one."""


def manifest(name: str, **speculation: Any) -> dict[str, Any]:
    found = copy.deepcopy(scene.variants()[0].manifest)
    found["metadata"]["name"] = name
    found["spec"] |= {
        "speculator": {"method": "draft_model", "model": "hf://Qwen/Qwen3-0.6B"},
        "speculation": speculation,
        "accelerator": {"resource": "nvidia.com/gpu", "product": "H100-SXM", "hourlyCost": "5.00"},
    }
    found["spec"]["engine"]["env"] = [
        {"name": "EMULATOR_ACCELERATOR", "value": "H100-SXM"},
        {"name": "EMULATOR_WORKLOAD", "value": "Code"},
    ]
    return found


@pytest.fixture(scope="module")
def served(stage: Stage) -> Iterator[Stage]:
    stage.apply(manifest(PLAIN, mode="Disabled"))
    stage.apply(manifest(QUICK, mode="Static", numSpeculativeTokens=3, maxSpeculativeTokens=5))
    for name in (PLAIN, QUICK):
        scene.wait_ready(stage.cluster, name, 180)
    try:
        yield stage
    finally:
        stage.cluster.kubectl("delete", "specdep", PLAIN, QUICK, "-n", NAMESPACE)


def test_a_speculator_that_pays_is_better_and_its_lack_worse(
    served: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(served.cluster.kubeconfig))
    url = served.cluster.prometheus_url

    def compared(*names: str) -> tuple[int, str]:
        since = f"{time.time() - began:.0f}s"
        status = main(["compare", *names, "-n", NAMESPACE, "--prometheus", url, "--since", since])
        return status, capsys.readouterr().out

    with served.under_load({PLAIN: PLAIN}, RATES[PLAIN]), served.under_load({QUICK: QUICK}, RATES[QUICK]):
        began = time.time() - 1
        time.sleep(60)
        until(lambda: compared(PLAIN, QUICK)[0] == 0, 2 * LONG, 15.0)
        status, said = compared(PLAIN, QUICK)
    print(said)
    assert (status, said.splitlines()[-1].split(":")[0]) == (0, "Better")
    assert f"let {QUICK} serve in place of {PLAIN}" in said
    assert "per 1,000 tokens" in said
    assert main(["compare", QUICK, PLAIN, "-n", NAMESPACE, "--prometheus", url, "--since", "20m", "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "Worse"
