"""Clusters come up, live side by side, and leave nothing behind however they end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from devcluster import Cluster, ClusterOptions, DevClusterError
from devcluster.state import Place, base_dir

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("enclosures")]

_DEV = Path(__file__).resolve().parents[2] / "dev"
_STARTER = """
import sys, time
from devcluster import Cluster, ClusterOptions
cluster = Cluster.start(ClusterOptions(name=sys.argv[1], node=False, controllers=False, prometheus=False))
print("up", flush=True)
time.sleep(600)
"""


def _bare(name: str) -> ClusterOptions:
    """The cluster that starts fastest."""
    return ClusterOptions(name=name, node=False, controllers=False, prometheus=False)


@dataclass(frozen=True)
class Traces:
    """What a cluster could leave: processes of its process table, its files, interfaces and mounts of the host."""

    name: str
    process_table: str
    interfaces: frozenset[str]

    @classmethod
    def of(cls, name: str) -> "Traces":
        facts = json.loads((Place.named(name).directory / "cluster.json").read_text())
        return cls(name, str(Path(f"/proc/{facts['first']}/ns/pid").readlink()), _interfaces())

    def processes(self) -> list[int]:
        entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        return [int(entry.name) for entry in entries if _process_table(entry) == self.process_table]

    def left(self) -> list[str]:
        """What is left, in words; empty when all is gone."""
        place = Place.named(self.name)
        paths = [str(path) for path in (place.directory, place.lock) if path.exists()]
        mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(base_dir()) in line]
        return [*map(str, self.processes()), *paths, *mounts, *(_interfaces() - self.interfaces)]


def _process_table(process: Path) -> str | None:
    try:
        return str((process / "ns" / "pid").readlink())
    except OSError:
        return None


def _interfaces() -> frozenset[str]:
    return frozenset(line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:])


def _eventually(condition: Callable[[], bool], seconds: float = 120.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture
def name() -> str:
    """A name no other test run uses."""
    return f"life-{os.getpid()}"


@pytest.fixture
def starter(name: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has started a cluster of that name."""
    process = subprocess.Popen(
        [sys.executable, "-c", _STARTER, name],
        env={**os.environ, "PYTHONPATH": str(_DEV)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_bare_cluster_is_up_in_time_and_gone_after_leaving(name: str) -> None:
    began = time.monotonic()
    with Cluster.start(_bare(name)) as cluster:
        elapsed = time.monotonic() - began
        traces = Traces.of(name)
        assert traces.processes()
        assert cluster.kubectl("get", "--raw", "/readyz").stdout == "ok"
    assert traces.left() == []
    # Three seconds on an idle machine; the rest is patience with a busy one.
    assert elapsed < 90


@pytest.mark.parametrize("killed", ["parent", "first", "outer"])
def test_kill_9_leaves_nothing_and_the_name_is_free_again(
    name: str, starter: subprocess.Popen[str], killed: str
) -> None:
    traces = Traces.of(name)
    facts = json.loads((Place.named(name).directory / "cluster.json").read_text())
    os.kill(starter.pid if killed == "parent" else facts[killed], signal.SIGKILL)
    assert _eventually(lambda: not traces.processes()), traces.left()
    if killed == "parent":
        assert _eventually(lambda: traces.left() == []), traces.left()
    assert _eventually(lambda: not Place.named(name).alive())
    with Cluster.start(_bare(name)) as again:
        assert again.kubectl("get", "--raw", "/readyz").stdout == "ok"
    assert traces.left() == []


def test_name_of_a_living_cluster_is_refused_and_can_be_attached(name: str, starter: subprocess.Popen[str]) -> None:
    assert starter.poll() is None
    with pytest.raises(DevClusterError, match="is running already"):
        Cluster.start(_bare(name))
    attached = Cluster.attach(name)
    assert attached.kubectl("get", "--raw", "/readyz").stdout == "ok"
    traces = Traces.of(name)
    attached.stop()
    assert traces.left() == []
    with pytest.raises(DevClusterError, match="no cluster"):
        Cluster.attach(name)


def test_component_that_dies_is_started_again(name: str) -> None:
    with Cluster.start(_bare(name)) as cluster:
        assert cluster.inside(["pkill", "-x", "kube-apiserver"]).wait() == 0  # the enclosure's process table only

        def back() -> bool:
            state = cluster.components()["kube-apiserver"]
            return bool(state["restarts"] == 1 and state["state"] == "ready")

        assert _eventually(back), cluster.components()
        assert cluster.kubectl("get", "--raw", "/readyz").stdout == "ok"


def test_components_are_kept_down_and_are_ready_afterwards(name: str) -> None:
    with Cluster.start(_bare(name)) as cluster:
        cluster.kubectl("create", "namespace", "kept")
        with cluster.without("kube-apiserver", "etcd"):
            time.sleep(2.0)  # longer than the pause before a component that ended by itself is started again
            assert {one["state"] for one in cluster.components().values()} == {"ended"}
            assert cluster.kubectl("get", "--raw", "/readyz", check=False).returncode != 0
        assert cluster.kubectl("get", "namespace", "kept", "-o", "name").stdout.strip() == "namespace/kept"


def test_what_is_bound_into_the_state_directory_survives_its_deletion(name: str, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    with Cluster.start(_bare(name)) as cluster:
        traces = Traces.of(name)
        point = cluster.state_dir / "volume"
        point.mkdir()
        assert cluster.inside(["mount", "--bind", str(tmp_path), str(point)]).wait() == 0
        assert cluster.inside(["test", "-e", str(point / "precious")]).wait() == 0
        assert list(point.iterdir()) == []  # the host does not see it
    assert (tmp_path / "precious").read_text() == "kept"
    assert traces.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_leaves_nothing(name: str, number: signal.Signals, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    script = f"touch {begun} && exec sleep 600"
    running = _command("run", "--name", name, "--no-controllers", "--no-prometheus", "--", "sh", "-c", script)
    assert _eventually(begun.exists)
    traces = Traces.of(name)
    if number == signal.SIGINT:
        os.killpg(running.pid, number)  # what a terminal does
    else:
        running.send_signal(number)
    assert running.wait(120) == 128 + number
    assert _eventually(lambda: traces.left() == []), traces.left()


def test_up_stays_and_down_ends_it(name: str) -> None:
    assert _command("up", "--name", name, "--no-controllers", "--no-prometheus").wait() == 0
    traces = Traces.of(name)
    assert _command("kubectl", "--name", name, "--", "get", "--raw", "/readyz").wait() == 0
    assert _command("down", "--name", name).wait() == 0
    assert traces.left() == []
    assert _command("kubectl", "--name", name, "--", "get", "ns").wait() == 1


def test_interrupted_up_leaves_nothing(name: str) -> None:
    starting = _command("up", "--name", name, "--no-controllers", "--no-prometheus")
    known = Place.named(name).directory / "cluster.json"
    assert _eventually(known.exists)
    traces = Traces.of(name)
    starting.kill()
    starting.wait()
    assert _eventually(lambda: traces.left() == []), traces.left()


def _command(*arguments: str) -> subprocess.Popen[bytes]:
    """The command line, in a process group of its own as a shell would give it."""
    return subprocess.Popen(
        [sys.executable, "-m", "devcluster", *arguments],
        env={**os.environ, "PYTHONPATH": str(_DEV)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
