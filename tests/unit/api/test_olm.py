"""The OLM bundle: what OLM itself demands of one, and that it is the operator that chart and manifests install.

OLM was not run. tests/contract/test_olm.py applies the ClusterServiceVersion to OLM's own definition.
"""

from __future__ import annotations

import base64
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import yaml

from generate import rbac
from speculative_operator.api.convert import to_domain
from speculative_operator.domain import names
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.images import IMAGES, image_of
from speculative_operator.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parents[3]
BUNDLE = ROOT / "manifests" / "olm"
TAKEN = {"ClusterServiceVersion", "CustomResourceDefinition", "Service", "ClusterRole", "NetworkPolicy"}
"""Of the kinds that OLM takes from a bundle those that this one has."""


def manifests() -> dict[str, dict[str, Any]]:
    """File -> object."""
    return {path.name: yaml.safe_load(path.read_text()) for path in sorted((BUNDLE / "manifests").iterdir())}


def version() -> dict[str, Any]:
    (found,) = [item for item in manifests().values() if item["kind"] == "ClusterServiceVersion"]
    return found


def installed(kind: str, name: str = names.OPERATOR) -> dict[str, Any]:
    objects = yaml.safe_load_all((ROOT / "manifests" / "install.yaml").read_text())
    (found,) = [item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return dict(found)


def test_it_holds_what_olm_takes_and_no_namespace() -> None:
    objects = manifests().values()
    assert {item["kind"] for item in objects} == TAKEN
    assert [item["metadata"]["name"] for item in objects if "namespace" in item["metadata"]] == []


def test_metadata_and_image_say_the_same() -> None:
    annotations = yaml.safe_load((BUNDLE / "metadata" / "annotations.yaml").read_text())["annotations"]
    labels = dict(re.findall(r"^LABEL (\S+?)=(\S+)$", (BUNDLE / "bundle.Dockerfile").read_text(), re.MULTILINE))
    assert labels == annotations
    prefix = "operators.operatorframework.io.bundle"
    assert annotations[f"{prefix}.package.v1"] == names.OPERATOR
    assert annotations[f"{prefix}.channel.default.v1"] in annotations[f"{prefix}.channels.v1"].split(",")
    for part in ("manifests", "metadata"):
        assert (BUNDLE / annotations[f"{prefix}.{part}.v1"]).is_dir()


def test_it_owns_the_definitions_beside_it() -> None:
    owned = {one["name"]: one for one in version()["spec"]["customresourcedefinitions"]["owned"]}
    beside = [item for item in manifests().values() if item["kind"] == "CustomResourceDefinition"]
    assert owned.keys() == {one["metadata"]["name"] for one in beside}
    assert {one["kind"] for one in owned.values()} == {names.KIND, names.TRAINING_KIND}
    for definition in beside:
        told = owned[definition["metadata"]["name"]]
        assert (told["kind"], told["version"]) == (definition["spec"]["names"]["kind"], names.VERSION)
        assert definition["spec"] == installed("CustomResourceDefinition", told["name"])["spec"]


def test_it_is_the_same_operator_with_the_same_permissions() -> None:
    strategy = version()["spec"]["install"]["spec"]
    (wide,), (own,), (deployment,) = (strategy[key] for key in ("clusterPermissions", "permissions", "deployments"))
    leader = installed("Role", f"{names.OPERATOR}-leader")["rules"]
    assert sorted(map(str, wide["rules"] + own["rules"])) == sorted(
        map(str, installed("ClusterRole")["rules"] + leader)
    )
    assert wide["rules"] == rbac.rules(rbac.CLUSTER), (
        "all else is of namespaces: OLM makes Roles of it where they suffice"
    )
    pod, ours = deployment["spec"]["template"]["spec"], installed("Deployment")["spec"]["template"]["spec"]
    assert {wide["serviceAccountName"], own["serviceAccountName"]} == {pod["serviceAccountName"]}
    entries = ({one["name"]: one for one in spec["containers"][0].pop("env")} for spec in (pod, ours))
    env, our_env = entries
    assert pod == ours
    source = env.pop("SPECULATIVE_NAMESPACES")["valueFrom"]["fieldRef"]["fieldPath"]
    assert source == "metadata.annotations['olm.targetNamespaces']"
    our_env.pop("SPECULATIVE_NAMESPACES")
    assert env == our_env


def test_no_user_id_is_asked_for_and_the_security_context_is_restricted() -> None:
    """restricted-v2 of OpenShift assigns the ids itself."""
    (deployment,) = version()["spec"]["install"]["spec"]["deployments"]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    context = pod["containers"][0]["securityContext"]
    assert (context["allowPrivilegeEscalation"], context["capabilities"]) == (False, {"drop": ["ALL"]})


def test_every_image_is_listed_for_mirrors() -> None:
    csv = version()
    used = set(re.findall(r"\bspeculative-operator:[\w.]+", json.dumps(csv)))
    listed = {one["name"]: one["image"] for one in csv["spec"]["relatedImages"]}
    assert used == {listed.pop("operator")} == {csv["metadata"]["annotations"]["containerImage"]}
    assert len(listed) == len({(row.engine, row.vendor) for row in IMAGES})
    assert listed["vllm-nvidia"] == f"docker.io/{image_of(example())}", "what an object gets that names no release"
    assert [image for image in listed.values() if "." not in image.partition("/")[0] or "{" in image] == []


def test_it_has_what_a_catalogue_shows() -> None:
    spec = version()["spec"]
    (icon,) = spec["icon"]
    assert icon["mediatype"] == "image/svg+xml"
    assert ET.fromstring(base64.b64decode(icon["base64data"])).tag.endswith("svg")
    assert all(one["name"] and "email" not in one for one in spec["maintainers"]), "no address that nobody reads"


def subscription() -> dict[str, Any]:
    """The one that the description shows."""
    (block,) = re.findall(r"```yaml\n(.*?)```", version()["spec"]["description"], re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(block)
    return found


def test_the_settings_that_its_description_shows_exist_and_their_files_are_mounted() -> None:
    shown = subscription()["spec"]
    annotations = yaml.safe_load((BUNDLE / "metadata" / "annotations.yaml").read_text())["annotations"]
    assert shown["channel"] == annotations["operators.operatorframework.io.bundle.channel.default.v1"]
    assert shown["name"] == names.OPERATOR
    env = {one["name"].removeprefix(PREFIX).lower(): one["value"] for one in shown["config"]["env"]}
    assert env.keys() <= Settings.model_fields.keys()
    assert {"engine_registry", "prometheus_token_file"} <= env.keys()
    assert Settings(**env).engine_registry
    mounts = {one["name"]: one["mountPath"] for one in shown["config"]["volumeMounts"]}
    assert mounts.keys() == {one["name"] for one in shown["config"]["volumes"]}
    assert {str(Path(path).parent) for path in env.values() if path.startswith("/")} == set(mounts.values())


def example() -> DeploymentSpec:
    """The object that it shows, as the operator would read it."""
    (shown,) = json.loads(version()["metadata"]["annotations"]["alm-examples"])
    return to_domain({**shown, "metadata": {**shown["metadata"], "namespace": "models", "uid": "u", "generation": 1}})


def test_its_example_is_a_valid_object() -> None:
    assert example().name
