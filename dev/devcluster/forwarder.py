"""Passes TCP connections on: from the host into the enclosure here, from service addresses to pods in `node.forwarder`.

A socket belongs to the network namespace it was made in. So the starter listens on 127.0.0.1 of the host before the
enclosure exists and hands the listening socket down; what is accepted here comes from the host, what is connected here
lies inside. No socket file, no second process outside, and the port is known and held before anything starts.
"""

import asyncio
import contextlib
import socket
import struct

CHUNK = 256 * 1024
_CONNECT_SECONDS = 5.0
_ABORT = struct.pack("ii", 1, 0)


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    """Connect what was accepted to host:port, and pass on both directions, their ends, and a reset as one."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            inner_reader, inner_writer = await asyncio.open_connection(host, port, limit=CHUNK)
    except (OSError, TimeoutError):
        writer.close()  # not up yet, or gone; a reset now would leave clients' half-made TLS sockets open
        return
    try:
        await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
    except OSError:
        _abort(writer)
        _abort(inner_writer)
    finally:
        writer.close()
        inner_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction to its end, at the pace of who reads it, then pass the end on."""
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _abort(writer: asyncio.StreamWriter) -> None:
    """End a connection with a reset, so that the other side does not take it for a complete answer."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
    writer.transport.abort()


async def forward(listener: socket.socket, host: str, port: int) -> asyncio.Server:
    """Serve `listener` (a listening socket of any network namespace) from host:port of this one."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await relay(reader, writer, host, port)

    return await asyncio.start_server(connected, sock=listener, limit=CHUNK)
