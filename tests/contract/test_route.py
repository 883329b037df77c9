"""`spec.route` against the Gateway API's own definition on a real API server: the HTTPRoute is stored as written,
so that nothing differs at rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests import gateway
from tests.contract.conftest import ROOT
from tests.golden.case import whole

from devcluster import Cluster
from speculative_operator.reconcile.observed.drift import first_difference

pytestmark = pytest.mark.cluster

GOLDEN = ROOT / "tests" / "golden" / "inputs" / "route.yaml"


@pytest.fixture(scope="module")
def gateway_cluster(bare_cluster: Cluster, installed: dict[str, Any]) -> Cluster:
    gateway.install(bare_cluster)
    bare_cluster.kubectl("create", "namespace", "models", check=False)
    return bare_cluster


@pytest.mark.parametrize(
    "route",
    [
        {},
        {"path": "/", "hostnames": None},
        {"gateway": {"name": "other"}},
        {"canary": {"name": "next", "weight": 5}},
        {"canary": {"name": "next", "weight": 100}},
    ],
)
def test_a_route_is_stored_as_it_is_written(gateway_cluster: Cluster, route: dict[str, Any]) -> None:
    case = whole(GOLDEN)
    case.more["canary"] = "next"
    spec = {**case.body["spec"]["route"], **route}
    case.body["spec"]["route"] = {key: value for key, value in spec.items() if value is not None}
    (made,) = [one for one in case.children() if one["kind"] == "HTTPRoute"]
    found = gateway_cluster.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-",
        input=json.dumps({**made, "metadata": {**made["metadata"], "ownerReferences": []}}),
    ).stdout  # fmt: skip
    stored = json.loads(found)
    assert first_difference({"spec": made["spec"]}, stored) == ""
