"""The life of the operator process: find the API, watch, become leader, catch up, work, and end in good order.

Made by app. Long-lived tasks are created before kopf starts: kopf cancels at its end whatever was created after, but
for what ends within five seconds.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import random

from speculative_operator.settings import Settings
from speculative_operator.shell.bodies import Key, tags
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.errors import ApiError, NamespaceTerminatingError
from speculative_operator.shell.gate import Gate, Metered, Shares
from speculative_operator.shell.informer import Informer
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.leader import Aside, Leader
from speculative_operator.shell.payloads import collect
from speculative_operator.shell.queue import Queue
from speculative_operator.shell.reconciler import Reconciler
from speculative_operator.shell.resync import RestoredError, Resync
from speculative_operator.shell.rounds import Rounds
from speculative_operator.shell.telemetry import Endpoints, Telemetry
from speculative_operator.shell.trainings import Trainings

log = logging.getLogger(__name__)

Part = asyncio.Task[None]

DRAIN = 2.5
"""seconds that reconciles under way get to finish at the end."""
PATIENCE = 2.0
"""seconds between looks for the API server, or for our kind, at the start."""
LONGEST_PAUSE = 60.0
"""seconds between tries of what keeps failing."""
TERMINATING_PAUSE = 60.0
BEAT = 1.0
"""seconds between signs of life of the main loop."""
DEAD = 300.0
"""seconds without any end of a reconcile, or without a sign of life, after which the process counts as dead. Long: what
a restart would cost is certain, and while the Lease is kept nobody else starts."""
SLOW = 10.0
"""seconds after which a reconcile lends its worker to others: something does not answer it."""


@dataclass
class Operator:
    """All parts of one process; `run` returns when it was asked to stop and raises when it must end."""

    settings: Settings
    kube: Kube
    cache: Cache
    queue: Queue[Key]
    informer: Informer
    resync: Resync
    rounds: Rounds
    reconciler: Reconciler
    trainings: Trainings
    leader: Leader | None
    telemetry: Telemetry
    aside: Aside

    def __post_init__(self) -> None:
        self.stop = asyncio.Event()
        self._listening = asyncio.Event()
        self._leading = asyncio.Event()
        self._synced = asyncio.Event()
        self._informing: asyncio.Event | None = None
        self._reconciles: set[Part] = set()
        workers = self.settings.workers
        self._crew = Gate(workers, most=max(1, workers // 2), lendable=workers, slow=SLOW)
        self._missing = ""
        self._shares = Shares(time.monotonic)
        self.beat()

    def leads(self) -> bool:
        """True while this process may write."""
        return self.leader.leading if self.leader else self._leading.is_set()

    def beat(self) -> None:
        """Note that the main loop lives and how much waits: what the other thread asks is answered from these notes."""
        self._beat_at = time.monotonic()
        self._stalled = self.queue.stall_seconds if self._synced.is_set() else 0.0
        self.telemetry.leading(self.leads())
        self.telemetry.depths(self.queue.waiting + self._crew.waiting, len(self.cache))

    def healthy(self) -> str:
        """What is wrong with the process, empty when nothing: a stuck process is restarted by the kubelet."""
        # One object that takes long is its own trouble, and its reconcile has an end: it is a handful of requests, each
        # of which has its limit. Where none ends, it is ours.
        limit = max(DEAD, 6.0 * self.settings.read_timeout_seconds + 3.0 * self.settings.tick_seconds)
        silent = time.monotonic() - self._beat_at
        if silent > limit:
            return f"the main loop has given no sign of life for {silent:.0f} s"
        return f"objects are due, but no reconcile has ended for {self._stalled:.0f} s" if self._stalled > limit else ""

    def ready(self) -> str:
        """What has not started yet; empty when the watches run and, for a leader, everything was listed once."""
        if not self.informer.started.is_set():
            return "the watches have not started yet"
        if self.leads() and not self._synced.is_set():
            return "the first listing has not ended yet"
        return ""

    async def run(self, endpoints: Endpoints) -> None:
        """Work until `stop` is set. Raises LoginError or LostLeadershipError."""
        self.aside.start()
        await self.aside.run(endpoints.start())
        self._handle_signals()
        parts = (
            self._until_stopped(), self._beats(), self._lead(), self._look_around(), self._observe(), self._work(),
            self._train(),
        )  # fmt: skip
        others = [asyncio.create_task(part) for part in parts]
        watch = asyncio.create_task(self._watch())
        try:
            await asyncio.wait([*others, watch], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._end(others, watch, endpoints)
        for task in (*others, watch):
            if task.done() and not task.cancelled():
                task.result()

    async def _until_stopped(self) -> None:
        await self.stop.wait()
        log.info("stopping")

    async def _beats(self) -> None:
        while True:
            self.beat()
            await asyncio.sleep(BEAT)

    # -- start

    async def _find_api(self) -> None:
        """Wait for the API server and for our kind. Raises LoginError without credentials."""
        await self.kube.start()
        told = ""
        while True:
            try:
                wrong = "" if await self.resync.is_installed() else "the CRD SpeculativeDeployment is not installed"
                if not wrong:
                    await self.resync.discover()
                    return
            except ApiError as error:
                wrong = str(error)
            if wrong != told:
                log.warning("waiting for the API server: %s", wrong)
                told = wrong
            await asyncio.sleep(PATIENCE)

    async def _watch(self) -> None:
        """Run the informer; run it anew when other kinds are to be watched, or when kopf gave up."""
        await self._find_api()
        self._listening.set()
        pause = PATIENCE
        while True:
            self._informing = asyncio.Event()
            self.informer.started.clear()
            settle = asyncio.create_task(self._watching())
            try:
                await self.informer.run(self.resync.resources(), self._informing)
            except Exception as error:
                if self.stop.is_set():
                    raise
                # Not the end of the process: what is not watched is still listed.
                log.error("the watches ended: %s: %s; restarting them in %.0f s", type(error).__name__, error, pause)
                self.resync.asked.set()
                await asyncio.sleep(pause)
                pause = min(2.0 * pause, LONGEST_PAUSE)
            else:
                if self.stop.is_set() or not self._informing.is_set():
                    return
                pause = PATIENCE
            finally:
                settle.cancel()
            log.info("restarting watches: %s", ", ".join(resource.plural for resource in self.resync.resources()))

    async def _lead(self) -> None:
        """Become leader, which lets the listing and then the workers begin; keep the Lease until the end."""
        await self._listening.wait()
        if self.leader is not None:
            await self.aside.run(self.leader.acquire())
        self._leading.set()
        self.beat()
        if self.leader is None:
            await asyncio.Event().wait()
        else:
            await self.aside.run(self.leader.keep())

    # -- work

    async def _look_around(self) -> None:
        """List everything at the start, then every `resync_seconds`, and soon after somebody asked for it; in between
        list the kinds that could not be listed or watched."""
        await self._leading.wait()
        clock = asyncio.get_running_loop().time
        whole_at, pause = clock(), PATIENCE
        while True:
            whole = self.resync.asked.is_set() or clock() >= whole_at
            self.resync.asked.clear()
            await self._list(whole)
            if whole and not self._missing:
                await self._collect()
                whole_at = clock() + self.settings.resync_seconds * (0.9 + 0.2 * random())  # noqa: S311  spreads load
            unsure = bool(self.resync.unsure()) or not self._synced.is_set()
            pause = min(2.0 * pause, LONGEST_PAUSE) if unsure and self._synced.is_set() else PATIENCE
            with suppress(TimeoutError):
                async with asyncio.timeout(min(pause, whole_at - clock()) if unsure else whole_at - clock()):
                    await self.resync.asked.wait()
                    await asyncio.sleep(PATIENCE)

    async def _list(self, whole: bool) -> None:
        try:
            if await self.resync.discover() and self._informing is not None:
                self._informing.set()
            await self.resync.refresh(None if whole else self.resync.unsure())
        except ApiError as error:
            log.warning("listing failed: %s", error)
        except RestoredError as error:
            self._start_over(error)
        except Exception:
            log.exception("listing failed")
        missing = self.resync.missing()
        if missing != self._missing:
            log.warning("reconciling nothing until these can be listed: %s", missing or "none, reconciling again")
            self._missing = missing
        if not missing:
            self._catch_up()

    def _start_over(self, error: RestoredError) -> None:
        """Forget everything: nothing is decided before all has been listed again."""
        log.warning("%s: etcd was restored from a snapshot; forgetting everything and starting over", error)
        self.cache.clear()
        self.reconciler.start_over()
        self.resync.start_over()
        self.resync.asked.set()
        if self._informing is not None:
            self._informing.set()

    async def _collect(self) -> None:
        try:
            await collect(self.kube, self.cache, self.resync.resources(), self.leads)
        except Exception:
            log.exception("collecting payloads failed")

    def _catch_up(self) -> None:
        if self._synced.is_set():
            return
        keys = self.cache.keys()
        # All at once would be a burst on the API server; 5 ms each is what a reconcile costs.
        spread = min(self.settings.tick_seconds, 0.005 * len(keys))
        for key in keys:
            self.queue.add(key, spread * random())  # noqa: S311  spreads load only
        self._synced.set()
        log.info("serving %d objects", len(keys))

    async def _observe(self) -> None:
        await self._synced.wait()
        await self.rounds.run()

    async def _train(self) -> None:
        await self._synced.wait()
        await self.trainings.run()

    async def _work(self) -> None:
        """Start a reconcile for each key that is due."""
        await self._synced.wait()
        while True:
            key = await self.queue.get()
            if key is None:
                return
            if self._rests(key):
                continue
            running = asyncio.create_task(self._reconcile(key))
            self._reconciles.add(running)
            running.add_done_callback(self._reconciles.discard)

    def _rests(self, key: Key) -> bool:
        """True for an object at rest, at which one look is enough: of thousands nearly all are."""
        with suppress(Exception):  # whatever is wrong with it, its reconcile fails of, and tells
            again = self.reconciler.rests(key)
            if again is not None:
                self.queue.put_off(key, again * _jitter())
                return True
        return False

    async def _reconcile(self, key: Key) -> None:
        """Reconcile one object when a worker is free for its namespace; the queue is told of every end."""
        try:
            async with self._crew.slot(self._shares.rank(key[0]), key[0]):
                self.queue.begin(key)
                if self._missing:
                    self.telemetry.tick("failed", "Unknown")
                    self.queue.finish(key, self.settings.tick_seconds)
                    return
                again = await Metered(self.reconciler.reconcile(key), partial(self._shares.spend, key[0]))
        except NamespaceTerminatingError:
            self.queue.finish(key, TERMINATING_PAUSE)
        except ApiError as error:
            wait = self.queue.retry(key, error.retry_after or 0.0)
            self.telemetry.tick("failed", type(error).__name__.removesuffix("Error"))
            log.warning("%s; retrying in %.0f s", error, wait, extra=tags(key))
        except asyncio.CancelledError:
            # By us at the end, or by kopf when its watches are started anew.
            self.queue.retry(key)
        except Exception:
            wait = self.queue.retry(key)
            self.telemetry.tick("failed", "Unexpected")
            log.exception("a reconcile failed unexpectedly; retrying in %.0f s", wait, extra=tags(key))
        else:
            if again is None:
                self.queue.forget(key)
                self.queue.finish(key)
            else:
                self.queue.finish(key, again * _jitter(), self._shares.rest(key[0]))

    # -- end

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop.set)

    async def _watching(self) -> None:
        """Once kopf has started, take the signals back from it: its end would drop requests under way, ours lets them
        finish."""
        await self.informer.started.wait()
        self._handle_signals()
        await asyncio.sleep(0.2)
        self._handle_signals()

    async def _end(self, others: list[Part], watch: Part, endpoints: Endpoints) -> None:
        """Take no more work, let reconciles finish, give the Lease back, then stop watching."""
        self.stop.set()
        self.queue.close()
        if self._reconciles:
            await asyncio.wait(self._reconciles, timeout=DRAIN)
        ending = [*self._reconciles, *others]
        for task in ending:
            task.cancel()
        await asyncio.wait(ending, timeout=1.0)
        if self.leader is not None:
            await self.aside.run(self.leader.close())
        await self.aside.run(endpoints.stop())
        self.aside.stop()
        if self._informing is not None:
            self._informing.set()
            await asyncio.wait([watch], timeout=1.0)
        watch.cancel()
        await asyncio.wait([watch], timeout=1.0)
        await self.kube.close()


def _jitter() -> float:
    return 0.95 + 0.1 * random()  # noqa: S311  spreads load only
