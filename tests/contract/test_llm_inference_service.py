"""`target: LLMInferenceService` against KServe's own definition on a real API server: what the operator applies is
stored as it was written, whoever writes beside it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests import kserve, kserve_llm
from tests.contract.conftest import ROOT
from tests.golden.case import whole

from devcluster import Cluster
from speculative_operator.reconcile.observed.drift import first_difference
from speculative_operator.render.llm_inference_service import KIND

pytestmark = pytest.mark.cluster

MADE: tuple[dict[str, Any], ...] = tuple(
    next(one for one in whole(ROOT / "tests" / "golden" / "inputs" / f"{case}.yaml").children() if one["kind"] == KIND)
    for case in ("llm-inference-service", "llm-inference-service-tls")
)


@pytest.fixture(scope="module")
def platform(bare_cluster: Cluster) -> Cluster:
    kserve.install(bare_cluster)
    bare_cluster.kubectl("create", "namespace", "models", check=False)
    return bare_cluster


def applied(cluster: Cluster, body: dict[str, Any], manager: str) -> dict[str, Any]:
    """Strictly, so that a field that the definition lacks is refused instead of dropped."""
    done = cluster.kubectl(
        "apply", "--server-side", "--validate=strict", f"--field-manager={manager}", "-o", "json", "-f", "-",
        input=json.dumps(body),
    )  # fmt: skip
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("made", MADE, ids=lambda one: one["metadata"]["name"])
def test_what_is_applied_is_stored_as_written_and_what_others_add_stays(
    platform: Cluster, made: dict[str, Any]
) -> None:
    stored = applied(platform, made, "speculative-operator")
    assert first_difference(made, stored) == ""
    theirs = kserve_llm.admitted(stored)
    theirs["spec"]["template"]["nodeSelector"] = {"accelerator": "h100"}
    patch = json.dumps({"spec": theirs["spec"]})
    name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
    platform.kubectl(
        "patch", kserve_llm.Controller.plural, name, "-n", namespace, "--type=merge", "-p", patch,
        "--field-manager=webhooks",
    )  # fmt: skip
    again = applied(platform, made, "speculative-operator")
    assert first_difference(made, again) == ""
    assert again["spec"]["template"]["nodeSelector"] == {"accelerator": "h100"}
    assert again["metadata"]["generation"] == stored["metadata"]["generation"] + 1, "the second apply changed something"


@pytest.mark.parametrize("made", MADE, ids=lambda one: one["metadata"]["name"])
def test_the_deployment_of_the_stand_in_is_one_that_the_api_server_takes(
    platform: Cluster, made: dict[str, Any]
) -> None:
    """One handler for each probe and hook, a selector that fits, no volume without a source."""
    stored = applied(platform, made, "speculative-operator")
    for tls in (False, True):
        deployment = kserve_llm.deployment_of(stored, tls=tls)
        platform.kubectl(
            "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", input=json.dumps(deployment)
        )
