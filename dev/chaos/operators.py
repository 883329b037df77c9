"""The operator as a process of this machine, kept alive as by a kubelet, with the rights of its ServiceAccount alone.

The settings are those of manifests/install.yaml, but for what the run needs to be short.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from demo.scene import OPERATOR_NAMESPACE, ROOT
from devcluster.cluster import Cluster
from devcluster.enclosure import listen
from speculative_operator.domain import names

CLOCK = Path(__file__).with_name("clock")
ACCOUNT = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{names.OPERATOR}"
RESTART_PAUSE_SECONDS = 0.5
QUICK = {
    "SPECULATIVE_TICK_SECONDS": "4",
    "SPECULATIVE_PROMETHEUS_TIMEOUT_SECONDS": "3",
    "SPECULATIVE_HTTP_HOST": "127.0.0.1",
    "SPECULATIVE_LEASE_NAMESPACE": OPERATOR_NAMESPACE,
}
"""So that a fault of a quarter of a minute is seen several times."""


def settings_of_the_manifest() -> dict[str, str]:
    """Variables with a plain value of the operator's container."""
    documents = yaml.safe_load_all((ROOT / "manifests" / "install.yaml").read_text())
    (pod,) = [one["spec"]["template"]["spec"] for one in documents if one["kind"] == "Deployment"]
    return {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"] if entry.get("value")}


def write_kubeconfig(cluster: Cluster, server: str, path: Path) -> None:
    """One with a token of the operator's ServiceAccount, for a server without TLS."""
    made = cluster.kubectl("create", "token", names.OPERATOR, "-n", OPERATOR_NAMESPACE, "--duration=2h")
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "chaos", "cluster": {"server": server}}],
        "users": [{"name": "operator", "user": {"token": made.stdout.strip()}}],
        "contexts": [{"name": "chaos", "context": {"cluster": "chaos", "user": "operator"}}],
        "current-context": "chaos",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))


@dataclass
class Operator:
    """Started again whenever it ends, until `stop`."""

    identity: str
    folder: Path
    variables: Mapping[str, str]
    """What differs from the manifest's settings: where the servers are, and what a fault changes."""
    starts: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _port: int = 0
    _stopping: threading.Event = field(default_factory=threading.Event)
    _keeper: threading.Thread | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def clock(self) -> Path:
        """File that holds by how many seconds its clock is wrong."""
        return self.folder / f"clock-{self.identity}"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.identity}.log"

    def start(self) -> None:
        with listen() as probe:
            self._port = probe.getsockname()[1]
        self._launch()
        self._keeper = threading.Thread(target=self._keep, name=self.identity, daemon=True)
        self._keeper.start()

    def _launch(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPECULATIVE_")}
        environment = kept | settings_of_the_manifest() | QUICK | {
            "POD_NAME": self.identity,
            "PYTHONPATH": f"{CLOCK}{os.pathsep}{ROOT / 'operator'}",
            "CHAOS_CLOCK": str(self.clock),
            "SPECULATIVE_HTTP_PORT": str(self._port),
            **self.variables,
        }  # fmt: skip
        with self.log.open("ab") as out:
            command = [sys.executable, "-m", "speculative_operator", "--kubeconfig", environment["KUBECONFIG"]]
            self._process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        self.starts += 1

    def _keep(self) -> None:
        while not self._stopping.is_set():
            process = self._process
            assert process is not None
            process.wait()
            time.sleep(RESTART_PAUSE_SECONDS)
            with self._lock:
                if not self._stopping.is_set():
                    self._launch()

    def kill(self) -> None:
        """As a node that dies would; it comes back by itself."""
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGKILL)

    def stop(self) -> None:
        """End it in peace, and for good."""
        with self._lock:
            self._stopping.set()
            process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        if self._keeper is not None:
            self._keeper.join(10)

    def ready(self) -> bool:
        """Does it say so itself?"""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=2.0) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def tracebacks(self) -> int:
        """How many its log has."""
        return self.log.read_text(errors="replace").count("Traceback (most recent call last)")
