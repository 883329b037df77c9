"""What the operator's own tests do to a cluster: install, run the operator as a process under its ServiceAccount, play
the kubelet, and look at what became of an object."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.ports import free_port

from devcluster import Cluster
from speculative_operator.domain import names

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
SYSTEM = "speculative-system"
LONG = 120.0
"""seconds for which a state is waited for: a machine that does much else at the same time takes its time."""
FAREWELL = "Fatal error on SSL protocol"
"""What uvloop logs where a busy machine has it say farewell on a connection that is closed already."""
CHILDREN = ("deployments", "services", "configmaps", "networkpolicies", "poddisruptionbudgets")


def spec(**changes: Any) -> Json:
    """Spec of a small valid object."""
    return {
        "verifier": {"model": "hf://Qwen/Qwen3-8B", "maxNumSeqs": 64},
        "speculator": {"method": "draft_model", "model": "hf://Qwen/Qwen3-0.6B"},
        "speculation": {"numSpeculativeTokens": 3, "maxSpeculativeTokens": 5},
        "accelerator": {"product": "H100-SXM"},
        "replicas": 2,
        **changes,
    }


def until(what: str, condition: Callable[[], Any], seconds: float = LONG, every: float = 0.1) -> Any:
    """Wait until `condition` gives something true, and return it. Raises AssertionError naming `what`."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not after {seconds:.0f} s: {what}"
        time.sleep(every)
    return found


def at_rest(look: Callable[[], Any], seconds: float = 5.0) -> Any:
    """Wait until something has stayed as it is for a while, more than two of the operator's ticks, and return it."""
    deadline, since, last = time.monotonic() + LONG, time.monotonic(), look()
    while time.monotonic() < since + seconds:
        assert time.monotonic() < deadline, f"never at rest: {last}"
        time.sleep(0.2)
        now = look()
        if now != last:
            since, last = time.monotonic(), now
    return last


