"""A Prometheus on loopback that answers as a test tells it to, beautifully or not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

Answer = Callable[[BaseHTTPRequestHandler], None]


def send(handler: BaseHTTPRequestHandler, status: int, content: bytes, kind: str = "application/json") -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def says(answer: Any, status: int = 200) -> Answer:
    """An answerer that sends `answer` as JSON."""
    return lambda handler: send(handler, status, json.dumps(answer).encode())


def matrix(*result: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": list(result)}, **more}


def series(name: str, *values: tuple[float, str], **labels: str) -> dict[str, Any]:
    return {"metric": {"__name__": name, **labels}, "values": [list(value) for value in values]}


class PrometheusServer:
    def __init__(self) -> None:
        self.answer: Answer = says(matrix())
        self.asked: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self.done = threading.Event()


@contextmanager
def serving() -> Iterator[PrometheusServer]:
    """A server on a free port of 127.0.0.1."""
    told = PrometheusServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlparse(self.path).query)
            told.asked.append({name: values[0] for name, values in query.items()} | {"path": urlparse(self.path).path})
            told.headers.append(dict(self.headers))
            told.answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that went away is part of the tests."""

    server = Server(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield told
    finally:
        told.done.set()
        server.shutdown()
        server.server_close()
        thread.join()
