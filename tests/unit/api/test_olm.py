"""The OLM bundle: what OLM itself demands of one, and that it is the operator that chart and manifests install.

`operator-sdk bundle validate` and OLM were not run; the form of the ClusterServiceVersion was held once against OLM's
own schema.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from speculative_operator.api.convert import to_domain
from speculative_operator.domain import names

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


def test_it_owns_the_definition_beside_it() -> None:
    (owned,) = version()["spec"]["customresourcedefinitions"]["owned"]
    definition = next(item for item in manifests().values() if item["kind"] == "CustomResourceDefinition")
    assert owned["name"] == definition["metadata"]["name"]
    assert (owned["kind"], owned["version"]) == (names.KIND, definition["spec"]["versions"][0]["name"])
    assert definition["spec"] == installed("CustomResourceDefinition", owned["name"])["spec"]


def test_it_is_the_same_operator_with_the_same_permissions() -> None:
    strategy = version()["spec"]["install"]["spec"]
    (wide,), (own,), (deployment,) = (strategy[key] for key in ("clusterPermissions", "permissions", "deployments"))
    assert wide["rules"] == installed("ClusterRole")["rules"]
    assert own["rules"] == installed("Role", f"{names.OPERATOR}-leader")["rules"]
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
    assert used == {one["image"] for one in csv["spec"]["relatedImages"]}
    assert csv["metadata"]["annotations"]["containerImage"] in used


def test_its_example_is_a_valid_object() -> None:
    (example,) = json.loads(version()["metadata"]["annotations"]["alm-examples"])
    meta = {**example["metadata"], "namespace": "models", "uid": "u", "generation": 1}
    assert to_domain({**example, "metadata": meta}).name == example["metadata"]["name"]
