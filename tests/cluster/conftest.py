"""The cluster that the process node's own tests share: one for the session, a namespace for each test."""

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.podlab import PodLab

from demo import scene
from devcluster import Cluster, ClusterOptions, Image

_SECONDS = 600
"""for a test that does not say how long it may take: it may wait for several things."""
_NUMBERS = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A busy machine is no fault of a test."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SECONDS))


@pytest.fixture(scope="session")
def node_cluster(enclosures: None) -> Iterator[Cluster]:
    """A cluster with a process node, a shell, Python and the operator as images, and quick back-off and syncs."""
    images = {
        **scene.images(),
        "shell": Image(("/bin/sh",)),
        "python": Image((sys.executable,), env={"FROM_IMAGE": "yes"}),
    }
    options = ClusterOptions(
        name=f"node-{os.getpid()}",
        images=images,
        prometheus=False,
        node_settings={"crashBackoffSeconds": 1, "syncSeconds": 8},
    )
    with Cluster.start(options) as started:
        yield started


@pytest.fixture
def lab(node_cluster: Cluster) -> Iterator[PodLab]:
    """Pods in a namespace of the test's own, gone quickly afterwards."""
    lab = PodLab(node_cluster)
    lab.enter_namespace(f"t{next(_NUMBERS)}")
    yield lab
    lab.clear()
