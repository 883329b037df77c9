"""Pages of the documentation typed into a shell: their blocks in `bash`, in order, with real kubectl, helm and curl.

What no development cluster has is put in its place: docker, kind and k3d do nothing, since the node knows the images by
name; port-forward, which the process node does not have, is a relay to the Service.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from devcluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REGISTRY = "registry.example"
KUBECTL = """#!/bin/bash
if [ "$1" = port-forward ]; then
  exec {python} {relay} "$({kubectl} get "$2" -o 'jsonpath={{.spec.clusterIP}}')" "$3"
fi
exec {kubectl} "$@"
"""
RELAY = """
import socket, sys, threading
host, port = sys.argv[1], int(sys.argv[2])
def copy(one, other):
    while piece := one.recv(65536):
        other.sendall(piece)
    other.shutdown(socket.SHUT_WR)
with socket.create_server(("127.0.0.1", port)) as server:
    while True:
        near, _ = server.accept()
        far = socket.create_connection((host, port))
        for pair in ((near, far), (far, near)):
            threading.Thread(target=copy, args=pair, daemon=True).start()
"""


def blocks(page: str) -> list[str]:
    """The commands of a page, in their order."""
    return BLOCK.findall((ROOT / page).read_text())


def typed(cluster: Cluster, commands: list[str], folder: Path, seconds: float = 1200) -> str:
    """Types blocks into one shell in the cluster's network; what it said. Fails where a command does."""
    script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
    script += "".join(f"echo '== block {n}'\n{one.replace('REGISTRY', REGISTRY)}" for n, one in enumerate(commands, 1))
    path = programs(cluster, folder)
    state = {name: str(path / name.lower()) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    running = cluster.inside(
        ["bash", "-c", f"cd {ROOT}\n{script}"],
        env={"PATH": f"{path}:{os.environ['PATH']}", **state},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        said: str = running.communicate(timeout=seconds)[0].decode()
    finally:
        running.kill()
    assert running.returncode == 0, said[-6000:]
    return said


def programs(cluster: Cluster, folder: Path) -> Path:
    """A folder of the commands that pages name."""
    relay = folder / "relay.py"
    relay.write_text(RELAY)
    kubectl = KUBECTL.format(python=sys.executable, relay=relay, kubectl=cluster.binaries.kubectl)
    done = '#!/bin/sh\necho "$(basename "$0") $*: not on this machine"\n'
    for name, text in {"kubectl": kubectl, **dict.fromkeys(("docker", "kind", "k3d"), done)}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "helm").unlink(missing_ok=True)
    (folder / "helm").symlink_to(cluster.binaries.helm)
    return folder


def answered(said: str) -> bool:
    """A model answered what curl asked."""
    return '"object":"text_completion"' in said.replace(" ", "")


def shown(said: str) -> list[str]:
    """The column K of each `kubectl get specdep` in what a shell said."""
    lines = [line.split() for line in said.splitlines()]
    return [row[head.index("K")] for head, row in pairwise(lines) if head[:2] == ["NAME", "READY"]]
