"""A private, rootless Kubernetes on one Linux machine, for development and tests.

    from devcluster import Cluster, ClusterOptions, Image
    with Cluster.start(ClusterOptions(name="mine")) as cluster:
        cluster.kubectl("get", "nodes")

Nothing of it is imported by the operator.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devcluster.cluster import Cluster
    from devcluster.errors import DevClusterError
    from devcluster.options import ClusterOptions, Image
    from devcluster.toolchain import Toolchain

__all__ = ["Cluster", "ClusterOptions", "DevClusterError", "Image", "Toolchain"]

_HOMES = {
    "Cluster": "cluster",
    "ClusterOptions": "options",
    "DevClusterError": "errors",
    "Image": "options",
    "Toolchain": "toolchain",
}


def __getattr__(name: str) -> object:
    """Import on first use: the programs inside the enclosure need none of it, and a start waits for their imports."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"devcluster.{_HOMES[name]}"), name)
