"""Forwards TCP connections from service addresses to endpoints.

A process of its own, so that streams and probes do not wait for each other.

``python -m devcluster.node.forwarder PARENT`` reads tables from standard input, one JSON object a line: listen address
-> endpoints. An address without endpoints is not listened on, so clients are refused at once, as by kube-proxy.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import resource
import sys
from collections.abc import Mapping, Sequence

import uvloop

from devcluster.forwarder import CHUNK, relay

from . import syscalls

_log = logging.getLogger(__name__)

_BACKLOG = 1024


class Service:
    """One listening address and the endpoints behind it, in turn."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self.server: asyncio.Server | None = None
        self._turns = itertools.cycle(endpoints)
        self._endpoints = list(endpoints)

    def set(self, endpoints: Sequence[str]) -> None:
        if list(endpoints) != self._endpoints:
            self._endpoints = list(endpoints)
            self._turns = itertools.cycle(self._endpoints)

    async def listen(self, address: str) -> None:
        """Accept connections. Raises OSError."""
        host, _, port = address.rpartition(":")
        self.server = await asyncio.start_server(self._connected, host, int(port), limit=CHUNK, backlog=_BACKLOG)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = next(self._turns).rpartition(":")
        await relay(reader, writer, host, int(port))


class Forwarding:
    """All services of a table."""

    def __init__(self) -> None:
        self._services: dict[str, Service] = {}

    async def set(self, table: Mapping[str, Sequence[str]]) -> None:
        """Start, change and stop services so that they are those of the table."""
        for address in set(self._services) - set(table):
            if (server := self._services.pop(address).server) is not None:
                server.close()
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