class Process:
    """One operator process."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log

    def answers(self, path: str) -> tuple[int, str]:
        """Status and body of one of its endpoints; (0, "") when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2.0) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def kill(self) -> None:
        """As a node that dies would."""
        self.process.kill()
        self.process.wait()

    def lines(self) -> list[Json]:
        """Its log so far; it may be writing the last line."""
        whole = (line for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n"))
        return [json.loads(line) for line in whole]

    def errors(self) -> list[Json]:
        """Lines that tell of an error in the operator."""
        found = (line for line in self.lines() if line["level"] in ("ERROR", "CRITICAL") or "exception" in line)
        return [line for line in found if not line["message"].startswith(FAREWELL)]


class OperatorLab:
    """A cluster with the operator installed, but for its pod; `namespace` is the test's."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.namespace = ""
        self._count = 0

    def install(self) -> None:
        """Everything of manifests/ except the Deployment: the process started here takes the place of its pod."""
        documents = yaml.safe_load_all((ROOT / "manifests" / "install.yaml").read_text())
        wanted = [document for document in documents if document["kind"] != "Deployment"]
        self.cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(wanted))
        self.cluster.wait_for_kinds(*(f"{plural}.{names.GROUP}" for plural in (names.PLURAL, names.TRAINING_PLURAL)))

    def enter(self) -> None:
        """A fresh namespace."""
        self.namespace = f"op-{uuid.uuid4().hex[:10]}"
        self.cluster.kubectl("create", "namespace", self.namespace)

    # -- the operator

    @contextmanager
    def operator(self, account: str = names.OPERATOR, of: str = SYSTEM, **settings: str) -> Iterator[Process]:
        """A running operator that is ready; ended by SIGTERM, within five seconds and with status 0."""
        running = self.start(account, of, **settings)
        try:
            until("the operator is ready", lambda: running.answers("/readyz")[0] == 200)
            yield running
        finally:
            if running.process.poll() is None:
                running.process.send_signal(signal.SIGTERM)
                assert running.process.wait(LONG) == 0, running.log.read_text()[-3000:]

    def start(
        self, account: str = names.OPERATOR, of: str = SYSTEM, identity: str = "operator-under-test", **settings: str
    ) -> Process:
        """Start an operator with the rights of a ServiceAccount, and nothing but them."""
        self._count += 1
        log = self.directory / f"operator-{self._count}.log"
        port = free_port()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SPECULATIVE_")},
            "PYTHONPATH": str(ROOT / "operator"),
            "KUBECONFIG": str(self._config(account, of)),
            "POD_NAME": identity,
            "SPECULATIVE_LEASE_NAMESPACE": of,
            "SPECULATIVE_HTTP_HOST": "127.0.0.1",
            "SPECULATIVE_HTTP_PORT": str(port),
            "SPECULATIVE_PROMETHEUS_URL": "http://127.0.0.1:9",
            "SPECULATIVE_PROMETHEUS_TIMEOUT_SECONDS": "0.5",
            "SPECULATIVE_TICK_SECONDS": "2",
            **{f"SPECULATIVE_{name.upper()}": value for name, value in settings.items()},
        }
        with log.open("wb") as out:
            command = [sys.executable, "-m", "speculative_operator", "--kubeconfig", environment["KUBECONFIG"]]
            return Process(subprocess.Popen(command, env=environment, stdout=out, stderr=out), port, log)

    def _config(self, account: str, namespace: str) -> Path:
        """A kubeconfig with the token of a ServiceAccount."""
        admin = yaml.safe_load(self.cluster.kubeconfig.read_text())
        token = self.cluster.kubectl("create", "token", account, "-n", namespace, "--duration=1h").stdout.strip()
        admin["users"] = [{"name": user["name"], "user": {"token": token}} for user in admin["users"]]
        path = self.directory / f"kubeconfig-{account}-{namespace}"
        path.write_text(json.dumps(admin))
        return path

    # -- objects

    def apply(self, body: Json) -> None:
        self.cluster.kubectl("apply", "--server-side", "--field-manager=test", "-f", "-", input=json.dumps(body))

    def deploy(self, name: str = "gemma", **changes: Any) -> None:
        """Apply a SpeculativeDeployment, or a change of it."""
        meta = {"name": name, "namespace": self.namespace}
        self.apply({"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": spec(**changes)})

    def get(self, resource: str, name: str = "gemma") -> Json | None:
        return self.cluster.objects.get(resource, name, self.namespace) or None

    def listed(self, resources: str, selector: str = "") -> list[Json]:
        return self.cluster.objects.list(resources, self.namespace, selector)

    def children(self, name: str = "gemma") -> dict[tuple[str, str], Json]:
        """(kind, name) -> object, of everything labelled as belonging to an object."""
        found = self.listed(",".join(CHILDREN), f"{names.LABEL_DEPLOYMENT}={name}")
        return {(body["kind"], body["metadata"]["name"]): body for body in found}

    def patch(self, resource: str, name: str, patch: Json, *more: str) -> None:
        self.cluster.kubectl(
            "patch", resource, name, "-n", self.namespace, "--type=merge", "-p", json.dumps(patch), *more
        )

    def delete(self, resource: str, name: str = "gemma", *more: str) -> None:
        self.cluster.kubectl("delete", resource, name, "-n", self.namespace, *more)

    def condition(self, kind: str, name: str = "gemma") -> Json:
        """One condition of an object; empty when it has none."""
        body = self.get(names.PLURAL, name) or {}
        found = (body.get("status") or {}).get("conditions") or []
        return next((entry for entry in found if entry["type"] == kind), {})

    def pods(self, count: int = 2, name: str = "gemma") -> list[Json]:
        """The serving pods, once there are so many."""

        def found() -> list[Json]:
            pods = self.listed("pods", f"{names.LABEL_DEPLOYMENT}={name}")
            return pods if len(pods) >= count else []

        return list(until(f"{count} pods", found))

    def make_ready(self, count: int = 2, name: str = "gemma") -> list[str]:
        """Play the kubelet: say that the pods run and are ready."""
        status = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"}],
        }
        pods = [pod["metadata"]["name"] for pod in self.pods(count, name)]
        for number, pod in enumerate(pods, 1):
            address = f"10.1.0.{number}"
            told = {**status, "podIP": address, "podIPs": [{"ip": address}]}
            self.patch("pod", pod, {"status": told}, "--subresource=status")
        return pods


def _crd() -> str:
    return f"{names.PLURAL}.{names.GROUP}"
