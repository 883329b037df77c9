"""The port on which step telemetry is served: a bounded share of one thread, whoever asks and however often.

Mounted beside `speculative_scheduler`, which starts `serve` once. Standard library alone, Python 3.9 and newer. Anybody
who reaches the pod may connect, so text is made once a second at most, connections are taken at a bounded rate, and a
client that sends slowly makes room for those who come after it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
import time
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
        server = Server(listener, text)
        threading.Thread(target=server.run, name="speculative-telemetry", daemon=True).start()
        port: int = listener.getsockname()[1]
    except Exception as error:
        _log.warning("speculative: no step telemetry on port %s: %s", asked, error)
        return None
    _log.info("speculative: step telemetry on port %d", port)
    return port


def _listener(host: str, port: int) -> socket.socket:
    """Listens on `host`; on every address of IPv4 and IPv6 where none is given, as far as this machine has them."""
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=MOST_CLIENTS)
    if socket.has_dualstack_ipv6():
        # a kernel with IPv6 turned off lets such a socket be made, and not be bound
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=MOST_CLIENTS, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=MOST_CLIENTS)


class _Client:
    """One connection: its request as far as it has come, then what is left of the answer."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self.connection, self.until = connection, until
        self.request, self.answer = b"", b""


class Server:
    """Asleep in the kernel while nobody asks. Everything happens in the thread that calls `run`."""

    def __init__(
        self, listener: socket.socket, text: Callable[[], str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._listener, self._text, self._clock = listener, text, clock
        self._selector = selectors.DefaultSelector()
        self._clients: dict[int, _Client] = {}
        """By file descriptor, the one that came first first."""
        self._body, self._made = b"", -TEXT_SECONDS
        self._next_accept = 0.0

    def run(self) -> None:
        """Answers for ever."""
        self._listener.setblocking(False)
        while True:
            try:
                self.step()
            except Exception as error:  # such as too few file descriptors: no reason to stop, nor to spin
                _log.debug("speculative: a scrape failed: %r", error)
                time.sleep(ACCEPT_SECONDS)

    def step(self) -> None:
        """Sleeps until a client wants something or its time is over, and does what is to be done then."""
        now = self._clock()
        self._listen(now >= self._next_accept)
        ready = self._selector.select(self._longest_sleep(now))
        now = self._clock()
        for key, _ in ready:
            if key.fd == self._listener.fileno():
                self._accept(now)
            elif key.fd in self._clients:
                self._go_on(self._clients[key.fd], now)
        for client in [one for one in self._clients.values() if one.until <= now]:
            self._hang_up(client)

    def _listen(self, wanted: bool) -> None:
        """Whether the listener may wake the thread: between two clients it must not."""
        if wanted != (self._listener.fileno() in self._selector.get_map()):
            if wanted:
                self._selector.register(self._listener, selectors.EVENT_READ)
            else:
                self._selector.unregister(self._listener)

    def _longest_sleep(self, now: float) -> float | None:
        moments = [client.until for client in self._clients.values()]
        if now < self._next_accept:
            moments.append(self._next_accept)
        return max(0.0, min(moments) - now) if moments else None

    def _accept(self, now: float) -> None:
        self._next_accept = now + ACCEPT_SECONDS
        connection, _ = self._listener.accept()
        if len(self._clients) >= MOST_CLIENTS:
            self._hang_up(next(iter(self._clients.values())))
        client = _Client(connection, now + CLIENT_SECONDS)
        connection.setblocking(False)
        self._clients[connection.fileno()] = client
        self._selector.register(connection, selectors.EVENT_READ)

    def _go_on(self, client: _Client, now: float) -> None:
        try:
            done = self._sent(client) if client.answer else self._received(client, now)
        except BlockingIOError:
            return
        except Exception as error:
            _log.debug("speculative: a scrape failed: %r", error)
            done = True
        if done:
            self._hang_up(client)

    def _received(self, client: _Client, now: float) -> bool:
        """True where there is nothing to be answered."""
        piece = client.connection.recv(4096)
        client.request += piece
        if not piece or len(client.request) > LARGEST_REQUEST:
            return True
        if b"\r\n\r\n" not in client.request:
            return False
        client.answer = self._answer(client.request, now)
        self._selector.modify(client.connection, selectors.EVENT_WRITE)
        return False

    @staticmethod
    def _sent(client: _Client) -> bool:
        """True once the client has the whole answer."""
        client.answer = client.answer[client.connection.send(client.answer) :]
        return not client.answer

    def _answer(self, request: bytes, now: float) -> bytes:
        method, _, rest = request.partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
        if path not in (b"/metrics", b"/") or method not in (b"GET", b"HEAD"):
            status, body = b"404 Not Found", b"only GET /metrics\n"
        else:
            status, body = b"200 OK", self._fresh(now)
        head = (
            b"HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            b"Content-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body))
        )
        return head if method == b"HEAD" else head + body

    def _fresh(self, now: float) -> bytes:
        """The text, made anew where it is older than `TEXT_SECONDS`."""
        if now - self._made >= TEXT_SECONDS:
            # Before it is made: one that fails is not tried again for each client.
            self._made, self._body = now, b""
            self._body = self._text().encode("utf-8")
        if not self._body:
            raise RuntimeError("there is no text to serve")
        return self._body

    def _hang_up(self, client: _Client) -> None:
        self._clients.pop(client.connection.fileno(), None)
        with contextlib.suppress(Exception):
            self._selector.unregister(client.connection)
        client.connection.close()
