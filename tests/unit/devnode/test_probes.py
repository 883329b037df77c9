"""Probe counters against thresholds, and the order of probes of one container."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.node import probes
from devcluster.node.actions import Target, port_of
from devcluster.node.probes import Callbacks, Counter, Kind, Prober


def run(counter: Counter, answers: str) -> bool | None:
    for answer in answers:
        counter = counter.observe(answer == "+")
    return counter.verdict


@pytest.mark.parametrize(
    ("kind", "probe", "answers", "verdict"),
    [
        ("readiness", {}, "", False),
        ("readiness", {}, "+", True),
        ("readiness", {}, "+--", True),
        ("readiness", {}, "+---", False),
        ("readiness", {"successThreshold": 2}, "+", False),
        ("readiness", {"successThreshold": 2}, "+-+", False),
        ("readiness", {"successThreshold": 2}, "++", True),
        ("liveness", {}, "", True),
        ("liveness", {}, "--+--", True),
        ("liveness", {}, "---", False),
        ("liveness", {"failureThreshold": 1}, "-", False),
        ("startup", {}, "", None),
        ("startup", {"failureThreshold": 5}, "----", None),
        ("startup", {"failureThreshold": 5}, "-----", False),
        ("startup", {"failureThreshold": 5}, "----+", True),
    ],
)
def test_thresholds(kind: Kind, probe: dict[str, Any], answers: str, verdict: bool | None) -> None:
    assert run(Counter.of(kind, probe), answers) is verdict


@given(st.text(alphabet="+-", max_size=30), st.integers(1, 4), st.integers(1, 4))
def test_verdict_is_that_of_the_last_long_enough_streak(answers: str, success: int, failure: int) -> None:
    expected: bool | None = False
    for end in range(1, len(answers) + 1):
        if answers[:end].endswith("+" * success):
            expected = True
        elif answers[:end].endswith("-" * failure):
            expected = False
    probe = {"successThreshold": success, "failureThreshold": failure}
    assert run(Counter.of("readiness", probe), answers) is expected


def test_named_ports() -> None:
    container = {"ports": [{"name": "http", "containerPort": 8000}]}
    assert port_of("http", container) == 8000
    assert port_of(9, container) == port_of("9", container) == 9
    with pytest.raises(LookupError, match="grpc"):
        port_of("grpc", container)


class Recorder:
    """Answers probes from a script and records what the prober tells."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = {kind: list(text) for kind, text in answers.items()}
        self.told: list[str] = []
        self.callbacks = Callbacks(
            started=lambda: self.told.append("started"),
            ready=lambda ready: self.told.append("ready" if ready else "unready"),
            unhealthy=lambda kind, _message: self.told.append(f"{kind} failed"),
            kill=lambda kind, _probe: self.told.append(f"kill by {kind}"),
        )

    async def act(self, action: Mapping[str, Any], _target: Target, _seconds: float) -> tuple[bool, str]:
        script = self.answers[action["kind"]]
        return (script.pop(0) if len(script) > 1 else script[0]) == "+", "no"


async def run_probes(monkeypatch: pytest.MonkeyPatch, answers: dict[str, str], **settings: Any) -> list[str]:
    recorder = Recorder(answers)
    monkeypatch.setattr(probes, "act", recorder.act)
    quick = {"periodSeconds": 0.01, "failureThreshold": 2}
    container = {f"{kind}Probe": {**quick, "kind": kind, **settings} for kind in answers}
    nowhere = cast(Target, None)
    prober = Prober(container, nowhere, recorder.callbacks, asyncio.get_running_loop().time())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(_until_killed(prober, recorder), 0.2)
    return recorder.told


async def _until_killed(prober: Prober, recorder: Recorder) -> None:
    await prober.run()
    if not any(word.startswith("kill") for word in recorder.told):
        raise AssertionError("the prober ended without a reason")
    await asyncio.sleep(10)


async def test_without_probes_a_container_is_started_and_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder({})
    prober = Prober({}, cast(Target, None), recorder.callbacks, 0.0)
    await prober.run()
    assert recorder.told == ["started", "ready"]


async def test_readiness_waits_for_startup(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await run_probes(monkeypatch, {"startup": "-+", "readiness": "+"}) == ["startup failed", "started", "ready"]


async def test_startup_that_never_passes_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    words = await run_probes(monkeypatch, {"startup": "-", "readiness": "+"})
    assert words == ["startup failed", "startup failed", "kill by startup"]


async def test_readiness_comes_and_goes_without_killing(monkeypatch: pytest.MonkeyPatch) -> None:
    words = await run_probes(monkeypatch, {"readiness": "+--+"})
    assert [w for w in words if "failed" not in w] == ["started", "ready", "unready", "ready"]


async def test_liveness_kills_once(monkeypatch: pytest.MonkeyPatch) -> None:
    words = await run_probes(monkeypatch, {"liveness": "+--"})
    assert words[-1] == "kill by liveness"
    assert words.count("kill by liveness") == 1
