"""The CustomResourceDefinitions, made from the wire types: the structural schema that Kubernetes asks of a CRD
(nothing but plain, inlined, typed nodes), and the definition around it.

`generate` writes them to crds/, the chart and the manifests carry them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from speculative_operator.api.rules import ROOT_RULES
from speculative_operator.api.status import Status
from speculative_operator.api.training import NAME_RULES, TrainingSpec, TrainingStatus
from speculative_operator.api.v1alpha1 import Spec
from speculative_operator.api.wire import Rule, with_rules
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
TRAINING_COLUMNS = [
    _column("Stage", ".status.stage", "How far the training is"),
    _column("Method", ".spec.method", "How tokens are drafted"),
    _column("Progress", ".status.progress", "Share of the stage that is done"),
    _column("Left", ".status.timeLeft", "Time until the end of the stage"),
    _column("Loss", ".status.loss", "Loss at the last report"),
    _column("Expected", ".status.expectedAcceptance", "Acceptance length on held-out data"),
    _column("Cost", ".status.cost", "Cost of the accelerators so far"),
    _column("Reason", '.status.conditions[?(@.type=="Trained")].reason', "Why it is at this stage"),
    _column("Age", ".metadata.creationTimestamp", "Time since creation", type="date"),
    _column("Verifier", ".spec.verifier.model", "What the speculator is trained for", wide=True),
    _column("Output", ".spec.output", "Where checkpoints and result lie", wide=True),
]


def schema() -> dict[str, Any]:
    """Structural schema of one version of a SpeculativeDeployment."""
    what = "A model served with speculative decoding: a verifier, its speculator, and how K is chosen."
    return _schema(what, Spec, Status, ROOT_RULES)


def training_schema() -> dict[str, Any]:
    """Structural schema of one version of a SpeculatorTraining."""
    what = "A speculator that is trained for a verifier on prompts of your own, by Jobs (docs/training.md)."
    return _schema(what, TrainingSpec, TrainingStatus, NAME_RULES)


def _schema(what: str, spec: type[BaseModel], status: type[BaseModel], root_rules: tuple[Rule, ...]) -> dict[str, Any]:
    return {
        "description": what,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
            "spec": structural(spec),
            "status": structural(status),
        },
        **with_rules(*root_rules),
    }


def crd() -> dict[str, Any]:
    """The whole definition of SpeculativeDeployment as plain JSON."""
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "additionalPrinterColumns": COLUMNS,
        "selectableFields": [{"jsonPath": f".{path}"} for path in SELECTABLE],
        "subresources": {"status": {}, "scale": scale},
        "schema": {"openAPIV3Schema": schema()},
    }
    return _definition(names.KIND, names.PLURAL, SINGULAR, SHORT_NAMES, version)


def training_crd() -> dict[str, Any]:
    """The whole definition of SpeculatorTraining as plain JSON."""
    version = {
        "additionalPrinterColumns": TRAINING_COLUMNS,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": training_schema()},
    }
    return _definition(names.TRAINING_KIND, names.TRAINING_PLURAL, "speculatortraining", ["spectrain"], version)


def _definition(
    kind: str, plural: str, singular: str, short_names: list[str], version: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{names.GROUP}",
            "labels": {"app.kubernetes.io/name": names.OPERATOR, "app.kubernetes.io/part-of": names.OPERATOR},
        },
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": singular,
                "shortNames": short_names,
                "categories": CATEGORIES,
            },
            "versions": [{"name": names.VERSION, "served": True, "storage": True, **version}],
        },
    }
