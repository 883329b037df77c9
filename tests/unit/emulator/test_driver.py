"""The driver on a hand-driven clock: pace, idling, publishing."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import pytest
from tests.unit.emulator.building import Run, configured, quiet, speculation

from speculative_lab.emulator.driver import MAX_LAG, TELL_SECONDS, EngineDriver
from speculative_lab.emulator.requests import FinishReason, Request


class Clock:
    """Wall time that moves only while the driver sleeps, plus what a timer is late."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, late: float = 0.0) -> None:
        self.time = 100.0
        self.late = late
        self.sleeps: list[float] = []
        self._yield = asyncio.sleep
        monkeypatch.setattr("speculative_lab.emulator.driver.asyncio.sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.time += seconds + self.late
        await self._yield(0)

    async def turn(self) -> None:
        """Let every other coroutine run once."""
        await self._yield(0)

    def __call__(self) -> float:
        return self.time


class Ear:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.reason: FinishReason | None = None

    def progress(self, generated: int) -> None:
        self.heard.append(generated)

    def finish(self, request: Request, reason: FinishReason) -> None:
        self.heard.append(request.generated)
        self.reason = reason


def driven(clock: Clock, *flags: str) -> tuple[EngineDriver, Run]:
    run = Run(configured(*flags, environment={}), quiet())
    return EngineDriver(run.core, run.metrics, clock=clock), run


def request(driver: EngineDriver, output: int, ear: Ear | None = None, streams: bool = False) -> Request:
    return Request(
        "r", 10, output, FinishReason.LENGTH, output, driver.now, workload=0, tendency=0, streams=streams, listener=ear
    )


@contextlib.asynccontextmanager
async def running(driver: EngineDriver) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(driver.run())
    yield task
    task.cancel()


def engine_seconds(run: Run) -> float:
    """Time of one request that had the engine for itself, by the engine's own clock."""
    return float(run.metrics.histogram("vllm:e2e_request_latency_seconds").sum)


@pytest.mark.parametrize("late", [0.0, 0.001, 0.004])
async def test_late_timers_do_not_slow_the_engine(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, late: float
) -> None:
    clock = Clock(monkeypatch, late)
    driver, run = driven(clock)
    async with running(driver):
        driver.submit(request(driver, 400))
        await driver.drained()
    assert clock.time - 100.0 == pytest.approx(engine_seconds(run), abs=2 * late + 1e-6)
    assert "gave up" not in caplog.text


async def test_an_overloaded_machine_slows_the_engine_instead_of_rushing_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And it says so, every ten seconds at most."""
    clock = Clock(monkeypatch, late=0.05)
    driver, run = driven(clock)
    async with running(driver):
        driver.submit(request(driver, 400))
        await driver.drained()
    lost = [float(seconds) for seconds in re.findall(r"gave up (\S+) s;", caplog.text)]
    assert sum(lost) > 5
    assert len(lost) <= 1 + (clock.time - 100.0) / TELL_SECONDS
    assert clock.time - 100.0 == pytest.approx(engine_seconds(run), abs=MAX_LAG + 0.1)


async def test_streams_hear_every_step_and_others_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, _ = driven(Clock(monkeypatch), *speculation(3))
    stream, whole = Ear(), Ear()
    async with running(driver):
        driver.submit(request(driver, 40, stream, streams=True))
        driver.submit(request(driver, 40, whole))
        await driver.drained()
    assert stream.heard == sorted(set(stream.heard))
    assert stream.heard[0] == 1
    assert stream.heard[-1] == 40
    assert whole.heard == [40]
    assert (stream.reason, whole.reason) == (FinishReason.LENGTH, FinishReason.LENGTH)


async def test_idle_engine_waits_without_turning(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    driver, run = driven(clock)
    async with running(driver):
        for _ in range(20):
            await clock.turn()
        assert clock.sleeps == []
        clock.time += 50
        driver.submit(request(driver, 2))
        await driver.drained()
    assert engine_seconds(run) < 1, "idle time belongs to nobody"
    assert run.metrics.histogram("vllm:request_queue_time_seconds").sum == 0


async def test_abort_ends_a_request_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    driver, run = driven(clock)
    ear = Ear()
    async with running(driver):
        gone = request(driver, 1000, ear)
        driver.submit(gone)
        for _ in range(20):
            await clock.turn()
        driver.abort(gone)
        driver.abort(gone)
        await driver.drained()
    assert ear.reason is FinishReason.ABORT
    assert 0 < gone.generated < 1000
    assert run.count("request_success", "abort") == 1
    assert run.metrics.value("vllm:num_requests_running") == 0
