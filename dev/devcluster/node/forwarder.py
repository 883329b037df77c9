"""Forwards TCP connections from service addresses to endpoints.

A process of its own, so that streams and probes do not wait for each other.

``python -m devcluster.node.forwarder PARENT`` reads tables from standard input, one JSON object a line: listen address
-> endpoints. An address without endpoints is not listened on, so clients are refused at once, as by kube-proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import resource
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import cast

import uvloop

from . import syscalls

_log = logging.getLogger(__name__)

_CONNECT_SECONDS = 5.0
_BACKLOG = 1024
_EARLY_BYTES = 65536
_ABORT = struct.pack("ii", 1, 0)


class Pipe(asyncio.Protocol):
    """One end of a forwarded connection: what it receives goes to its peer, at the peer's pace."""

    def __init__(self) -> None:
        self.peer: Pipe | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class, alike but unrelated

    def data_received(self, data: bytes) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.write(data)

    def eof_received(self) -> bool:
        if self.peer is not None and self.peer.transport is not None and self.peer.transport.can_write_eof():
            with contextlib.suppress(OSError, RuntimeError):
                self.peer.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            with contextlib.suppress(RuntimeError):
                self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            with contextlib.suppress(RuntimeError):
                self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        peer, self.peer = self.peer, None
        if peer is None or peer.transport is None:
            return
        if exc is not None:
            abort(peer.transport)
        else:
            peer.transport.close()


class Inbound(Pipe):
    """The client's end: connects to the next endpoint of its service; what comes before that stands is kept for it.

    Reading cannot be paused instead: uvloop starts to read after `connection_made` whatever that asked for.
    """

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service
        self._task: asyncio.Task[None] | None = None
        self._early: list[bytes] = []
        self._early_eof = False
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._task = asyncio.get_running_loop().create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        if self.peer is None:
            self._early.append(data)
            if self.transport is not None and sum(map(len, self._early)) > _EARLY_BYTES:
                self.transport.pause_reading()
        else:
            super().data_received(data)

    def eof_received(self) -> bool:
        self._early_eof = self.peer is None
        return super().eof_received()

    async def _connect(self) -> None:
        assert self.transport is not None
        host, _, port = self._service.next().rpartition(":")
        outbound = Pipe()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: outbound, host, int(port))
        except (OSError, TimeoutError):
            abort(self.transport)
            return
        if self._ended:
            if outbound.transport is not None:
                outbound.transport.abort()
            return
        self._join(outbound)

    def _join(self, outbound: Pipe) -> None:
        self.peer, outbound.peer = outbound, self
        for data in self._early:
            super().data_received(data)
        self._early.clear()
        if self.transport is not None:
            self.transport.resume_reading()
        if self._early_eof:
            super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        super().connection_lost(exc)


def abort(transport: asyncio.Transport) -> None:
    """End a connection with a reset, so that the other side does not take it for a complete answer."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
    transport.abort()


class Service:
    """One listening address and the endpoints behind it, in turn."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._server: asyncio.Server | None = None
        self._turns = itertools.cycle(endpoints)
        self._endpoints = list(endpoints)

    def next(self) -> str:
        return next(self._turns)

    def set(self, endpoints: Sequence[str]) -> None:
        if list(endpoints) != self._endpoints:
            self._endpoints = list(endpoints)
            self._turns = itertools.cycle(self._endpoints)

    async def listen(self, address: str) -> None:
        """Accept connections. Raises OSError."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        # Several nodes of one enclosure serve the same service addresses; the kernel shares connections out among them.
        self._server = await loop.create_server(
            lambda: Inbound(self), host, int(port), backlog=_BACKLOG, reuse_port=True
        )

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


class Forwarding:
    """All services of a table."""

    def __init__(self) -> None:
        self._services: dict[str, Service] = {}

    async def set(self, table: Mapping[str, Sequence[str]]) -> None:
        """Start, change and stop services so that they are those of the table."""
        for address in set(self._services) - set(table):
            self._services.pop(address).close()
        for address, endpoints in table.items():
            if address in self._services:
                self._services[address].set(endpoints)
                continue
            service = Service(endpoints)
            try:
                await service.listen(address)
            except OSError as error:
                _log.warning("service address %s: %s", address, error)
                continue
            self._services[address] = service


async def _main() -> None:
    forwarding = Forwarding()
    stream = asyncio.StreamReader(limit=2**26)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), sys.stdin)
    while line := await stream.readline():
        await forwarding.set(json.loads(line))


def main() -> None:
    """Run until standard input ends."""
    logging.basicConfig(level=logging.INFO, format="forwarder: %(message)s")
    syscalls.die_with_parent(int(sys.argv[1]))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    uvloop.run(_main())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {os.path.basename(sys.argv[0])} PARENT_PID")  # noqa: PTH119 - a name, not a path
    main()
