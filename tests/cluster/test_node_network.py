"""Network, Services, scheduling and logs on the process node."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.podlab import Json, PodLab, container, python, shell

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


def test_large_and_half_closed_streams_arrive_whole(lab: PodLab) -> None:
    server = (
        "import socket, threading\n"
        "s = socket.create_server(('0.0.0.0', 8000))\n"
        "def serve(c):\n"
        "    n = 0\n"
        "    while d := c.recv(65536): n += len(d)\n"
        "    c.sendall(b'%d' % n + b'x' * 5000000); c.close()\n"
        "while True: threading.Thread(target=serve, args=(s.accept()[0],)).start()\n"
    )
    probe = {"tcpSocket": {"port": "http"}, "periodSeconds": 1}
    ports = [{"name": "http", "containerPort": 8000}]
    lab.pod("one", python(server, ports=ports, readinessProbe=probe), labels={"app": "echo"})
    address = service(lab)
    lab.ready("one")
    client = (
        f"import socket, time\ntime.sleep(0.3)\ns = socket.create_connection(('{address}', 80))\n"
        "s.sendall(b'y' * 3000000); s.shutdown(socket.SHUT_WR)\n"
        "got = b''\nwhile d := s.recv(65536): got += d\nprint(got[:7], len(got))"
    )
    lab.pod("client", python(client), restartPolicy="Never")
    assert lab.wait_for_end("client")["status"]["phase"] == "Succeeded"
    assert lab.log("client") == "b'3000000' 5000007\n"


def test_scheduler_counts_the_accelerators(lab: PodLab) -> None:
    forever = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
    lab.pod("five", shell(forever, resources={"limits": {"nvidia.com/gpu": "5"}}))
    lab.ready("five")
    lab.pod("four", shell(forever, resources={"limits": {"nvidia.com/gpu": "4"}}))
    pod = lab.wait("four", lambda p: p["status"].get("conditions"))
    assert pod["status"]["conditions"][0]["reason"] == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in pod["status"]["conditions"][0]["message"]
    lab.delete("pods", "five")
    lab.ready("four")


def test_node_is_registered_with_labels_and_keeps_its_lease(lab: PodLab) -> None:
    node = lab.call("GET", "/api/v1/nodes/node-1")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "node-1"
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
    assert "taints" not in node["spec"]
    lease = lab.call("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1")
    assert lease["spec"]["holderIdentity"] == "node-1"


def test_logs_by_tail_and_stream(lab: PodLab) -> None:
    lab.pod("p", shell("for i in 1 2 3 4; do echo line $i; done; sleep 6; echo last"), restartPolicy="Never")
    lab.wait("p", lambda p: "state" in container(p) and "waiting" not in container(p)["state"])
    lab.until(lambda: "line 4" in lab.log("p"))
    assert lab.log("p", tailLines=2) == "line 3\nline 4\n"
    followed = lab.cluster.kubectl("logs", "-n", lab.namespace, "-f", "p").stdout
    assert followed.splitlines() == ["line 1", "line 2", "line 3", "line 4", "last"]
    refused = lab.cluster.kubectl("exec", "-n", lab.namespace, "p", "--", "true", check=False)
    assert refused.returncode != 0
