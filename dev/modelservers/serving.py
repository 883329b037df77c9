"""What the emulated hub and registry have in common: an HTTP server on loopback that sends files by range, obeys
faults and counts. `hub` and `oci` say which path is which file.

`/_control`: GET tells the bytes sent of each file, PUT with a JSON list of faults replaces those in force.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from modelservers.faults import Fault, Ledger, Seen

_BLOCK = 1 << 20
_CONTROL = "/_control"


class ModelServer(ThreadingHTTPServer):
    """Runs in threads of this process from `running()` on, or in `serve_forever`. Port 0 takes a free one."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, handler: type[Handler], host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__((host, port), handler)
        self.ledger = Ledger()
        self.scheme = "http"

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.server_address[0]!s}:{self.port}"

    def secure(self, certificate: Path, key: Path) -> None:
        """Speak TLS from now on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.scheme = "https"

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


class Handler(BaseHTTPRequestHandler):
    """One connection. Subclasses answer in `route`."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    server: ModelServer
    fault = Fault()
    _status = 0
    _sent = 0
    marks: ClassVar[Mapping[str, str]] = {}
    """Headers of every answer."""

    def route(self, path: str, query: str) -> None:
        raise NotImplementedError

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self) -> None:
        self._status, self._sent, self.fault = 0, 0, Fault()
        path, _, query = self.path.partition("?")
        if path == _CONTROL:
            self.json(200, {"bytesByPath": self.server.ledger.bytes_by_path()})
            return
        self.fault = self.server.ledger.strike(self.path)
        try:
            time.sleep(self.fault.delay)
            if self.fault.status:
                self.refuse(self.fault.status, "a fault was ordered", self.fault.headers)
            else:
                self.route(path, query)
        finally:
            asked, known = self.headers.get("Range", ""), "Authorization" in self.headers
            self.server.ledger.note(Seen(self.command, self.path, self._status, asked, self._sent, known))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.fault = Fault()
        if self.path != _CONTROL:
            self.refuse(405, "only GET and HEAD are served")
            return
        content = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.ledger.order(*(Fault(**one) for one in json.loads(content)))
        self.json(200, {})

    def log_message(self, *_: Any) -> None:
        """Silent: what was asked is in the ledger."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Status line and headers."""
        self._status = status
        self.send_response(status)
        for name, value in {**self.marks, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def json(self, status: int, content: Any, headers: Mapping[str, str] | None = None) -> None:
        self.whole(status, json.dumps(content).encode(), {"Content-Type": "application/json", **(headers or {})})

    def refuse(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.json(status, {"error": message}, headers)

    def whole(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        """A small body, dripped or cut where a fault says so."""
        self.begin(status, {"Content-Length": str(len(content)), **headers})
        if self.command != "HEAD":
            self._shaped(iter([content]))

    def file(self, path: Path, headers: Mapping[str, str]) -> None:
        """A file, or the range of it that was asked for."""
        size = path.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, end = (int(asked[1]), min(int(asked[2] or size - 1) + 1, size)) if asked else (0, size)
        if asked and start >= size:
            self.begin(416, {"Content-Range": f"bytes */{size}", "Content-Length": "0"})
            return
        told = {"Content-Length": str(end - start), "Accept-Ranges": "bytes", **headers}
        if asked:
            told["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        self.begin(206 if asked else 200, told)
        if self.command == "HEAD":
            return
        with path.open("rb") as file:
            if self._plain():
                self.wfile.flush()
                try:
                    self.connection.sendfile(file, start, end - start)
                finally:
                    self._sent += file.tell() - start
            else:
                self._shaped(_blocks(file.fileno(), start, end, self.fault.corrupt_at))

    def _plain(self) -> bool:
        fault = self.fault
        shaped = fault.drip or fault.slow_to or fault.cut_after is not None or fault.corrupt_at is not None
        return not shaped and not isinstance(self.connection, ssl.SSLSocket)

    def _shaped(self, blocks: Iterator[bytes]) -> None:
        rate = self.fault.drip or self.fault.slow_to
        step = 1 if self.fault.drip else max(int(rate / 50), 1) if rate else _BLOCK
        left = self.fault.cut_after
        for block in blocks:
            for at in range(0, len(block), step):
                piece = block[at : at + step] if left is None else block[at : at + min(step, left)]
                self.wfile.write(piece)
                self._sent += len(piece)
                left = None if left is None else left - len(piece)
                if left == 0:
                    self._hang_up()
                    return
                if rate:
                    time.sleep(len(piece) / rate)

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def _blocks(file: int, start: int, end: int, corrupt_at: int | None) -> Iterator[bytes]:
    while start < end:
        block = os.pread(file, min(_BLOCK, end - start), start)
        if corrupt_at is not None and start <= corrupt_at < start + len(block):
            changed = bytearray(block)
            changed[corrupt_at - start] ^= 1
            block = bytes(changed)
        yield block
        start += len(block)
