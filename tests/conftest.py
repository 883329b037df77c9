"""Fixtures that several kinds of tests share: development clusters.

Both are one cluster per test session, so tests keep to namespaces and names of their own.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from devcluster import Cluster, ClusterOptions
from devcluster.enclosure import REMEDY, forbidden_reason
from devcluster.toolchain import missing

# How long an example takes says more of what else the machine does than of the code: speed is `make bench`'s.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Fail a test that leaves a handler of a signal behind: now and then it would end a test of another file."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    left = [number.name for number, handler in before.items() if signal.getsignal(number) is not handler]
    for number, handler in before.items():
        signal.signal(number, handler)
    assert not left, f"handlers left behind: {left}"


def _given_cluster(directory: Path) -> Cluster | None:
    """The cluster of KUBECONFIG, where DEVCLUSTER_EXISTING says in so many words that tests may change it.

    KUBECONFIG alone is no consent: it is set in many shells, and points to production in some.
    """
    config = os.environ.get("KUBECONFIG")
    if config and os.environ.get("DEVCLUSTER_EXISTING") == "1":
        return Cluster.existing(Path(config), directory)
    return None


@pytest.fixture(scope="session")
def enclosures() -> None:
    """Skip where no enclosure can be made; fail where only the programs are missing, for that is one command away."""
    reason = forbidden_reason()
    if reason is not None:
        pytest.skip(f"{reason}\n{REMEDY}")
    unbuilt = missing()
    if unbuilt:
        pytest.fail(
            f"not built yet: {', '.join(unbuilt)}; run: PYTHONPATH=dev python -m devcluster build", pytrace=False
        )


def _session_cluster(options: ClusterOptions, directory: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    given = _given_cluster(directory)
    if given is not None:
        yield given
        return
    request.getfixturevalue("enclosures")
    with Cluster.start(options) as started:
        yield started


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """API server, controllers, scheduler, Prometheus; no node, so pods stay Pending."""
    options = ClusterOptions(name=f"test-{os.getpid()}", node=False)
    yield from _session_cluster(options, tmp_path_factory.mktemp("cluster"), request)


@pytest.fixture(scope="session")
def bare_cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """API server and store alone: objects are checked and kept, nothing acts on them, namespaces never go away."""
    options = ClusterOptions(name=f"bare-{os.getpid()}", node=False, controllers=False, prometheus=False)
    yield from _session_cluster(options, tmp_path_factory.mktemp("bare"), request)
