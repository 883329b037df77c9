"""`spec.route.canary.analysis` on a cluster, with requests through a gateway that follows the route: a good canary is
promoted though the operator is killed again and again, one with half the acceptance is taken back, and no request
fails. And `speculative compare`, which judges by the same figures, of two objects at the same traffic."""

from __future__ import annotations

import copy
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests import gateway
from tests.e2e.conftest import LONG, NAMESPACE, Stage, until

from demo import scene
from demo.sender import Sender, evenly
from speculative_operator.cli.main import main
from speculative_operator.comparing.matching import Basis

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

STABLE, NEXT, MODEL = "first", "second", "qwen"
PORT = 18080
PERIOD = 60.0
"""Seconds of one wave of the load: both objects must have the same batch sizes now and then, however fast they are."""
LOAD_SECONDS, FEWEST, MOST = 1500.0, 1.0, 6.0
"""Seconds of load at most, and requests per second in its troughs and crests."""
ANALYSIS = {"steps": [50], "stepSeconds": 60, "deadlineSeconds": 1200, "ttftWorseByPercent": 200}
K4 = {"mode": "Static", "numSpeculativeTokens": 4, "maxSpeculativeTokens": 4, "workload": "Code"}
HEAD = {"method": "eagle3", "model": "hf://RedHatAI/Qwen3-8B-speculator.eagle3"}
"""A method whose acceptance is published; with another text it has half of it."""


