"""manifests/install.yaml: what the chart renders, as one file that needs no Helm.

The chart is the only description of how the operator is installed; this takes Helm's marks off its output and adds the
namespace. Called by `generate`.
"""

from __future__ import annotations

from typing import Any

import yaml

from speculative_operator import __version__

NAMESPACE = "speculative-system"
HEADER = """# The operator with everything that it needs, made from the chart. Nobody publishes the image that it
# names: put yours, best by digest, in both places (`image`, SPECULATIVE_JOB_IMAGE), or nodes fail with ErrImagePull:
#   sed -i 's|speculative-operator:{version}|REGISTRY/speculative-operator@sha256:...|' manifests/install.yaml
# Then apply it server-side:
#   kubectl apply --server-side -f manifests/
# Generated: helm template speculative-operator charts/speculative-operator --namespace {namespace} \\
#              --set image.repository=speculative-operator | python -m generate --install -
"""
_MARKS = ("helm.sh/chart", "app.kubernetes.io/managed-by", "helm.sh/resource-policy")
_FIRST = ("Namespace", "CustomResourceDefinition", "ServiceAccount")


class NoChartError(ValueError):
    """The text is not what the chart renders."""


def install(rendered: str) -> str:
    """The file for what `helm template` printed. Raises NoChartError."""
    return HEADER.format(namespace=NAMESPACE, version=__version__) + "".join(
        f"---\n{dump(item)}" for item in installed(rendered)
    )


def installed(rendered: str) -> list[dict[str, Any]]:
    """The objects in the order in which they are created. Raises NoChartError."""
    objects = [document for document in yaml.safe_load_all(rendered) if document]
    if not objects or not all(isinstance(item, dict) and "kind" in item for item in objects):
        raise NoChartError("no Kubernetes objects in it; pipe the output of `helm template` of the chart")
    objects = [_namespace(), *(_drop_marks(item) for item in objects if not _of_helm(item))]
    objects.sort(key=lambda item: _FIRST.index(item["kind"]) if item["kind"] in _FIRST else len(_FIRST))
    return objects


def dump(item: Any) -> str:
    """YAML as all generated files have it."""
    text: str = yaml.safe_dump(item, sort_keys=False, width=120, allow_unicode=True)
    return text


def _namespace() -> dict[str, Any]:
    level = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"app.kubernetes.io/part-of": "speculative-operator", **level}},
    }


def _of_helm(item: dict[str, Any]) -> bool:
    """True for what Helm alone creates, and only when asked to: hooks."""
    return "helm.sh/hook" in (item["metadata"].get("annotations") or {})


def _drop_marks(node: Any) -> Any:
    """Without Helm's labels and annotations, and without maps that held nothing else."""
    if isinstance(node, list):
        return [_drop_marks(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {}
    for key, value in node.items():
        if key in _MARKS:
            continue
        cleaned = _drop_marks(value)
        if key in ("labels", "annotations") and value and not cleaned:
            continue
        kept[key] = cleaned
    return kept
