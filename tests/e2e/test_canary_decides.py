"""`spec.route.canary.analysis` on a cluster, with requests through a gateway that follows the route: a good canary is
promoted and a slower image taken back though the operator is killed again and again, one with half the acceptance is
taken back, and no request fails. And `speculative compare`, which judges by the same figures, of two objects at the
same traffic."""

from __future__ import annotations

import copy
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests import gateway
from tests.e2e.conftest import LONG, NAMESPACE, SLOWER, Stage, until

from chaos.operators import Operator, write_kubeconfig
from chaos.proxy import Proxy
from demo import scene
from demo.sender import Sender, evenly
from devcluster.controlplane import Files
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
OFF = {"mode": "Disabled"}
KILLS = 20
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
    """Ends the operator's process by SIGKILL at random moments. Some of the next ones have time for one look, some for
    several."""

    def __init__(self, operator: Operator) -> None:
        seed = random.randrange(1_000_000)
        print(f"kills by seed {seed}")
        self._operator, self._chance, self.kills = operator, random.Random(seed), 0
        self._next = time.monotonic() + self._chance.uniform(0.0, 10.0)

    def __call__(self) -> None:
        if self.kills < KILLS and time.monotonic() >= self._next:
            self._operator.kill()
            self.kills += 1
            self._next = time.monotonic() + self._chance.uniform(1.0, 36.0)


@contextmanager
def killed_again_and_again(stage: Stage) -> Iterator[Killer]:
    """The operator as a process of this machine in place of its pod, started anew whenever it ends."""
    scale = ("scale", scene.OPERATOR, "-n", scene.OPERATOR_NAMESPACE)
    stage.cluster.kubectl(*scale, "--replicas=0")
    with Proxy(stage.cluster.server, Files(Path(stage.cluster.state_dir)).authority) as proxy:
        config = stage.directory / "kubeconfig-killed"
        write_kubeconfig(stage.cluster, proxy.url, config)
        settings = {"KUBECONFIG": str(config), "SPECULATIVE_PROMETHEUS_URL": stage.cluster.prometheus_url}
        operator = Operator("killed", stage.directory, settings)
        operator.start()
        try:
            yield Killer(operator)
        finally:
            operator.stop()
            stage.cluster.kubectl(*scale, "--replicas=1")
    assert operator.tracebacks() == 0, operator.log.read_text()[-3000:]


@pytest.mark.parametrize(
    ("canary", "reason", "at_last"),
    [
        pytest.param({"speculation": K4}, "CanaryPromoted", {STABLE: 0, NEXT: 100}, id="twice as quick"),
        pytest.param(
            {"speculation": OFF, "image": SLOWER}, "CanaryWorse", {STABLE: 1}, id="an image 10 % slower",
            marks=pytest.mark.skipif(not os.environ.get("SPECULATIVE_CANARY_ALL"), reason="make e2e-canary"),
        ),
    ],
)  # fmt: skip
def test_a_canary_ends_as_it_must_though_the_operator_is_killed_twenty_times(
    routed: Stage, canary: dict[str, Any], reason: str, at_last: dict[str, int]
) -> None:
    other = manifest(NEXT, "Code", canary["speculation"])
    other["spec"]["engine"]["image"] = canary.get("image", other["spec"]["engine"]["image"])
    served(routed, manifest(STABLE, "Code", OFF, route=route()), other)
    with killed_again_and_again(routed) as killer, traffic(routed) as finish:
        routed.apply(manifest(STABLE, "Code", OFF, route=route(analysis=ANALYSIS)))
        began = time.monotonic()
        found = end_of(routed, 1300, killer)
        print(f"ended after {time.monotonic() - began:.0f} s and {killer.kills} kills")
        assert (found["reason"], found["step"]) == (reason, 1), found

        def all_done() -> bool:
            killer()
            return killer.kills == KILLS and shares(routed) == at_last

        until(all_done, 900, 0.3)
        time.sleep(20.0)
        assert told(routed) == found
        assert shares(routed) == at_last
        assert failed(finish()) == []
    assert len(routed.pods(NEXT)) == len(routed.pods(STABLE)) == 1


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
