"""Harm: whoever reaches a pod's telemetry port slows its engine down by asking, or hides telemetry by being slow."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import urllib.request
from collections.abc import Iterator

import pytest

from speculative_operator.payload import speculative_port as door
from speculative_operator.payload.speculative_port import Server, serve

REQUEST = b"GET /metrics HTTP/1.1\r\n\r\n"


class Loop(asyncio.SelectorEventLoop):
    """A loop whose time passes when told to."""

    now = 1000.0

    def time(self) -> float:
        return self.now

    def turn(self) -> None:
        """What can be done at once, and no sleep."""
        for _ in range(12):
            self.call_soon(self.stop)
            self.run_forever()


class Port:
    """A server in a time of its own."""

    def __init__(self) -> None:
        self.texts = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.loop = Loop()
        self.server = Server(self.listener, self.text, self.loop.time)
        self.running = self.loop.create_task(self.server.run())
        self.loop.turn()
        self.open: list[socket.socket] = [self.listener]

    def text(self) -> str:
        self.texts += 1
        return f"text {self.texts}\n"

    def connect(self, request: bytes = b"") -> socket.socket:
        client = socket.create_connection(self.listener.getsockname())
        client.settimeout(5)
        self.open.append(client)
        client.sendall(request)
        return client

    def take(self) -> None:
        """The next connection is taken: so much later that it may be."""
        self.loop.now += 1.01 * door.ACCEPT_SECONDS
        self.loop.turn()

    def answer(self, client: socket.socket) -> bytes:
        """What the client gets."""
        self.loop.turn()
        return client.recv(65_536)

    @property
    def clients(self) -> int:
        return len(self.server.clients)

    @property
    def listening(self) -> bool:
        """Whether a connection wakes the thread."""
        return self.listener.fileno() in self.loop._selector.get_map()  # type: ignore[attr-defined]  # asyncio's own

    def close(self) -> None:
        for task in (self.running, *self.server.clients):
            task.cancel()
        self.loop.turn()
        self.loop.close()
        for one in self.open:
            one.close()


@pytest.fixture
def port() -> Iterator[Port]:
    made = Port()
    yield made
    made.close()


def test_asking_without_end_never_makes_more_than_one_text_a_second(port: Port) -> None:
    answers = []
    for _ in range(200):
        client = port.connect(REQUEST)
        port.take()
        answers.append(port.answer(client).rpartition(b"\r\n")[2])
        client.close()
    assert port.texts == pytest.approx(200 * door.ACCEPT_SECONDS, abs=1.5)
    assert answers[-1] == b"text %d\n" % port.texts


def test_connections_are_never_taken_faster_than_their_rate(port: Port) -> None:
    """The kernel holds the rest back, and the thread sleeps meanwhile."""
    assert port.listening
    for _ in range(10):
        port.connect()
    port.loop.turn()
    assert port.clients == 1
    assert not port.listening, "an engine's cores would spin on a listener that is always ready"
    port.loop.now += 0.9 * door.ACCEPT_SECONDS
    port.loop.turn()
    assert port.clients == 1
    port.take()
    assert port.clients == 2


def test_silent_clients_never_hide_the_telemetry(port: Port) -> None:
    for _ in range(3 * door.MOST_CLIENTS):
        port.connect()
        port.take()
    assert port.clients <= door.MOST_CLIENTS
    client = port.connect(REQUEST)
    port.take()
    assert b"200 OK" in port.answer(client)


def test_a_slow_client_is_never_held_longer_than_its_time(port: Port) -> None:
    slow = port.connect(b"GET /metr")
    port.take()
    assert port.clients == 1
    port.loop.now += door.CLIENT_SECONDS
    port.loop.turn()
    assert port.clients == 0
    assert slow.recv(10) == b""


def test_a_client_that_hangs_up_is_never_listened_to(port: Port) -> None:
    port.connect(b"GET /metr").close()
    port.take()
    assert port.clients == 0


def test_a_request_without_end_is_never_kept(port: Port) -> None:
    client = port.connect(b"x" * (door.LARGEST_REQUEST + 5000))
    port.take()
    assert port.clients == 0
    client.close()


def test_a_client_that_reads_nothing_never_blocks_the_others(port: Port) -> None:
    port.text = lambda: "x" * 20_000_000  # type: ignore[method-assign]
    port.server._text = port.text
    port.connect(REQUEST)
    port.take()
    assert port.clients == 1
    other = port.connect(REQUEST)
    port.take()
    assert b"200 OK" in port.answer(other)


def test_too_few_file_descriptors_never_end_it(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    accept, failures = port.loop.sock_accept, iter([True])

    async def failing(listener: socket.socket) -> tuple[socket.socket, object]:
        if next(failures, False):
            raise OSError(24, "too many open files")
        return await accept(listener)

    monkeypatch.setattr(port.loop, "sock_accept", failing)
    for _ in range(2):
        client = port.connect(REQUEST)
        port.take()
        port.take()
        assert b"200 OK" in port.answer(client)
    assert next(failures, "used") == "used"


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> int:
    """A served port on every address that the machine has."""
    monkeypatch.delenv("SPECULATIVE_TELEMETRY_HOST", raising=False)
    monkeypatch.setenv("SPECULATIVE_TELEMETRY_PORT", "0")
    found = serve(lambda: "served\n")
    assert found is not None
    return found


def fetch(host: str, port: int) -> str:
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_pods_of_clusters_with_one_kind_of_addresses_are_never_without_telemetry(everywhere: int) -> None:
    assert fetch("127.0.0.1", everywhere) == "served\n"
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
            assert fetch("[::1]", everywhere) == "served\n"


def test_a_kernel_without_ipv6_never_keeps_the_port_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    create = socket.create_server

    def refusing(address: tuple[str, int], **options: object) -> socket.socket:
        if options.get("family") == socket.AF_INET6:
            raise OSError("cannot assign requested address")
        return create(address, backlog=16)

    monkeypatch.setattr(socket, "create_server", refusing)
    monkeypatch.delenv("SPECULATIVE_TELEMETRY_HOST", raising=False)
    monkeypatch.setenv("SPECULATIVE_TELEMETRY_PORT", "0")
    port = serve(lambda: "served\n")
    assert port is not None
    assert fetch("127.0.0.1", port) == "served\n"


def test_all_of_it_takes_one_thread(everywhere: int) -> None:
    threads = [one for one in threading.enumerate() if one.name == "speculative-telemetry"]
    clients = [socket.create_connection(("127.0.0.1", everywhere)) for _ in range(8)]
    assert fetch("127.0.0.1", everywhere) == "served\n"
    assert len([one for one in threading.enumerate() if one.name == "speculative-telemetry"]) == len(threads)
    for client in clients:
        client.close()
