"""A server of files on loopback that counts every byte it sends, its client as a Source, and the command line with that
source in the place of real ones: `python -m tests.unit.weights.loopback fetch ...` in processes that tests may kill.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.client
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest import mock

from tests.unit.weights.shelf import BRISK, COMMIT, KIB

from speculative_operator.domain.models import Pin
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource
from speculative_operator.weights import __main__, command
from speculative_operator.weights.source import Entry, WeightsError

ROOT = Path(__file__).resolve().parents[3]
SEGMENT = BRISK.segment
_BLOCK = 32 * KIB


@dataclass
class Sent:
    """One answer."""

    path: str
    start: int
    end: int
    count: int = 0


class Server(ThreadingHTTPServer):
    """Serves `contents` at `rate` bytes per second and calls `sent` after every block."""

    daemon_threads = True

    def __init__(self, contents: dict[str, bytes], rate: float = 1e12) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.contents = contents
        self.rate = rate
        self.answers: list[Sent] = []
        self.watch: Callable[[int], None] = lambda _: None
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    @property
    def count(self) -> int:
        return sum(one.count for one in self.answers)

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        if self.path == "/":
            sums = {name: [len(data), hashlib.sha256(data).hexdigest()] for name, data in self.server.contents.items()}
            self._answer(json.dumps(sums).encode())
            return
        start, end = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        self._answer(self.server.contents[self.path[1:]][start : end + 1], Sent(self.path[1:], start, end + 1))

    def _answer(self, data: bytes, noted: Sent | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if noted:
            self.server.answers.append(noted)
        try:
            for at in range(0, len(data), _BLOCK):
                block = data[at : at + _BLOCK]
                self.wfile.write(block)
                if noted:
                    with self.server.lock:
                        noted.count += len(block)
                        self.server.watch(self.server.count)
                        time.sleep(len(block) / self.server.rate)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Nothing."""


@dataclass
class Client:
    """Source over that server."""

    url: str
    pin: Pin

    @property
    def files(self) -> tuple[Entry, ...]:
        listed = json.loads(b"".join(self._bytes("/", {})))
        return tuple(Entry(path, size, summed) for path, (size, summed) in sorted(listed.items()))

    def read(self, entry: Entry, start: int, end: int) -> Iterator[bytes]:
        return self._bytes(f"/{entry.path}", {"Range": f"bytes={start}-{end - 1}"})

    def _bytes(self, path: str, headers: dict[str, str]) -> Iterator[bytes]:
        connection = http.client.HTTPConnection(self.url, timeout=10)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            while block := answer.read1(_BLOCK):
                yield block
        finally:
            connection.close()


def opened(source: ModelSource, claims_at: Path | None) -> Client:
    """In place of `sources.open_source`."""
    url = os.environ["LOOPBACK"]
    if not url:
        raise WeightsError(Reason.SOURCE_UNREACHABLE, f"{source.uri}: there is no way out of here")
    return Client(url, Pin(source.scheme, source.location, source.revision, COMMIT))


def start(
    url: str, cache: Path, *options: str, model: str = "hf://small/model", within: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    """The command line in a process of its own, run by the program `within`."""
    arguments = ["fetch", "--cache", str(cache), "--verifier", model, "--verifier-revision", COMMIT, *options]
    return subprocess.Popen(
        [*within, sys.executable, "-m", "tests.unit.weights.loopback", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": "operator:dev:.", "LOOPBACK": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def forked(environment: dict[str, str], log: Path, arguments: Sequence[str]) -> BaseProcess:
    """The command line in a process of its own that need not import anything anew. What it says goes to `log`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [__name__, *(f"speculative_operator.weights.{name}" for name in ("hub", "oci", "s3"))]
    )
    process = context.Process(target=_run, args=(environment, str(log), list(arguments)), daemon=True)
    process.start()
    return process


def _run(environment: dict[str, str], log: str, arguments: list[str]) -> None:
    os.environ.update(environment)
    with Path(log).open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.exit(main(arguments))


def main(arguments: Sequence[str] | None = None) -> int:
    """`speculative-weights` in small chunks, with the source of this module where `LOOPBACK` is set."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(command, "Limits", functools.partial(replace, BRISK)))
        if "LOOPBACK" in os.environ:
            stack.enter_context(mock.patch.object(command, "open_source", opened))
        return __main__.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
