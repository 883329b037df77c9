"""Objects of a small scene: one SpeculativeDeployment and what belongs to it, as the API server would have them."""

from __future__ import annotations

from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild
from speculative_operator.domain.reasons import Reason
from speculative_operator.shell.resources import CHILD_BY_KIND

Json = dict[str, Any]
KEY = ("ns", "gemma")
LABELS = {names.LABEL_MANAGED_BY: names.OPERATOR, names.LABEL_DEPLOYMENT: "gemma"}


def owner(generation: int = 1, name: str = "gemma", **annotations: str) -> Json:
    """A valid object."""
    meta: Json = {"name": name, "namespace": "ns", "generation": generation}
    if annotations:
        meta["annotations"] = annotations
    spec: Json = {
        "verifier": {"model": "hf://Qwen/Qwen3-8B"},
        "speculator": {"method": "draft_model", "model": "hf://Qwen/Qwen3-0.6B"},
        "replicas": generation,
    }
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": spec}


def pod(name: str = "gemma-1", ready: bool = True) -> Json:
    status = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    meta = {
        "name": name,
        "namespace": "ns",
        "labels": {**LABELS, "pod-template-hash": "5d"},
        "ownerReferences": [replica_set()],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": status}


def replica_set(name: str = "gemma-5d") -> Json:
    """A reference to the ReplicaSet that controls a pod."""
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"uid of {name}", "controller": True}


def manifest(of: Json, kind: str = "Service", **spec: Any) -> Json:
    """A child of the stored object `of`."""
    meta = of["metadata"]
    reference = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": CHILD_BY_KIND[kind].api_version,
        "kind": kind,
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": {**LABELS, names.LABEL_DEPLOYMENT: meta["name"]},
            "ownerReferences": [reference],
        },
        "spec": spec,
    }


def applying(of: Json, kind: str = "Service", **spec: Any) -> ApplyChild:
    return ApplyChild(manifest(of, kind, **spec), Reason.CREATED, "missing")
