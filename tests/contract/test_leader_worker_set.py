"""`target: LeaderWorkerSet` against LWS's own definition on a real API server: what the operator applies is stored as
it was written, and the objects of docs/several-nodes.md are accepted."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from tests import lws
from tests.contract.conftest import ROOT
from tests.golden.case import whole

from devcluster import Cluster
from speculative_operator.reconcile.observed.drift import first_difference
from speculative_operator.render.leader_worker_set import SET

pytestmark = pytest.mark.cluster

PAGE = (ROOT / "docs" / "several-nodes.md").read_text()
EXAMPLE = (ROOT / "examples" / "several-nodes.yaml").read_text()
OBJECTS: list[dict[str, Any]] = [
    one
    for block in [*re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL), EXAMPLE]
    for one in yaml.safe_load_all(block)
    if "kind" in one
]
(MADE,) = (one for one in whole(ROOT / "tests/golden/inputs/leader-worker-set.yaml").children() if one["kind"] == SET)


@pytest.fixture(scope="module")
def platform(bare_cluster: Cluster, installed: dict[str, Any]) -> Cluster:
    """LWS's definition, and the namespace of what is made."""
    lws.install(bare_cluster)
    bare_cluster.kubectl("create", "namespace", "models", check=False)
    return bare_cluster


@pytest.mark.parametrize("shown", OBJECTS, ids=lambda one: one["metadata"]["name"])
def test_every_object_of_the_page_is_accepted(platform: Cluster, shown: dict[str, Any]) -> None:
    platform.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", input=json.dumps(shown)
    )


def test_what_is_applied_is_stored_as_written(platform: Cluster) -> None:
    """Strictly, so that a field that the definition lacks is refused instead of dropped."""
    found = platform.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-",
        input=json.dumps(MADE),
    ).stdout  # fmt: skip
    assert first_difference(MADE, json.loads(found)) == ""
