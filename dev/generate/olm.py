"""manifests/olm/: the bundle by which the Operator Lifecycle Manager installs the operator, as on OpenShift.

Made from what the chart renders, like manifests/install.yaml: one description of the operator, three ways to install
it. Called by `generate`. OLM takes no ValidatingAdmissionPolicy and no Namespace, so these are left out.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from generate import rbac
from generate.manifests import NoChartError, dump, installed
from speculative_operator import __version__
from speculative_operator.domain import names
from speculative_operator.domain.spec import DEFAULT_VERSIONS
from speculative_operator.engines.images import IMAGES, Image
from speculative_operator.engines.matrix.rows import parse_version

FOLDER = "manifests/olm"
PACKAGE = names.OPERATOR
CHANNEL = "alpha"
OLDEST_KUBERNETES = "1.30.0"
_BESIDE = ("Service", "NetworkPolicy")
"""Kinds that lie in the bundle as they are; what the CSV holds itself is not among them."""
_MONITORING = ("openshift-monitoring", "openshift-user-workload-monitoring")
"""Namespaces of OpenShift's Prometheus servers: which one scrapes the operator is not known when the bundle is made."""
_AGGREGATED = ("-view", "-edit")
_HEADER = """# A bundle for the Operator Lifecycle Manager, made from the chart by `make generate`. Nobody publishes the
# image that it names; `make bundle ARGS="--registry REGISTRY/"` writes one with yours into build/release/olm.
"""
_MODES = ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")


def bundle(rendered: str, definitions: Sequence[Mapping[str, Any]], root: Path) -> dict[str, str]:
    """Path to text of every file of the bundle, for what `helm template` printed. `root` has example, icon and
    description.

    Raises NoChartError.
    """
    objects = installed(rendered)
    files = {
        f"manifests/{PACKAGE}.clusterserviceversion.yaml": _version(objects, definitions, root),
        **{f"manifests/{one['metadata']['name']}.yaml": one for one in definitions},
        "metadata/annotations.yaml": {"annotations": dict(_labels())},
    }
    for item in objects:
        kind, name = item["kind"], item["metadata"]["name"]
        if kind in _BESIDE or (kind == "ClusterRole" and name.endswith(_AGGREGATED)):
            files[f"manifests/{name}.{kind.lower()}.yaml"] = _admitting(_without_namespace(item))
    texts = {f"{FOLDER}/{path}": _HEADER + dump(content) for path, content in files.items()}
    return {**texts, f"{FOLDER}/bundle.Dockerfile": _dockerfile()}


def _labels() -> Sequence[tuple[str, str]]:
    prefix = "operators.operatorframework.io.bundle"
    return (
        (f"{prefix}.mediatype.v1", "registry+v1"),
        (f"{prefix}.manifests.v1", "manifests/"),
        (f"{prefix}.metadata.v1", "metadata/"),
        (f"{prefix}.package.v1", PACKAGE),
        (f"{prefix}.channels.v1", CHANNEL),
        (f"{prefix}.channel.default.v1", CHANNEL),
        ("com.redhat.openshift.versions", "v4.17"),  # the first with Kubernetes 1.30
    )


def _dockerfile() -> str:
    labels = "".join(f"LABEL {name}={value}\n" for name, value in _labels())
    return f"{_HEADER}FROM scratch\n\n{labels}\nCOPY manifests /manifests/\nCOPY metadata /metadata/\n"


def _without_namespace(item: Mapping[str, Any]) -> dict[str, Any]:
    meta = {key: value for key, value in item["metadata"].items() if key != "namespace"}
    return {**item, "metadata": meta}


def _admitting(item: dict[str, Any]) -> dict[str, Any]:
    """A NetworkPolicy that lets in OpenShift's Prometheus servers, too; anything else as it is."""
    if item["kind"] == "NetworkPolicy":
        item = copy.deepcopy(item)
        for namespace in _MONITORING:
            labels = {"kubernetes.io/metadata.name": namespace}
            item["spec"]["ingress"][0]["from"].append({"namespaceSelector": {"matchLabels": labels}})
    return item


