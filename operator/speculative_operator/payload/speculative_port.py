"""The port on which step telemetry is served: a bounded share of one thread, whoever asks and however often.

Mounted beside `speculative_scheduler`, which starts `serve` once. Standard library alone. Anybody who reaches the pod
may connect, so text is made once a second at most, connections are taken at a bounded rate, and a client that sends
slowly makes room for those who come after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable

PORT_VARIABLE = "SPECULATIVE_TELEMETRY_PORT"
HOST_VARIABLE = "SPECULATIVE_TELEMETRY_HOST"
PORT = 8001
CLIENT_SECONDS = 2.0
"""A client that takes longer than this for its request and our answer is hung up on: well below a scrape's timeout."""
MOST_CLIENTS = 16
"""At once. The one that came first makes room for the next: a scraper needs milliseconds."""
ACCEPT_SECONDS = 0.05
"""Between two clients that are taken."""
TEXT_SECONDS = 1.0
"""So old a text may be. Counters of a second ago are as good as those of now."""
LARGEST_REQUEST = 16_384

_log = logging.getLogger("vllm.speculative_scheduler")


def serve(text: Callable[[], str]) -> int | None:
    """Serves what `text` returns from a daemon thread; the port, or None where that cannot be.

    Port and host come from the environment; the port "off" means none. Never raises: a taken port (a second engine in
    this pod came second) is one warning, and the engine runs on without.
    """
    asked = os.environ.get(PORT_VARIABLE, str(PORT))
    if asked == "off":
        return None
    try:
        number = int(asked)
        if not 0 <= number < 1 << 16:
            raise ValueError("it must be from 0 (any) to 65535, or off")
        listener = _listener(os.environ.get(HOST_VARIABLE, ""), number)
        port: int = listener.getsockname()[1]
        loop = asyncio.SelectorEventLoop()
        run = Server(listener, text, loop.time).run()
        threading.Thread(target=loop.run_until_complete, args=(run,), name="speculative-telemetry", daemon=True).start()
    except Exception as error:
        _log.warning("speculative: no step telemetry on port %s: %s", asked, error)
        return None
    _log.info("speculative: step telemetry on port %d", port)
    return port


def _listener(host: str, port: int) -> socket.socket:
    """Listens on `host`; on every address of IPv4 and IPv6 where none is given, as far as this machine has them."""
    if not host and socket.has_dualstack_ipv6():
        # a kernel with IPv6 turned off lets such a socket be made, and not be bound
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=MOST_CLIENTS, dualstack_ipv6=True)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=MOST_CLIENTS)


class Server:
    """Asleep in the kernel while nobody asks. All happens in the thread that runs `run`, by the time of its loop."""

    def __init__(self, listener: socket.socket, text: Callable[[], str], clock: Callable[[], float]) -> None:
        self._listener, self._text, self._clock = listener, text, clock
        self.clients: dict[asyncio.Task[None], None] = {}
        """The one that came first first."""
        self._body, self._made = b"", -TEXT_SECONDS

    async def run(self) -> None:
        """Answers for ever."""
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
                if len(self.clients) >= MOST_CLIENTS:
                    next(iter(self.clients)).cancel()
                task = loop.create_task(self._attend(connection))
                self.clients[task] = None
                task.add_done_callback(self.clients.pop)
            except Exception as error:  # such as too few file descriptors: no reason to stop, nor to spin
                _log.debug("speculative: a scrape failed: %r", error)
            await asyncio.sleep(ACCEPT_SECONDS)

    async def _attend(self, connection: socket.socket) -> None:
        """Answers one client, whose time is bounded, and hangs up."""
        try:
            await asyncio.wait_for(self._exchange(connection), CLIENT_SECONDS)
        except Exception as error:
            _log.debug("speculative: a scrape failed: %r", error)
        finally:
            connection.close()

    async def _exchange(self, connection: socket.socket) -> None:
        loop, request = asyncio.get_running_loop(), b""
        while b"\r\n\r\n" not in request:
            piece = await loop.sock_recv(connection, 4096)
            request += piece
            if not piece or len(request) > LARGEST_REQUEST:
                return
        await loop.sock_sendall(connection, self._answer(request))

    def _answer(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
        if path not in (b"/metrics", b"/") or method not in (b"GET", b"HEAD"):
            status, body = b"404 Not Found", b"only GET /metrics\n"
        else:
            status, body = b"200 OK", self._fresh()
        head = (
            b"HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            b"Content-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body))
        )
        return head if method == b"HEAD" else head + body

    def _fresh(self) -> bytes:
        """The text, made anew where it is older than `TEXT_SECONDS`."""
        now = self._clock()
        if now - self._made >= TEXT_SECONDS:
            # Before it is made: one that fails is not tried again for each client.
            self._made, self._body = now, b""
            self._body = self._text().encode("utf-8")
        if not self._body:
            raise RuntimeError("there is no text to serve")
        return self._body
