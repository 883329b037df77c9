"""Network, Services, scheduling and logs on the process node."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.podlab import Json, PodLab, python

pytestmark = pytest.mark.cluster

ECHO = """
import http.server, os, signal, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = os.environ["HOSTNAME"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
"""
PROBE = {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1}


def echo_pod(lab: PodLab, name: str, probe: dict[str, Any] | None = PROBE) -> None:
    probes: Json = {"readinessProbe": probe} if probe else {}
    ports = [{"name": "http", "containerPort": 8000}]
    lab.pod(name, python(ECHO, ports=ports, **probes), labels={"app": "echo"})


def service(lab: PodLab, **spec: Any) -> str:
    ports = [{"name": "web", "port": 80, "targetPort": "http"}]
    made = lab.create("services", "echo", spec={"selector": {"app": "echo"}, "ports": ports, **spec})
    return str(made["spec"]["clusterIP"])


def inside(lab: PodLab, *argv: str) -> str:
    process = lab.cluster.inside(list(argv), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _ = process.communicate(timeout=120)
    return str(output.decode())


def test_service_shares_requests_among_ready_pods_by_address_and_name(lab: PodLab) -> None:
    address = service(lab)
    assert "Failed to connect" in inside(lab, "curl", "-sS", "-m", "2", address), "refused: no endpoint yet"
    echo_pod(lab, "one")
    echo_pod(lab, "two")
    echo_pod(lab, "sick", {**PROBE, "httpGet": {"path": "/", "port": 1}})
    lab.ready("one")
    lab.ready("two")
    script = (
        f"for i in 1 2 3 4 5 6; do curl -s -m 20 echo; echo; done; curl -s -m 20 echo.{lab.namespace}.svc.cluster.local"
    )
    lab.until(
        lambda: {"one", "two"} == set(inside(lab, "sh", "-c", f"curl -s {address}; echo; curl -s {address}").split())
    )
    assert set(lab.run(script).split()) == {"one", "two"}


def test_service_forgets_a_pod_that_is_deleted_without_failing_a_request(lab: PodLab, tmp_path: Path) -> None:
    address = service(lab)
    echo_pod(lab, "one")
    lab.pod(
        "two",
        python(
            ECHO,
            ports=[{"name": "http", "containerPort": 8000}],
            readinessProbe=PROBE,
            lifecycle={"preStop": {"sleep": {"seconds": 2}}},
        ),
        labels={"app": "echo"},
        terminationGracePeriodSeconds=5,
    )
    lab.ready("one")
    lab.ready("two")
    lab.until(
        lambda: {"one", "two"} == set(inside(lab, "sh", "-c", f"curl -s {address}; echo; curl -s {address}").split())
    )
    out, gone = tmp_path / "answers", tmp_path / "gone"
    ask = f"curl -s -m 20 http://{address}/ || echo FAILED; echo; sleep 0.05"
    loop = f"while [ ! -e {gone} ]; do {ask}; done; for i in $(seq 10); do {ask}; done"
    with out.open("wb") as file:
        asking = lab.cluster.inside(["sh", "-c", loop], stdout=file)
        lab.until(lambda: {"one", "two"} <= set(out.read_text().split()))
        lab.delete("pods", "two")
        lab.gone("two")
        gone.touch()
        assert asking.wait(120) == 0
    answers = out.read_text().split()
    assert "FAILED" not in answers
    assert set(answers[-10:]) == {"one"}
