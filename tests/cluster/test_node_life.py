"""Life of pods on the process node: start, probes, restarts, back-off, hooks, grace, deletion."""

import time

import pytest
from tests.cluster.podlab import Json, PodLab, container, is_ready, python, shell

pytestmark = pytest.mark.cluster

SLOW_SERVER = """
import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
time.sleep(1.2)
http.server.HTTPServer(("", 8000), Handler).serve_forever()
"""
FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


def test_pod_runs_quickly_and_is_forgotten_when_deleted(lab: PodLab) -> None:
    lab.pod("p", shell(FOREVER))
    start = time.monotonic()
    pod = lab.ready("p")
    assert time.monotonic() - start < 60.0
    assert pod["status"]["podIP"].startswith("10.88.1.")
    assert container(pod)["started"]
    assert container(pod)["state"]["running"]["startedAt"]
    lab.delete("pods", "p")
    assert lab.gone("p") < 60.0


def test_init_containers_run_in_order_before_the_others(lab: PodLab) -> None:
    shared: Json = {"volumeMounts": [{"name": "shared", "mountPath": "/data"}]}
    lab.pod(
        "p",
        shell("cat /data/order; echo main", **shared),
        initContainers=[
            shell("sleep 0.3; echo first >> /data/order", "one", **shared),
            shell("echo second >> /data/order", "two", **shared),
        ],
        volumes=[{"name": "shared", "emptyDir": {}}],
        restartPolicy="Never",
    )
    pod = lab.wait_for_end("p")
    assert lab.log("p") == "first\nsecond\nmain\n"
    assert container(pod, "two", "initContainerStatuses")["state"]["terminated"]["reason"] == "Completed"


def test_failing_init_container_keeps_the_pod_from_starting(lab: PodLab) -> None:
    lab.pod("p", shell("echo never"), initContainers=[shell("exit 4", "bad")], restartPolicy="Never")
    pod = lab.wait_for_end("p")
    assert pod["status"]["phase"] == "Failed"
    assert container(pod, "bad", "initContainerStatuses")["state"]["terminated"]["exitCode"] == 4
    assert container(pod)["state"]["waiting"]["reason"] == "PodInitializing"


def test_crashing_container_is_restarted_with_growing_pauses(lab: PodLab) -> None:
    lab.pod("p", shell("echo run; exit 7"))
    pod = lab.wait("p", lambda p: container(p).get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff")
    status = container(pod)
    assert status["lastState"]["terminated"]["exitCode"] == 7
    assert status["lastState"]["terminated"]["reason"] == "Error"
    assert status["state"]["waiting"]["message"].startswith("back-off 1s restarting failed container=c pod=p_")
    assert pod["status"]["phase"] == "Running"
    assert not is_ready(pod)
    lab.wait("p", lambda p: "back-off 2s" in container(p)["state"].get("waiting", {}).get("message", ""))
    lab.wait("p", lambda p: container(p)["restartCount"] == 3)
    assert lab.log("p", previous=True) == "run\n"


def test_unknown_image_says_which_images_there_are(lab: PodLab) -> None:
    lab.pod("p", {"name": "c", "image": "nobody/knows:this"})
    pod = lab.wait("p", lambda p: container(p).get("state", {}).get("waiting", {}).get("reason") == "ImagePullBackOff")
    message = container(pod)["state"]["waiting"]["message"]
    assert 'Back-off pulling image "nobody/knows:this"' in message
    assert "configured images: python:latest, shell:latest" in message
    assert pod["status"]["phase"] == "Pending"
    lab.delete("pods", "p")
    assert lab.gone("p") < 60.0


def test_startup_probe_holds_the_others_back_and_gives_up(lab: PodLab) -> None:
    get = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1, "timeoutSeconds": 30}
    ports: Json = {"ports": [{"name": "http", "containerPort": 8000}]}
    probes: Json = {"startupProbe": {**get, "failureThreshold": 100}, "livenessProbe": {**get, "failureThreshold": 1}}
    lab.pod("slow", python(SLOW_SERVER, **probes, **ports))
    lab.pod("never", shell(FOREVER, startupProbe={**get, "httpGet": {"port": 1}, "failureThreshold": 2}))
    pod = lab.ready("slow")
    assert container(pod)["restartCount"] == 0
    pod = lab.wait("never", lambda p: container(p).get("restartCount", 0) >= 1)
    assert container(pod)["started"] is False


def test_hook_then_term_then_kill_within_the_grace_period(lab: PodLab) -> None:
    script = "trap 'echo term at $(date +%s.%N)' TERM; echo up; while :; do sleep 0.05; done"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook >> /data/hook; sleep 1"]}}}
    data: Json = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    lab.create(
        "persistentvolumeclaims",
        "kept",
        spec={"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}},
    )
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "kept"}}]
    lab.pod("p", shell(script, lifecycle=hook, **data), terminationGracePeriodSeconds=10, volumes=volumes)
    lab.until(lambda: lab.exists("pods", "p") and is_ready(lab.get("pods", "p")) and "up" in lab.log("p"))
    asked = time.time()
    lab.delete("pods", "p")
    lab.until(lambda: "term at" in _node_log(lab, "p"))
    lab.gone("p")
    assert 9.8 < time.time() - asked < 60.0, "SIGKILL when the grace period is over, the hook's time in it"
    term = float(_node_log(lab, "p").split("term at ")[1].split()[0]) - asked
    assert 0.9 < term < 9.5, "SIGTERM after the hook"
    assert lab.run("cat /data/hook", container=data, volumes=volumes) == "hook\n"


def _node_log(lab: PodLab, pod: str) -> str:
    """A log as the node keeps it; it outlives the pod."""
    logs = lab.cluster.state_dir / "node" / "logs"
    return "".join(path.read_text() for path in logs.glob(f"{lab.namespace}_{pod}_*/c/*.log"))
