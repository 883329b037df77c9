"""How much memory the objects of one namespace may take. Asked by `cache` for everything that it keeps.

Whoever may create ConfigMaps in one namespace must not be able to fill the memory of the operator of all. What is too
large, and what is one too many, is kept as an outline: who it is and whose, but nothing that it says.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.shell.resources import OWNER

KIB, MIB = 2**10, 2**20
SPEC_BYTES = 256 * KIB
"""Most bytes of a SpeculativeDeployment as JSON without its status. Its tick takes the longer the more it says: some
0.3 s at this size."""
CHILD_BYTES = 512 * KIB
"""Most bytes of any other object as JSON."""
LINE_BYTES = 2 * CHILD_BYTES
"""Most bytes of an event of a watch that is parsed: with what is not kept of an object, and in its longest spelling."""
OUTLINES = 1.25
"""Where the objects of a namespace take this multiple of what they may, not even outlines are kept any more."""
OVERSIZE = "oversize"
"""Field of an outline, beside those of Kubernetes: why the object is not kept whole. Its value is a text."""
_VALUE_BYTES = 100
"""Bytes of memory that a value takes beside its text, be it a list or a map."""
_LABELS = ("pod-template-hash", "batch.kubernetes.io/job-name", "job-name", names.LABEL_MANAGED_BY)
_KEPT = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
_MOST_REFERENCES = 8
_LONGEST = 1024


class Sizes:
    """Memory that the kept objects take, by namespace; `most` bytes in each."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._of: dict[str, tuple[str, int]] = {}
        """uid -> namespace and bytes of memory."""
        self._held: Counter[str] = Counter()
        self._refused: set[str] = set()
        """Namespaces with so many outlines that not even those are kept any more."""

    def fit(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Count `body` in place of its former version: itself, its outline where it is too large or its namespace is
        full, or None where the namespace is full of outlines."""
        meta = body["metadata"]
        uid, namespace = meta["uid"], meta["namespace"]
        self.forget(uid)
        memory = memory_of(body)
        why = body.get(OVERSIZE) or (too_large(body) if memory > SPEC_BYTES else "")
        if not why and self._held[namespace] + memory > self.most:
            why = (
                f"the objects of namespace {namespace} take more than {self.most // MIB} MiB of the operator's "
                "memory: delete what is not needed, or move some of its SpeculativeDeployments to another namespace"
            )
        if why:
            body = {**outline(body), OVERSIZE: why}
            memory = memory_of(body)
        if self._held[namespace] + memory > OUTLINES * self.most:
            self._refused.add(namespace)
            return None
        self._of[uid] = namespace, memory
        self._held[namespace] += memory
        return body

    def forget(self, uid: str) -> None:
        """Forget an object that is gone."""
        namespace, memory = self._of.pop(uid, ("", 0))
        self._held[namespace] -= memory
        if self._held[namespace] <= 0:
            del self._held[namespace]
        if self._held[namespace] < self.most:
            self._refused.discard(namespace)

    def is_full(self, namespace: str) -> bool:
        """True where something of the namespace is not even known by name."""
        return namespace in self._refused


def too_large(body: Mapping[str, Any]) -> str:
    """Why an object is not kept whole; empty where it is no larger than it may be."""
    ours = body["kind"] == OWNER.kind
    size = len(_text({name: part for name, part in body.items() if not (ours and name == "status")}))
    return size_told(body, size) if size > (SPEC_BYTES if ours else CHILD_BYTES) else ""


def size_told(body: Mapping[str, Any], size: int) -> str:
    """The sentence that an object of `size` bytes is too large, with its remedy."""
    meta, ours = body["metadata"], body["kind"] == OWNER.kind
    what = "spec and metadata take" if ours else f"{body['kind']} {meta['name']} takes"
    remedy = "move data into a ConfigMap or an image" if ours else "remove what was added to it, or delete it"
    most = (SPEC_BYTES if ours else CHILD_BYTES) // KIB
    return f"{what} {size // KIB} KiB as JSON; the operator reads at most {most} KiB: {remedy}"


def memory_of(body: Mapping[str, Any]) -> int:
    """About the bytes of memory that `body` takes, rather more than less."""
    values = 0
    below: list[Any] = [body]
    while below:
        inner = below.pop()
        values += len(inner)
        below += [one for one in (inner.values() if isinstance(inner, dict) else inner) if isinstance(one, dict | list)]
    return len(_text(body)) + _VALUE_BYTES * values


def outline(body: Mapping[str, Any]) -> dict[str, Any]:
    """Who an object is and whose, of a bounded size; and the status of a SpeculativeDeployment, which is written as a
    whole or not at all."""
    meta = body["metadata"]
    kept = {name: meta[name] for name in _KEPT if name in meta}
    for part in ("labels", "annotations"):
        found = (meta.get(part) or {}).items()
        kept[part] = {
            key: value
            for key, value in found
            if (key in _LABELS or key.partition("/")[0] == names.GROUP) and len(str(value)) <= _LONGEST
        }
    if meta.get("ownerReferences"):
        kept["ownerReferences"] = meta["ownerReferences"][:_MOST_REFERENCES]
    made = {"apiVersion": body.get("apiVersion", ""), "kind": body["kind"], "metadata": kept}
    return {**made, "status": body.get("status") or {}} if body["kind"] == OWNER.kind else made


def _text(body: Mapping[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))
