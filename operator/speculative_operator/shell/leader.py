"""One writer at a time: a Lease, held before anything is written. Run by `operator`, in a loop of its own.

A Lease that cannot be renewed runs out: nothing is written until it is ours again. It ends the process only where
somebody else held it meanwhile.

Time is measured on the monotonic clock and never compared with another machine's: a Lease counts as free when its
record did not change for its duration since *we* first saw it. The client library's election trusts the wall clock,
has no time limit on its requests and cannot give the Lease back, hence these lines.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from speculative_operator.settings import Settings
from speculative_operator.shell.errors import ApiError, ConflictError, NotFoundError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import LEASE

log = logging.getLogger(__name__)

T = TypeVar("T")

RENEW_SHARE, RETRY_SHARE = 2 / 3, 2 / 15
"""Parts of a Lease's duration: without a renewal for the first nothing is written any more, so that a write under way
ends before another replica may begin; the second lies between two attempts to take or renew it."""


class Aside:
    """An event loop in a thread of its own, from `start` until `stop`, for what must go on whatever the main loop does:
    the Lease and the port that the kubelet asks. What is bound to a loop, such as a client, must not be shared with the
    main loop."""

    def start(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lease-and-health", daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` in that loop; raises what it raises, and cancels it where the caller is cancelled."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def stop(self) -> None:
        """End the loop and its thread. It must have nothing to do any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class LostLeadershipError(Exception):
    """Another replica may be writing now: this process must end."""


def identity() -> str:
    """Name of this holder of the Lease: `POD_NAME` where it is set, so that a restarted container stays the holder;
    else unique."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"


class Leader:
    """Takes, keeps and gives back the Lease `settings.lease_name` in `namespace`."""

    def __init__(
        self,
        settings: Settings,
        kube: Kube,
        namespace: str,
        me: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = settings.lease_name
        self._me = me
        self._duration = settings.lease_duration_seconds
        self._renew = RENEW_SHARE * self._duration
        self._retry = RETRY_SHARE * self._duration
        self._clock = clock
        self._lease: dict[str, Any] | None = None
        self._seen: tuple[Any, ...] | None = None
        self._seen_at = 0.0
        self._renewed_at: float | None = None
        self._turn: Any = None
        """Number of the holder of the Lease that we were when we took it first."""

    @property
    def leading(self) -> bool:
        """True while this replica may write: some seconds less than nobody else may hold the Lease, because a write
        under way takes its time."""
        return self._renewed_at is not None and self._clock() - self._renewed_at < self._renew

    async def acquire(self) -> None:
        """Wait until the Lease is ours. Raises LoginError."""
        await self._kube.start()
        told = False
        while not await self._attempt():
            if not told:
                log.info("waiting for the Lease %s/%s, which %s holds", self._namespace, self._name, self._holder())
                told = True
            await asyncio.sleep(self._retry)
        self._turn = self._transitions()
        log.info("leading as %s, which holds the Lease", self._me)

    async def keep(self) -> None:
        """Renew until cancelled; take the Lease again after it ran out. Raises LostLeadershipError when somebody else
        holds or held it."""
        told = False
        while True:
            await asyncio.sleep(self._retry)
            renewed = await self._renew_in_time()
            if self._is_held_by_another() or (renewed and self._transitions() != self._turn):
                raise LostLeadershipError(f"the Lease is held by {self._holder()}, or was held by another replica")
            if renewed == told and (renewed or not self.leading):
                log.warning("the Lease %s", "is ours again" if renewed else "ran out: writing nothing until it is ours")
                told = not renewed

    async def _renew_in_time(self) -> bool:
        started = self._clock()
        try:
            async with asyncio.timeout(self._renew):
                renewed = await self._attempt()
        except TimeoutError:
            renewed = False
        if not renewed and self.leading:
            log.warning("could not renew the Lease (%.1f s)", self._clock() - started)
        return renewed

    async def close(self) -> None:
        """Give the Lease back and end the connection."""
        await self.release()
        await self._kube.close()

    async def release(self) -> None:
        """Give the Lease back, so that a successor need not wait. An error is logged, not raised."""
        if self._renewed_at is None:
            return
        self._renewed_at = None
        try:
            # Read first: a renewal that was cut off half-way may have changed it behind our back.
            lease = await self._read()
            if lease is None or (lease.get("spec") or {}).get("holderIdentity") != self._me:
                return
            spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
            await self._kube.replace(LEASE, self._namespace, self._name, {**lease, "spec": spec})
        except ApiError as error:
            log.info("cannot release the Lease: %s", error)

    async def _attempt(self) -> bool:
        """Take or renew the Lease once; False when somebody else holds it, or it could not be read or written."""
        started = self._clock()
        try:
            # While it is ours nobody else writes it: no need to read it first, a Conflict would tell.
            lease = self._lease if self.leading else await self._read()
            if lease is None:
                body = {"metadata": {"name": self._name}, "spec": self._spec({})}
                self._lease = await self._kube.create(LEASE, self._namespace, body)
            elif self._free(lease.get("spec") or {}):
                body = {**lease, "spec": self._spec(lease.get("spec") or {})}
                self._lease = await self._kube.replace(LEASE, self._namespace, self._name, body)
            else:
                self._lease = lease
                return False
        except ConflictError:
            with suppress(ApiError):
                self._lease = await self._read()
            return False
        except ApiError as error:
            log.warning("cannot get the Lease: %s", error)
            return False
        # Counted from before the request: the record may be older than its answer.
        self._renewed_at = started
        return True

    async def _read(self) -> dict[str, Any] | None:
        try:
            return await self._kube.get(LEASE, self._namespace, self._name)
        except NotFoundError:
            return None

    def _free(self, spec: Mapping[str, Any]) -> bool:
        record = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        now = self._clock()
        if record != self._seen:
            self._seen, self._seen_at = record, now
        holder = spec.get("holderIdentity") or ""
        duration = float(spec.get("leaseDurationSeconds") or self._duration)
        return holder in ("", self._me) or now - self._seen_at >= duration

    def _spec(self, old: Mapping[str, Any]) -> dict[str, Any]:
        changed = old.get("holderIdentity") != self._me
        return {
            "holderIdentity": self._me,
            "leaseDurationSeconds": self._duration,
            "acquireTime": _now() if changed else old.get("acquireTime", _now()),
            "renewTime": _now(),
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + (1 if changed and old else 0),
        }

    def _holder(self) -> str:
        return str(((self._lease or {}).get("spec") or {}).get("holderIdentity") or "nobody")

    def _transitions(self) -> Any:
        return ((self._lease or {}).get("spec") or {}).get("leaseTransitions")

    def _is_held_by_another(self) -> bool:
        return self._holder() not in ("nobody", self._me)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
