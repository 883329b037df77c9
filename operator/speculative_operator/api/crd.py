"""The CustomResourceDefinition, made from the wire types: the structural schema that Kubernetes asks of a CRD
(nothing but plain, inlined, typed nodes), and the definition around it.

`generate` writes it to crds/, the chart and the manifests carry it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from speculative_operator.api.rules import ROOT_RULES
from speculative_operator.api.status import Status
from speculative_operator.api.v1alpha1 import Spec
from speculative_operator.api.wire import with_rules
from speculative_operator.domain import names

DROPPED = ("title", "additionalProperties", "$defs", "propertyNames")
ORDER = ("description", "type", "format", "enum", "default")


def structural(model: type[BaseModel]) -> dict[str, Any]:
    """Structural schema of a wire type."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _node(schema, schema.get("$defs", {}))


def _node(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    schema = _plain(schema, definitions)
    out = {key: value for key, value in schema.items() if key not in DROPPED}
    if "description" in out:
        out["description"] = " ".join(out["description"].split())
    if out.get("default", ...) in (None, [], "", ()):
        del out["default"]
    if "properties" in out:
        out["properties"] = {k: _node(v, definitions) for k, v in out["properties"].items()}
    if "items" in out:
        out["items"] = _node(out["items"], definitions)
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping) and not out.get("x-kubernetes-preserve-unknown-fields"):
        out["additionalProperties"] = _node(values, definitions)
    return {key: out[key] for key in (*(k for k in ORDER if k in out), *(k for k in out if k not in ORDER))}


def _plain(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The node without references and without the alternative null; keys beside a reference win over its target's.
    Raises ValueError where it may be several things, which a CRD cannot say."""
    out = dict(schema)
    while "$ref" in out or ("anyOf" in out and not out.get("x-kubernetes-int-or-string")):
        if "$ref" in out:
            target = definitions[out.pop("$ref").rpartition("/")[2]]
        else:
            (target,) = (option for option in out.pop("anyOf") if option.get("type") != "null")
        out = {**target, **out}
    return out


SINGULAR = "speculativedeployment"
SHORT_NAMES = ["specdep"]
CATEGORIES = ["all", "inference"]
NAME = f"{names.PLURAL}.{names.GROUP}"

SELECTABLE = (
    "spec.verifier.model",
    "spec.speculator.method",
    "spec.speculator.model",
    "spec.speculation.mode",
    "spec.engine.type",
    "spec.target",
)


def _column(name: str, path: str, description: str, *, type: str = "string", wide: bool = False) -> dict[str, Any]:
    column = {"name": name, "type": type, "jsonPath": path, "description": description}
    return {**column, "priority": 1} if wide else column


COLUMNS = [
    _column("Ready", ".status.ready", "Ready pods of those wanted"),
    _column("Mode", ".status.mode", "Who chooses K; Paused: nobody"),
    _column("Method", ".status.speculation.method", "How tokens are drafted"),
    _column("K", ".status.speculation.k", "Tokens drafted per step at the current load"),
    _column("Accept", ".status.speculation.acceptanceRate", "Share of drafted tokens that the verifier accepts"),
    _column("Gain", ".status.speculation.gain", "Tokens per second over pods without a speculator; ~: estimated"),
    _column("State", ".status.speculation.state", "State of speculation"),
    _column("Age", ".metadata.creationTimestamp", "Time since creation", type="date"),
    _column("TPOT", ".status.speculation.tpot", "Mean time per output token", wide=True),
    _column("Cost/1k", ".status.speculation.costPer1kTokens", "Accelerator cost of 1000 output tokens", wide=True),
    _column("Weights", ".status.weights.text", "Weights in the cache, or how far they are", wide=True),
    _column("Reason", '.status.conditions[?(@.type=="Ready")].reason', "Why it is ready or not", wide=True),
    _column("Metrics", '.status.conditions[?(@.type=="MetricsAvailable")].reason', "Whether figures come", wide=True),
    _column("Warning", ".status.warnings[0].reason", "The first warning of the status", wide=True),
    _column("Seen", ".status.speculation.observedAt", "Age of the figures", type="date", wide=True),
]


def schema() -> dict[str, Any]:
    """Structural schema of one version."""
    return {
        "description": "A model served with speculative decoding: a verifier, its speculator, and how K is chosen.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
            "spec": structural(Spec),
            "status": structural(Status),
        },
        **with_rules(*ROOT_RULES),
    }


def crd() -> dict[str, Any]:
    """The whole definition as plain JSON."""
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": COLUMNS,
        "selectableFields": [{"jsonPath": f".{path}"} for path in SELECTABLE],
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "schema": {"openAPIV3Schema": schema()},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": NAME,
            "labels": {"app.kubernetes.io/name": names.OPERATOR, "app.kubernetes.io/part-of": names.OPERATOR},
        },
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": SINGULAR,
                "shortNames": SHORT_NAMES,
                "categories": CATEGORIES,
            },
            "versions": [version],
        },
    }
