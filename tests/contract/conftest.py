"""The definition installed on a bare API server, once for all contract tests that need it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from tests.contract.server import Server

from devcluster import Cluster
from speculative_operator.api.crd import NAME

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def api(bare_cluster: Cluster) -> Iterator[client.ApiClient]:
    loaded = client.Configuration()
    load: Any = config.load_kube_config  # the client has types for its calls, not for its configuration
    load(str(bare_cluster.kubeconfig), client_configuration=loaded)
    with client.ApiClient(loaded) as connection:
        yield connection


@pytest.fixture(scope="session")
def installed(bare_cluster: Cluster, api: client.ApiClient) -> dict[str, Any]:
    """The definition as the server has it, once it serves."""
    bare_cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    custom, found = client.CustomObjectsApi(api), {}
    for _ in range(100):
        found = _definition(custom)
        if "Established" in states(found) and _serves(Server(api)):
            return found
        time.sleep(0.1)
    raise AssertionError(f"the definition is not served: {found.get('status')}")


@pytest.fixture(scope="session")
def server(api: client.ApiClient, installed: dict[str, Any]) -> Server:
    return Server(api)


def states(definition: dict[str, Any]) -> set[str]:
    """Types of the conditions that are true."""
    conditions = definition.get("status", {}).get("conditions") or ()
    return {condition["type"] for condition in conditions if condition["status"] == "True"}


def _definition(custom: client.CustomObjectsApi) -> dict[str, Any]:
    found = custom.get_cluster_custom_object("apiextensions.k8s.io", "v1", "customresourcedefinitions", NAME)
    return cast("dict[str, Any]", found)


def _serves(server: Server) -> bool:
    try:
        server.custom.list_namespaced_custom_object(*server.at)
    except ApiException:
        return False
    return True
