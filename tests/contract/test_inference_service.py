"""`target: InferenceService` against KServe's own definitions on a real API server: what the operator applies is stored
as it was written, and every object of docs/openshift-ai.md is accepted."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from tests import kserve
from tests.contract.conftest import ROOT
from tests.golden.case import whole

from devcluster import Cluster
from speculative_operator.reconcile.drift import first_difference
from speculative_operator.render.inference_service import RUNTIME, SERVICE

pytestmark = pytest.mark.cluster

PAGE = (ROOT / "docs" / "openshift-ai.md").read_text()
EXAMPLE = (ROOT / "examples" / "inference-service.yaml").read_text()
OBJECTS: list[dict[str, Any]] = [
    one
    for block in [*re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL), EXAMPLE]
    for one in yaml.safe_load_all(block)
    if "kind" in one
]
GOLDEN = ROOT / "tests" / "golden" / "inputs" / "inference-service.yaml"
MADE = {one["kind"]: one for one in whole(GOLDEN).children()}


@pytest.fixture(scope="module")
def platform(bare_cluster: Cluster, installed: dict[str, Any]) -> Cluster:
    """KServe's definitions, and the namespaces that objects name."""
    kserve.install(bare_cluster)
    for namespace in ("assist", "speculative-system", "models"):
        bare_cluster.kubectl("create", "namespace", namespace, check=False)
    return bare_cluster


def test_the_page_shows_objects() -> None:
    assert [one["kind"] for one in OBJECTS].count("SpeculativeDeployment") == 4
    assert len(OBJECTS) >= 11


def test_the_policy_of_the_page_closes_the_ports_of_the_engine_to_all_but_prometheus() -> None:
    (policy,) = (one["spec"] for one in OBJECTS if one["kind"] == "NetworkPolicy")
    assert policy["podSelector"]["matchLabels"] == {"serving.kserve.io/inferenceservice": "qwen3-8b-assist"}
    open_to = {port["port"]: "from" in rule for rule in policy["ingress"] for port in rule["ports"]}
    assert open_to == {8443: False, 8080: True, 8001: True}


@pytest.mark.parametrize("shown", OBJECTS, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_every_object_of_the_page_is_accepted(platform: Cluster, shown: dict[str, Any]) -> None:
    platform.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", input=json.dumps(shown)
    )


@pytest.mark.parametrize("kind", [RUNTIME, SERVICE])
def test_what_is_applied_is_stored_as_written(platform: Cluster, kind: str) -> None:
    """Strictly, so that a field that the definition lacks is refused instead of dropped."""
    found = platform.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-",
        input=json.dumps(MADE[kind]),
    ).stdout  # fmt: skip
    assert first_difference(MADE[kind], json.loads(found)) == ""
