"""Quick starts as they are written: every command block of each page runs in order, with real kubectl, helm and curl.

What this machine lacks is put in its place and nothing else: Docker, kind and k3d do nothing (the node knows the images
by name), vLLM's image runs the emulator, models are names that nobody reads, and port-forward, which the process node
does not have, is a relay to the Service. So what is not tested is that images build and that kind starts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo import scene
from devcluster import Cluster, Image

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("quick-start-kubectl", "quick-start-helm", "quick-start-no-accelerator")
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


@pytest.fixture(scope="module")
def cluster(enclosures: None) -> Iterator[Cluster]:
    known = scene.images()
    operator, emulator = known["speculative-operator:0.1.0"], known["speculative-operator/vllm-emulator:0.32.0"]
    more: dict[str, Image] = {f"{REGISTRY}/speculative-operator:0.1.0": operator, "vllm/vllm-openai:v0.32.0": emulator}
    with Cluster.start(scene.options(f"quick-{os.getpid()}", more)) as started:
        yield started


@pytest.fixture
def programs(cluster: Cluster, tmp_path: Path) -> Path:
    """A folder of the commands that pages name."""
    relay = tmp_path / "relay.py"
    relay.write_text(RELAY)
    kubectl = KUBECTL.format(python=sys.executable, relay=relay, kubectl=cluster.binaries.kubectl)
    done = '#!/bin/sh\necho "$(basename "$0") $*: not on this machine"\n'
    for name, text in {"kubectl": kubectl, **dict.fromkeys(("docker", "kind", "k3d"), done)}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "helm").symlink_to(cluster.binaries.helm)
    return tmp_path


def blocks(page: str) -> list[str]:
    return BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text())


def test_the_readmes_commands_are_those_of_a_page() -> None:
    """So that they run here too."""
    readme = (ROOT / "README.md").read_text()
    shown = BLOCK.findall(readme)
    page = "".join(blocks("quick-start-helm"))
    assert len(shown) == 4
    assert [block for block in shown if block not in page] == []


def adapted(block: str) -> str:
    """With this machine's registry, and models that nobody reads."""
    text = block.replace("REGISTRY", REGISTRY)
    if "pairs.check" not in text:
        text = text.replace("--set image.repository", "--set pairs.check=false --set image.repository")
    return text.replace(
        "manifests/install.yaml \\\n", "manifests/install.yaml | sed '/CHECK_PAIRS/{n;s/true/false/}' \\\n"
    )


@pytest.mark.skipif(shutil.which("curl") is None, reason="the pages use curl")
@pytest.mark.parametrize("page", PAGES)
def test_it_works_as_it_is_written(cluster: Cluster, programs: Path, page: str) -> None:
    script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
    script += "".join(f"echo '== block {number}'\n{adapted(block)}" for number, block in enumerate(blocks(page), 1))
    state = {name: str(programs / name.lower()) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    command = ["bash", "-c", f"cd {ROOT}\n{script}"]
    running = cluster.inside(
        command,
        env={"PATH": f"{programs}:{os.environ['PATH']}", **state},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        said = running.communicate(timeout=280)[0].decode()
    finally:
        running.kill()
    assert running.returncode == 0, said[-6000:]
    assert '"object":"text_completion"' in said.replace(" ", ""), "the model answered"
    if "helm test" in script:
        assert "the operator reconciles" in said
