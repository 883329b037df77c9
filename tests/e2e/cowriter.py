"""Writers beside the operator that never stop: labels and annotations on the objects, their children and their pods,
and the status of what controllers report on. Platforms' webhooks and controllers, GitOps tools and gateways do so.

What is filled in at admission is put in by the stand-ins for controllers (tests/kserve.py, tests/kserve_llm.py).
"""

from __future__ import annotations

import json
from collections import Counter
from threading import Event
from typing import Any
from urllib.parse import urlencode

from kubernetes import client

from speculative_operator.domain import names
from speculative_operator.shell.resources import CHILD_SELECTOR, CHILDREN, INFERENCE_SERVICE, OWNER, POD, Resource

Json = dict[str, Any]
MARK = "platform.example.com/seen"
UNSHARED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation of an InferenceService that KServe does not give to pods: another one would replace them."""

UNLABELLED = (INFERENCE_SERVICE, POD)
"""KServe gives such labels to pods, too; and labels of pods name their series in Prometheus: with each another one
begins."""


def status_of(kind: str, count: int) -> Json | None:
    """What a controller reports in passing; None where the controllers of the cluster do it themselves."""
    if kind in ("InferenceService", "LLMInferenceService"):
        return {"annotations": {MARK: str(count)}}
    if kind == "LeaderWorkerSet":
        return {"hpaPodSelector": f"count={count}"}
    if kind == "HTTPRoute":
        moment = "2026-01-01T00:00:00Z"
        accepted = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": str(count)}
        parent = {"parentRef": {"name": "public"}, "controllerName": "example.com/gateway"}
        return {"parents": [{**parent, "conditions": [{**accepted, "lastTransitionTime": moment}]}]}
    return None


class CoWriter:
    """The writers at work in one namespace; `written` counts their writes by kind, `taken_away` what was missing of
    what they had written."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._count = 0
        self._marked: set[str] = set()
        self.written: Counter[str] = Counter()
        self.taken_away: list[str] = []

    def run(self, stop: Event) -> None:
        """Write to everything again and again."""
        while not stop.wait(1.0):
            self._count += 1
            for resource in (OWNER, *CHILDREN, POD):
                for body in self._listed(resource):
                    self._write(resource, body)

    def _write(self, resource: Resource, body: Json) -> None:
        meta, count = body["metadata"], str(self._count)
        annotation = UNSHARED if resource is INFERENCE_SERVICE else MARK
        metadata: Json = {"annotations": {annotation: count}}
        if resource not in UNLABELLED:
            metadata["labels"] = {MARK: count}
        if meta["uid"] in self._marked and annotation not in meta.get("annotations", {}):
            self.taken_away.append(f"{resource.kind} {meta['name']}")
        path = resource.path(self._namespace, meta["name"])
        if not self._patch(path, {"metadata": metadata}):
            return
        self._marked.add(meta["uid"])
        self.written[resource.kind] += 1
        status = status_of(resource.kind, self._count)
        if status is not None and self._patch(f"{path}/status", {"status": status}):
            self.written[f"{resource.kind}/status"] += 1

    def _listed(self, resource: Resource) -> list[Json]:
        """Objects of the kind; none where the cluster lacks it."""
        selector = {OWNER: "", POD: names.LABEL_DEPLOYMENT}.get(resource, CHILD_SELECTOR)
        found = self._call("GET", f"{resource.path(self._namespace)}?{urlencode({'labelSelector': selector})}")
        return list(found["items"]) if found is not None else []

    def _patch(self, path: str, body: Json) -> bool:
        return self._call("PATCH", f"{path}?fieldManager=platform", body) is not None

    def _call(self, method: str, path: str, body: Json | None = None) -> Any:
        """What the server answered; None where the object or the kind is gone."""
        headers = {"Accept": "application/json", "Content-Type": "application/merge-patch+json"}
        answer = self._api.call_api(method, f"{self._api.configuration.host}{path}", headers, body)
        text = answer.read()
        assert answer.status in (200, 404), f"{method} {path}: {answer.status} {text!r}"
        return json.loads(text) if answer.status == 200 else None
