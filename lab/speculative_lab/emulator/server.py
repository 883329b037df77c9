"""Runs one emulated engine as a process: loads, opens its port, serves, drains. Called by each dialect's `main`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
import uvicorn
import uvloop
from prometheus_client import CollectorRegistry

from speculative_lab.emulator import notice
from speculative_lab.emulator.assembly import build_core
from speculative_lab.emulator.book import Book
from speculative_lab.emulator.config import Drain, EngineConfig
from speculative_lab.emulator.dialect import Dialect, Program
from speculative_lab.emulator.driver import EngineDriver
from speculative_lab.emulator.errors import ConfigError
from speculative_lab.emulator.hot import hot_stepper
from speculative_lab.emulator.http.app import application
from speculative_lab.emulator.http.completions import Service
from speculative_lab.emulator.settings import Settings, from_environment

CLOSE_SECONDS = 2
"""How long connections may take to close once the engine has stopped."""

log = logging.getLogger(__name__)


def run(dialect: Dialect, argv: Sequence[str] | None) -> int:
    """Serve with `argv` (default: the process's arguments); the exit code, 1 for a refused configuration."""
    logging.basicConfig(
        level=logging.INFO, format="%(levelname)s %(asctime)s [%(module)s] %(message)s", datefmt="%m-%d %H:%M:%S"
    )
    try:
        settings = from_environment(os.environ)
        program = dialect.parse(sys.argv[1:] if argv is None else argv, os.environ, settings)
        return uvloop.run(_serve(dialect, program, settings))
    except ConfigError as error:
        sys.stderr.write(f"ValueError: {error}\n")
        return 1


class _Server(uvicorn.Server):
    """uvicorn without signal handling of its own: the drain comes first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(dialect: Dialect, program: Program, settings: Settings) -> int:
    """Serve until told to stop; the exit code. Raises LateError when "loading" fails."""
    stopping = _stop_event()
    _announce(dialect, program.engine, settings)
    if program.headless:
        log.info("a worker of the engine on another node: waits until it is stopped")
        await stopping.wait()
        return 0
    if await _happens(stopping, settings.load_seconds):
        return 0
    started = time.time()
    book = dialect.book(program, started)
    service = _build(program, book, settings)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(book)
    server = program.server
    http = _Server(
        uvicorn.Config(
            application(dialect, service, registry, int(started)),
            host=server.host,
            port=server.port,
            ssl_certfile=server.certificate or None,
            ssl_keyfile=server.key or None,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=5,
            timeout_graceful_shutdown=CLOSE_SECONDS + (_patience(service) if server.drain is Drain.CLOSES else 0),
        )
    )
    gc.collect()
    gc.freeze()
    return await _serve_until_stopped(http, service, stopping)


async def _serve_until_stopped(http: uvicorn.Server, service: Service, stopping: asyncio.Event) -> int:
    engine = asyncio.create_task(service.driver.run(), name="engine")
    listening = asyncio.create_task(http.serve(), name="http")
    stop = asyncio.create_task(stopping.wait(), name="stop")
    done, _ = await asyncio.wait({engine, listening, stop}, return_when=asyncio.FIRST_COMPLETED)
    if stop in done:
        await _drain(service, http)
    http.should_exit = True
    if listening not in done:
        await asyncio.wait({listening}, timeout=CLOSE_SECONDS + 1)
    if engine.done():
        log.error("the engine loop failed", exc_info=engine.exception())
    for task in (engine, stop):
        task.cancel()
    return 0 if stop in done and engine not in done else 1


def _patience(service: Service) -> int:
    """Whole seconds that running requests have after SIGTERM."""
    return math.ceil(service.server.shutdown_timeout)


async def _drain(service: Service, http: uvicorn.Server) -> None:
    """Stop accepting; give running requests their time, then abort what is left."""
    service.accepting = False
    http.should_exit = service.server.drain is Drain.CLOSES
    timeout = service.server.shutdown_timeout
    log.info("Shutdown requested: %d requests in flight, waiting up to %g s", service.driver.unfinished, timeout)
    if timeout > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(service.driver.drained(), timeout)
    service.driver.abort_all()
    await asyncio.sleep(0)


def _build(program: Program, book: Book, settings: Settings) -> Service:
    engine = program.engine
    core = build_core(engine, settings, program.lengths)
    return Service(
        server=program.server,
        engine=engine,
        settings=settings,
        driver=EngineDriver(core, book, hot_stepper(engine, core)),
        rng=np.random.default_rng(settings.seed + 1),
    )


def _announce(dialect: Dialect, engine: EngineConfig, settings: Settings) -> None:
    log.info("This is an %s", notice(dialect.engine))
    pool = engine.shapes.accelerator.name
    drafter = engine.speculative
    log.info(
        "model=%s accelerator=%s max_model_len=%d max_num_seqs=%d max_num_batched_tokens=%d seed=%d",
        engine.model,
        pool,
        engine.max_model_len,
        engine.max_num_seqs,
        engine.max_num_batched_tokens,
        settings.seed,
    )
    if drafter is not None and engine.drafting is not None:
        runner = f" on the {engine.drafting.runner} model runner" if engine.drafting.runner else ""
        log.info(
            "SpeculativeConfig(method=%r, model=%r, num_spec_tokens=%d)%s",
            drafter.method,
            drafter.model,
            drafter.k,
            runner,
        )
        if drafter.schedule is not None and engine.data_parallel_size > 1:
            log.warning("num_speculative_tokens_per_batch_size is not supported with data parallelism: ignored")
    for note in engine.shapes.notes:
        log.warning("%s", note)


def _stop_event() -> asyncio.Event:
    """Set by SIGTERM or SIGINT. A second signal ends the process at once."""
    event = asyncio.Event()

    def stop() -> None:
        if event.is_set():
            os._exit(1)
        event.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return event


async def _happens(event: asyncio.Event, within: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), within)
    except TimeoutError:
        return False
    return True
