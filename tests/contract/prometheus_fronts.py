"""A real Prometheus that scrapes an emulated engine, and what people put in front of theirs: a proxy on loopback that
asks for credentials, certificates, tenants or a path, and fails as such proxies do."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
import yaml

from devcluster import toolchain

POD, NAMESPACE, HOST = "qwen-0", "models", "127.0.0.1"
START_SECONDS = 60.0
Check = Callable[[BaseHTTPRequestHandler], tuple[int, str] | None]
"""What the front answers itself, as status and body; None lets the query through."""


@dataclass(frozen=True, slots=True)
class Scraped:
    """A Prometheus with samples of one pod under several kinds of labels, each in a namespace of its own."""

    port: int
    engine: str
    """HOST:PORT of the engine."""


def _jobs(target: str) -> Iterator[dict[str, Any]]:
    for name, labels in {
        "as-usual": {"namespace": NAMESPACE, "pod": POD},
        "other-labels": {"kubernetes_namespace": "relabelled", "kubernetes_pod_name": "b"},
        "other-namespace": {"exported_namespace": "exported", "namespace": "monitoring", "pod": "c"},
        "other-instance": {"namespace": "rewritten", "pod": "d", "instance": "node-7"},
    }.items():
        yield {"job_name": name, "static_configs": [{"targets": [target], "labels": labels}]}


@contextlib.contextmanager
def scraping(engine: str, directory: Path, port: int) -> Iterator[Scraped]:
    """Prometheus, once it has several samples of the engine in each job."""
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": list(_jobs(engine))}
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    flags = {
        "config.file": directory / "prometheus.yml",
        "storage.tsdb.path": directory / "data",
        "web.listen-address": f"{HOST}:{port}",
    }
    program = str(toolchain.ensure().prometheus)
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([program, *(f"--{key}={value}" for key, value in flags.items())], stderr=log)
    try:
        _until_scraped(port, process, directory / "log")
        yield Scraped(port, engine)
    finally:
        process.terminate()
        process.wait(30)


def _until_scraped(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    query = "min(count_over_time(vllm:num_requests_running[1m])) and on() count(up == 1) == 4"
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"Prometheus ended with {process.returncode}: {log.read_text()}")
        with contextlib.suppress(requests.RequestException):  # refused, then 503 in plain text, until it has begun
            answer = requests.get(f"http://{HOST}:{port}/api/v1/query", params={"query": query}, timeout=5).json()
            found = (answer.get("data") or {}).get("result") or []
            if found and float(found[0]["value"][1]) >= 3:
                return
        time.sleep(0.1)
    raise RuntimeError(f"Prometheus has no samples after {START_SECONDS:g} s: {log.read_text()[-2000:]}")


@contextlib.contextmanager
def front(
    behind: int, check: Check = lambda _: None, *, prefix: str = "", tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """A proxy in front of Prometheus at port `behind`; its address, without the prefix. A forward proxy is asked with
    whole addresses, so its prefix is one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = check(self)
            if answer is None and not self.path.startswith(f"{prefix}/api/"):
                answer = 404, "not found"
            status, body = answer or _forwarded(behind, self.path.removeprefix(prefix))
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", "https://login.example/")
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Clients that break off are part of the tests."""

    server = Server((HOST, 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://{HOST}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _forwarded(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def wants_header(name: str, value: str, status: int = 401) -> Check:
    """A front that asks for one header."""
    return lambda handler: None if handler.headers.get(name) == value else (status, "refused")


def wants_namespace(*allowed: str) -> Check:
    """The tenancy port of Thanos on OpenShift: the namespace stands beside the query, and may be read."""

    def check(handler: BaseHTTPRequestHandler) -> tuple[int, str] | None:
        named = parse_qs(urlsplit(handler.path).query).get("namespace")
        if named is None:
            return 400, 'Bad Request. The "namespace" query parameter must be provided.'
        return None if named[0] in allowed else (403, "Forbidden")

    return check