def manifest(name: str, text: str, speculation: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An object whose speculator drafts for `text`: by it the emulator knows the acceptance."""
    found = copy.deepcopy(scene.variants()[0].manifest)
    found["metadata"]["name"] = name
    found["spec"]["verifier"]["servedName"] = MODEL
    found["spec"] |= {"speculation": speculation, **more}
    env = [one for one in found["spec"]["engine"]["env"] if one["name"] != "EMULATOR_WORKLOAD"]
    found["spec"]["engine"]["env"] = [*env, {"name": "EMULATOR_WORKLOAD", "value": text}]
    return found


def waves(seconds: float = LOAD_SECONDS) -> list[dict[str, float]]:
    """Arrivals by chance, at a rate that rises and falls."""
    chance, found, at = random.Random(7), list[dict[str, float]](), 0.0
    while at < seconds:
        rate = FEWEST + (MOST - FEWEST) * (1.0 - math.cos(2.0 * math.pi * at / PERIOD)) / 2.0
        at += chance.expovariate(rate)
        found.append({"at": at, "prompt": 200, "output": 120})
    return found


@pytest.fixture(scope="module")
def routed(stage: Stage) -> Stage:
    """A cluster with the kind HTTPRoute."""
    gateway.install(stage.cluster)
    stage.cluster.kubectl("rollout", "restart", scene.OPERATOR, "-n", scene.OPERATOR_NAMESPACE)
    return stage


@contextmanager
def traffic(stage: Stage) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Requests through the gateway; what it gives ends them and returns all records."""
    argv = [sys.executable, "-m", "demo.gateway", "--namespace", NAMESPACE, "--route", STABLE, "--port", str(PORT)]
    proxy = stage.cluster.inside(argv, env={"PYTHONPATH": str(scene.ROOT / "dev")})
    try:
        probe = [sys.executable, "-c", f"import urllib.request as r; r.urlopen('http://127.0.0.1:{PORT}/v1/models')"]
        until(lambda: stage.cluster.inside(probe, stderr=subprocess.DEVNULL).wait(30) == 0, 120)
        out = stage.directory / f"canary-{time.monotonic_ns()}.jsonl"
        targets = {MODEL: (MODEL, f"http://127.0.0.1:{PORT}")}
        with Sender(stage.cluster, out, targets, waves()) as sender:
            yield lambda: sender.finish(120.0)
    finally:
        proxy.terminate()
        proxy.wait(10)


def told(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = stage.get("specdep", STABLE)["status"].get("canary") or {}
    return found


def shares(stage: Stage) -> dict[str, int]:
    (rule,) = stage.get("httproute", STABLE)["spec"]["rules"]
    return {one["name"]: one.get("weight", 100) for one in rule["backendRefs"]}


def wait_for(stage: Stage, wanted: dict[str, int]) -> None:
    """Wait until the route divides requests so; what it does else, and what the operator says, is printed."""
    try:
        until(lambda: shares(stage) == wanted, 120)
    except AssertionError:
        found = stage.get("specdep", STABLE)["status"]
        print(shares(stage), told(stage), found.get("warnings"), found["conditions"])
        words = ("logs", scene.OPERATOR, "-n", scene.OPERATOR_NAMESPACE, "--tail=30")
        print(stage.cluster.kubectl(*words, check=False).stdout)
        raise


def end_of(stage: Stage, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """The analysis once it has ended."""

    def ended() -> dict[str, Any]:
        meanwhile()
        found = told(stage)
        return found if found.get("phase") in ("Promoted", "TakenBack") else {}

    try:
        return dict(until(ended, seconds, 1.0))
    finally:
        print(f"{time.strftime('%H:%M:%S')} {told(stage)}")


def served(stage: Stage, stable: dict[str, Any], canary: dict[str, Any]) -> None:
    """Both objects, Ready, before the first analyses the second."""
    stage.clear()
    stage.apply(stable)
    stage.apply(canary)
    for name in (STABLE, NEXT):
        scene.wait_ready(stage.cluster, name, 240)
    until(lambda: stage.get("httproute", STABLE).get("spec"), 60)


def route(**canary: Any) -> dict[str, Any]:
    return {"gateway": {"name": "public"}, **({"canary": {"name": NEXT, **canary}} if canary else {})}


def failed(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    print(f"{len(records)} requests")
    assert len(records) > 100
    return [one for one in records if one["failed"]]


class Killer:
    """Kills the operator's pod at random moments. The next one waits for the Lease, and then has time for a look."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._chance, self.kills = stage, random.Random(3), 0
        self._next = time.monotonic() + 20.0

    def __call__(self) -> None:
        if time.monotonic() < self._next:
            return
        words = ("delete", "pods", "--all", "--grace-period=0", "--force", "-n", scene.OPERATOR_NAMESPACE)
        self._stage.cluster.kubectl(*words, check=False)
        self.kills += 1
        self._next = time.monotonic() + self._chance.uniform(60.0, 180.0)


def test_a_good_canary_is_promoted_though_the_operator_is_killed(routed: Stage) -> None:
    stable = manifest(STABLE, "Code", {"mode": "Disabled"}, route=route())
    served(routed, stable, manifest(NEXT, "Code", K4))
    with traffic(routed) as finish:
        routed.apply(manifest(STABLE, "Code", {"mode": "Disabled"}, route=route(analysis=ANALYSIS)))
        wait_for(routed, {STABLE: 50, NEXT: 50})
        killer = Killer(routed)
        found = end_of(routed, 1300, killer)
        assert (found["phase"], found["step"]) == ("Promoted", 1), found
        assert killer.kills >= 2
        wait_for(routed, {STABLE: 0, NEXT: 100})
        time.sleep(20.0)
        assert failed(finish()) == []


def test_half_the_acceptance_is_taken_back_within_five_minutes(routed: Stage) -> None:
    served(routed, manifest(STABLE, "Code", K4, route=route()), manifest(NEXT, "Creative", K4, speculator=HEAD))
    with traffic(routed) as finish:
        time.sleep(10.0)
        routed.apply(manifest(STABLE, "Code", K4, route=route(analysis=ANALYSIS)))
        wait_for(routed, {STABLE: 50, NEXT: 50})
        began = time.monotonic()
        found = end_of(routed, 600)
        wait_for(routed, {STABLE: 1})
        seconds = time.monotonic() - began
        print(f"taken back after {seconds:.0f} s")
        assert (found["phase"], found["reason"]) == ("TakenBack", "CanaryLowAcceptance"), found
        assert seconds <= 300.0
        assert failed(finish()) == []
    assert len(routed.pods(NEXT)) == 1, "what was taken back runs on"
    told_once = [one for one in routed.items("events") if one["reason"] == "CanaryLowAcceptance"]
    assert [one.get("count", 1) for one in told_once] == [1]


def test_compare_finds_the_quicker_of_two_at_the_same_traffic(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The quicker one has fewer requests in a step, always: their batch sizes never meet."""
    stage.clear()
    for name, speculation in ((STABLE, {"mode": "Disabled"}), (NEXT, K4)):
        stage.apply(manifest(name, "Code", speculation))
    for name in (STABLE, NEXT):
        scene.wait_ready(stage.cluster, name, 240)
    monkeypatch.setenv("KUBECONFIG", str(stage.cluster.kubeconfig))
    options = ("-n", NAMESPACE, "--prometheus", stage.cluster.prometheus_url, "-o", "json")

    def tpot() -> dict[str, Any]:
        since = f"{time.time() - began:.0f}s"
        main(["compare", STABLE, NEXT, *options, "--since", since])
        said = capsys.readouterr().out
        found = json.loads(said) if said else {"measures": []}
        basis.append(found.get("basis", ""))
        return next((one for one in found["measures"] if one["measure"] == "TPOT" and one["high"]), {})

    targets, basis = {name: (MODEL, name) for name in (STABLE, NEXT)}, list[str]()
    out = stage.directory / "compared.jsonl"
    with Sender(stage.cluster, out, targets, evenly(LOAD_SECONDS, 5.0, prompt=200, output=120)) as sender:
        until(lambda: len(sender.records()) > 20, LONG)
        began = time.time()
        time.sleep(LONG)
        found = until(tpot, 2 * LONG, 10.0)
        sender.finish(LONG)
    assert (found["verdict"], basis[-1]) == ("Better", Basis.ARRIVALS.value)
    assert found["high"] < 0.8
