"""`target: InferenceService` against KServe's own definitions on a real API server: what the operator applies is stored
as it was written, and so is every object of docs/openshift-ai.md."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import kserve
from tests.contract.conftest import ROOT
from tests.golden.case import whole
from tests.openshift_ai import HELM, OBJECTS, VALUES, install_routes, shown

from devcluster import Cluster
from speculative_operator.api.convert import to_domain
from speculative_operator.domain.actions import ApplyChild
from speculative_operator.reconcile.observed.drift import first_difference
from speculative_operator.reconcile.tick import World, tick
from speculative_operator.render import Capabilities
from speculative_operator.render.inference_service import RUNTIME, SERVICE

pytestmark = pytest.mark.cluster

EXAMPLES = {
    "qwen3-8b-assist": "inference-service.yaml",
    "qwen3-8b-custom-runtime": "custom-runtime.yaml",
}
GOLDEN = ("inference-service", "inference-service-platform")
MADE = {
    f"{one['kind']}-{one['metadata']['name']}": one
    for source in GOLDEN
    for one in whole(ROOT / "tests" / "golden" / "inputs" / f"{source}.yaml").children()
    if one["kind"] in (RUNTIME, SERVICE)
}


@pytest.fixture(scope="module")
def platform(bare_cluster: Cluster, installed: dict[str, Any]) -> Cluster:
    """Definitions of KServe and of a Route, and the namespaces that objects name: those of the page as it has them."""
    kserve.install(bare_cluster)
    install_routes(bare_cluster)
    namespaces = [one for one in OBJECTS if one["kind"] == "Namespace"]
    assert {one["metadata"]["name"] for one in namespaces} == {"assist", "speculative-system"}
    for one in (*namespaces, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "models"}}):
        applied(bare_cluster, one)
    return bare_cluster


def applied(cluster: Cluster, body: dict[str, Any]) -> dict[str, Any]:
    """What the API server keeps of an object. Strictly, so that a field that the definition lacks is refused instead of
    dropped."""
    words = ("apply", "--server-side", "--validate=strict", "-o", "json", "-f", "-")
    found: dict[str, Any] = json.loads(cluster.kubectl(*words, input=json.dumps(body)).stdout)
    return found


def test_the_policy_of_the_page_closes_the_ports_of_the_engine_to_all_but_prometheus() -> None:
    policy = shown("NetworkPolicy", "qwen3-8b-assist")["spec"]
    assert policy["podSelector"]["matchLabels"] == {"serving.kserve.io/inferenceservice": "qwen3-8b-assist"}
    open_to = {port["port"]: "from" in rule for rule in policy["ingress"] for port in rule["ports"]}
    assert open_to == {8443: False, 8080: True, 8001: True}


def test_a_way_encrypted_up_to_the_pod_leads_there(platform: Cluster) -> None:
    """Route, Service, its certificate, the container that has it, and the port of the engine behind."""
    name = "qwen3-8b-tls"
    body = shown("SpeculativeDeployment", "qwen3-8b-encrypted")
    spec = to_domain({**body, "metadata": {**body["metadata"], "uid": "u", "generation": 1}})
    world = World(spec=spec, status={}, children={}, pods=(), capabilities=Capabilities(assigns_uids=True))
    manifests = [one.manifest for one in tick(world, None, None, 1.8e9).actions if isinstance(one, ApplyChild)]
    (deployment,) = (one for one in manifests if one["kind"] == "Deployment")
    template = applied(platform, {**deployment, "metadata": {**deployment["metadata"], "ownerReferences": []}})["spec"][
        "template"
    ]
    route, service, config = (shown(kind, name) for kind in ("Route", "Service", "ConfigMap"))
    assert route["spec"]["to"]["name"] == service["metadata"]["name"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    (proxy,) = template["spec"]["initContainers"]
    (port,) = (one for one in service["spec"]["ports"] if one["name"] == route["spec"]["port"]["targetPort"])
    assert {port["targetPort"]} == {one["containerPort"] for one in proxy["ports"]}
    assert f"listen {port['targetPort']} ssl" in config["data"]["nginx.conf"]
    asked = service["metadata"]["annotations"]["service.beta.openshift.io/serving-cert-secret-name"]
    assert {"secretName": asked, "defaultMode": 0o644} in [one.get("secret") for one in template["spec"]["volumes"]]
    assert f"proxy_pass http://127.0.0.1:{spec.port};" in config["data"]["nginx.conf"]
    assert shown("NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"] == service["spec"]["selector"]


@pytest.mark.parametrize("body", OBJECTS, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_every_object_of_the_page_is_applied(platform: Cluster, body: dict[str, Any]) -> None:
    assert first_difference(body, applied(platform, body)) == ""


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_those_of_the_page(name: str) -> None:
    """But for the project, and the profile that not every cluster has."""
    spec = shown("SpeculativeDeployment", name)["spec"]
    spec["inferenceService"].pop("hardwareProfile", None)
    assert yaml.safe_load((ROOT / "examples" / EXAMPLES[name]).read_text())["spec"] == spec


def test_the_chart_takes_the_values_of_the_page(platform: Cluster, tmp_path: Path) -> None:
    """By the command of the page, which installs nothing here."""
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(VALUES))
    words = HELM.replace("\\\n", " ").replace("charts/", f"{ROOT}/charts/")
    _, *arguments = shlex.split(words.replace("upgrade --install", "template").replace("-f ", f"-f {tmp_path}/"))
    made = [one for one in yaml.safe_load_all(platform.helm(*arguments).stdout) if one]
    (operator,) = (one for one in made if one["kind"] == "Deployment")
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert env["SPECULATIVE_PROMETHEUS_URL"] == VALUES["prometheus"]["url"]
    volumes = str(operator["spec"]["template"]["spec"]["volumes"])
    assert "speculative-metrics-token" in volumes
    assert "openshift-service-ca.crt" in volumes
    assert "PodMonitor" in {one["kind"] for one in made}


@pytest.mark.parametrize("name", MADE)
def test_what_is_applied_is_stored_as_written(platform: Cluster, name: str) -> None:
    assert first_difference(MADE[name], applied(platform, MADE[name])) == ""
