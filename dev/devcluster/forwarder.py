"""Lets the host reach servers inside the enclosure.

A socket belongs to the network namespace it was made in. So the starter listens on 127.0.0.1 of the host before the
enclosure exists and hands the listening socket down; what is accepted here comes from the host, what is connected here
lies inside. No socket file, no second process outside, and the port is known and held before anything starts.
"""

import asyncio
import contextlib
import socket

_CHUNK = 256 * 1024


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction to its end, then pass the end on."""
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except (ConnectionError, OSError):
        # One side is gone: end both at once, the other direction has nobody left to talk to.
        writer.close()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, host: str, port: int) -> None:
    with contextlib.ExitStack() as closing:
        closing.callback(writer.close)
        try:
            inner_reader, inner_writer = await asyncio.open_connection(host, port, limit=_CHUNK)
        except OSError:
            return  # not up yet, or gone: the client sees the connection close, as it would without us
        closing.callback(inner_writer.close)
        await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))


async def forward(listener: socket.socket, host: str, port: int) -> asyncio.Server:
    """Serve `listener` (a listening socket of any network namespace) from host:port of this one."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _serve(reader, writer, host=host, port=port)

    return await asyncio.start_server(connected, sock=listener, limit=_CHUNK)