def _version(
    objects: Sequence[Mapping[str, Any]], definitions: Sequence[Mapping[str, Any]], root: Path
) -> dict[str, Any]:
    """The ClusterServiceVersion. OperatorHub asks for an e-mail address of maintainers, which a publisher adds."""
    example = yaml.safe_load((root / "examples" / "speculative-deployment.yaml").read_text(encoding="utf-8"))
    deployment = find_object(objects, "Deployment", PACKAGE)
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{PACKAGE}.v{__version__}",
            "annotations": {
                "alm-examples": json.dumps([example], indent=2),
                "capabilities": "Seamless Upgrades",
                "categories": "AI/Machine Learning",
                "containerImage": image,
                "description": "Serves models with speculative decoding and tunes it to the load",
                "operatorframework.io/suggested-namespace": "speculative-system",
            },
        },
        "spec": {
            "displayName": "Speculative Operator",
            "description": (root / "dev" / "generate" / "olm.md").read_text(encoding="utf-8"),
            "version": __version__,
            "maturity": "alpha",
            "minKubeVersion": OLDEST_KUBERNETES,
            "keywords": ["inference", "llm", "speculative-decoding", "vllm"],
            "provider": {"name": PACKAGE},
            "maintainers": [{"name": f"{PACKAGE} maintainers"}],
            "icon": [_icon(root)],
            "installModes": [{"type": mode, "supported": True} for mode in _MODES],
            "customresourcedefinitions": {"owned": [_owned(one) for one in definitions]},
            "relatedImages": [{"name": "operator", "image": image}, *engine_images()],
            "install": {"strategy": "deployment", "spec": _strategy(objects, deployment)},
        },
    }


def _icon(root: Path) -> dict[str, str]:
    picture = (root / "docs" / "images" / "icon.svg").read_bytes()
    return {"base64data": base64.b64encode(picture).decode(), "mediatype": "image/svg+xml"}


def engine_images() -> list[dict[str, str]]:
    """The public images of engines, of the release that objects get which name none; else of the first one that has an
    image. What mirrors is told of them are whole names, with their registry."""
    last = {(row.engine, row.vendor): row for row in IMAGES}
    found = []
    for (engine, vendor), row in last.items():
        reference = row.reference.format(version=_release(row))
        host, _, _ = reference.partition("/")
        whole = reference if "." in host else f"docker.io/{reference}"
        found.append({"name": f"{engine}-{vendor}".lower(), "image": whole})
    return found


def _release(row: Image) -> str:
    default = DEFAULT_VERSIONS[row.engine]
    version = parse_version(default)
    covered = version is not None and row.holds(version)
    return default if covered else ".".join(map(str, row.since))


_TOLD = {
    names.KIND: ("Speculative Deployment", "A model, its speculator, and how to speculate"),
    names.TRAINING_KIND: ("Speculator Training", "A speculator that is trained for a verifier, by Jobs"),
}


def _owned(definition: Mapping[str, Any]) -> dict[str, str]:
    (version,) = definition["spec"]["versions"]
    return {
        "name": definition["metadata"]["name"],
        "version": version["name"],
        "kind": definition["spec"]["names"]["kind"],
        **dict(zip(("displayName", "description"), _TOLD[definition["spec"]["names"]["kind"]], strict=True)),
    }


def _strategy(objects: Sequence[Mapping[str, Any]], deployment: Mapping[str, Any]) -> dict[str, Any]:
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    # OLM makes Roles of `permissions` in each namespace of the OperatorGroup, and ClusterRoles where that has all.
    found = find_object(objects, "ClusterRole", PACKAGE)["rules"]
    wide = rbac.rules(rbac.CLUSTER)
    own = [rule for rule in found if rule not in wide] + find_object(objects, "Role", f"{PACKAGE}-leader")["rules"]
    spec = copy.deepcopy(dict(deployment["spec"]))
    for entry in spec["template"]["spec"]["containers"][0]["env"]:
        if entry["name"] == "SPECULATIVE_NAMESPACES":
            # OLM writes the namespaces of the OperatorGroup there; none means all.
            del entry["value"]
            entry["valueFrom"] = {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}}
    named = {"name": PACKAGE, "label": deployment["metadata"]["labels"], "spec": spec}
    return {
        "clusterPermissions": [{"serviceAccountName": account, "rules": wide}],
        "permissions": [{"serviceAccountName": account, "rules": own}],
        "deployments": [named],
    }


def find_object(objects: Sequence[Mapping[str, Any]], kind: str, name: str) -> Mapping[str, Any]:
    found = next((item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name)), None)
    if found is None:
        raise NoChartError(f"no {kind} {name} in it; pipe the output of `helm template {PACKAGE}` of the chart")
    return found
