"""Rendered children on a real API server: accepted strictly, admitted as restricted, never found to have drifted."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster import Cluster
from speculative_operator.api.convert import to_domain
from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.reconcile.tick import Outcome, World, tick
from speculative_operator.render import Capabilities
from speculative_operator.render.payload import is_payload

pytestmark = pytest.mark.cluster

INPUTS = sorted(
    path for path in (Path(__file__).parents[1] / "golden" / "inputs").glob("*.yaml")
    if "InferenceService\n" not in path.read_text() and "LeaderWorkerSet\n" not in path.read_text()
)  # fmt: skip
"""Those of KServe and LWS need their definitions: tests/contract/test_inference_service.py and its siblings."""
NAMESPACE = "children"
UID = "0e7b5d1c-5a4f-4f0e-9d52-6f0c8a3a2b11"
NOW = 1_800_000_000.0


def spec_of(source: Path) -> DeploymentSpec:
    body = next(iter(yaml.safe_load_all(source.read_text())))
    body["metadata"] |= {"namespace": NAMESPACE, "uid": UID, "generation": 1}
    return to_domain(body)


def world(spec: DeploymentSpec, served: Mapping[tuple[str, str], Mapping[str, Any]], **more: Any) -> World:
    """`served`: all that was made so far; the plug-in's ConfigMap is nobody's child."""
    payloads = {name: one["data"] for (_, name), one in served.items() if is_payload(one)}
    children = {key: one for key, one in served.items() if not is_payload(one)}
    return World(spec=spec, status=more.pop("status", {}), children=children, payloads=payloads, pods=(), **more)


def manifests_of(outcome: Outcome) -> list[Mapping[str, Any]]:
    return [action.manifest for action in outcome.actions if isinstance(action, ApplyChild)]


@pytest.fixture(scope="module")
def namespace(bare_cluster: Cluster) -> str:
    """Enforces restricted Pod Security; its default account is made by hand, for no controller runs here."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}},
    ]
    for one in objects:
        bare_cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(one))
    return NAMESPACE


def applied(cluster: Cluster, manifest: Mapping[str, Any]) -> dict[str, Any]:
    done = cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", f"--field-manager={names.FIELD_MANAGER}", "--validate=strict",
        "-o", "json", "-f", "-", input=json.dumps(manifest),
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("source", INPUTS, ids=lambda path: path.stem)
def test_children_are_taken_and_stay_as_they_are(bare_cluster: Cluster, namespace: str, source: Path) -> None:
    spec = spec_of(source)
    first = tick(world(spec, {}), None, None, NOW)
    manifests = manifests_of(first)
    assert manifests
    served = {(one["kind"], one["metadata"]["name"]): applied(bare_cluster, one) for one in manifests}

    second = tick(world(spec, served, status=first.status), first.memory, None, NOW + 10)
    assert Reason.NAME_CONFLICT not in {one["reason"] for one in second.status["conditions"]}
    assert second.actions == (), "what the server makes of a manifest must not look like a hand edit"
    for manifest in manifests:
        key = (manifest["kind"], manifest["metadata"]["name"])
        version = served[key]["metadata"]["resourceVersion"]
        assert applied(bare_cluster, manifest)["metadata"]["resourceVersion"] == version, "a second apply wrote"


@pytest.mark.parametrize("assigns", [True, False])
def test_pods_are_admitted_where_restricted_is_enforced(bare_cluster: Cluster, namespace: str, assigns: bool) -> None:
    source = next(path for path in INPUTS if path.stem == "tp2")
    outcome = tick(world(spec_of(source), {}, capabilities=Capabilities(assigns_uids=assigns)), None, None, NOW)
    template = next(one for one in manifests_of(outcome) if one["kind"] == "Deployment")["spec"]["template"]
    metadata = {**template["metadata"], "name": f"admitted-{str(assigns).lower()}", "namespace": namespace}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    done = bare_cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", input=json.dumps(pod))
    assert "created" in done.stdout
    assert "Warning" not in done.stderr


def test_an_edit_takes_away_what_the_spec_no_longer_asks_for(bare_cluster: Cluster, namespace: str) -> None:
    spec = replace(spec_of(INPUTS[0]), name="edited")
    more = replace(spec, engine=replace(spec.engine, env=({"name": "EXTRA", "value": "1"},), args=("--seed=1",)))
    served: dict[tuple[str, str], dict[str, Any]] = {}
    for step, wanted in enumerate((more, replace(spec, generation=2))):
        outcome = tick(world(wanted, served), None, None, NOW + step)
        for manifest in manifests_of(outcome):
            served[manifest["kind"], manifest["metadata"]["name"]] = applied(bare_cluster, manifest)
    container = served["Deployment", "edited"]["spec"]["template"]["spec"]["containers"][0]
    assert "EXTRA" not in {variable["name"] for variable in container["env"]}
    assert "--seed=1" not in container["args"]
