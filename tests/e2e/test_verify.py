"""`speculative verify` on a cluster: a corrupt engine is caught, a clean one is not blamed, and drafts come back,
whoever dies."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LONG, NAMESPACE, Stage, until

from demo import scene

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

COMMAND = str(Path(sys.executable).parent / "speculative")
SUSPEND = "serving.speculative.dev/drafts-suspended-until"
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"


def variant(suffix: str, *env: dict[str, str], **spec: Any) -> scene.Variant:
    """The example with K 5 at every load of these tests, and 0 prepared."""
    manifest = copy.deepcopy(scene.variants()[0].manifest)
    manifest["metadata"]["name"] += suffix
    manifest["spec"]["speculation"] = {"mode": "Static", "schedule": [[1, 255, 5], [256, 256, 0]]}
    manifest["spec"]["engine"]["env"] += env
    manifest["spec"] |= spec
    return scene.Variant(suffix, manifest["metadata"]["name"], manifest)


CORRUPT = variant("-corrupt", {"name": "EMULATOR_CORRUPT_ONE_IN", "value": "10000"})
CLEAN = variant("-clean")
PLAIN = variant("-plain", speculation={"mode": "Disabled"})


@pytest.fixture(scope="module")
def served(stage: Stage) -> Stage:
    scene.apply(stage.cluster, [CORRUPT, CLEAN, PLAIN])
    for one in (CORRUPT, CLEAN, PLAIN):
        scene.wait_ready(stage.cluster, one.name, 180)
    return stage


def started(stage: Stage, *words: str) -> subprocess.Popen[str]:
    env = {**os.environ, "KUBECONFIG": str(stage.cluster.kubeconfig)}
    command = [COMMAND, "verify", *words, "-n", NAMESPACE]
    return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def verify(stage: Stage, *words: str) -> tuple[int, str]:
    with started(stage, *words) as process:
        out, _ = process.communicate(timeout=900)
    print(out)
    return process.returncode, out


def verified(stage: Stage, name: str) -> dict[str, Any]:
    found: dict[str, Any] = until(lambda: stage.condition(name, "OutputsVerified"), LONG)
    return found


def drafted(stage: Stage, name: str) -> float:
    """Tokens that the pod has drafted, by its own count."""
    pod = stage.pods(name)[0]["metadata"]["name"]
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:8000/proxy/metrics"
    page = stage.cluster.kubectl("get", "--raw", path).stdout
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(DRAFTED))


def drafts(stage: Stage, name: str) -> bool:
    """Whether the pod drafts for requests that come now."""
    before = drafted(stage, name)
    stage.load(name, 1.0, 4.0)
    return drafted(stage, name) > before


def suspended(stage: Stage, name: str) -> bool:
    return SUSPEND in (stage.get("specdep", name)["metadata"].get("annotations") or {})


LENGTH = ("--tokens", "2048", "--parallel", "24")


def test_an_engine_that_corrupts_one_token_in_ten_thousand_is_caught(served: Stage) -> None:
    status, out = verify(served, CORRUPT.name, *LENGTH)
    assert status == 1, out
    assert "Different: 24 prompts" in out
    found = verified(served, CORRUPT.name)
    assert (found["status"], found["reason"]) == ("False", "OutputsDiffer")
    assert not suspended(served, CORRUPT.name)
    until(lambda: drafts(served, CORRUPT.name), LONG)


def test_a_clean_engine_is_the_same_live_and_beside_another(served: Stage) -> None:
    for against in ((), ("--against", PLAIN.name)):
        status, out = verify(served, CLEAN.name, *LENGTH, *against)
        assert status == 0, out
        assert "Same: 24 prompts" in out
    assert verified(served, CLEAN.name)["reason"] == "OutputsSame"


@pytest.mark.parametrize("operator", [True, False])
def test_drafts_come_back_when_the_command_is_killed(served: Stage, operator: bool) -> None:
    """And when the operator is gone as well, in the pod."""
    begun = time.monotonic()
    process = started(served, CLEAN.name, *LENGTH, "--tokens", "4000", "--minutes", "1")
    try:
        until(lambda: suspended(served, CLEAN.name) and not drafts(served, CLEAN.name), 50)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if not operator:
            served.cluster.kubectl("scale", "-n", scene.OPERATOR_NAMESPACE, scene.OPERATOR, "--replicas=0")
        until(lambda: drafts(served, CLEAN.name), LONG)
        assert time.monotonic() - begun < 60 + 100
        assert suspended(served, CLEAN.name)
    finally:
        process.kill()
        process.communicate()
        served.cluster.kubectl("scale", "-n", scene.OPERATOR_NAMESPACE, scene.OPERATOR, "--replicas=1")
        served.cluster.kubectl("annotate", "specdep", CLEAN.name, "-n", NAMESPACE, f"{SUSPEND}-")
