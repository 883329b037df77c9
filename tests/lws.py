"""A stand-in for the controller of LWS and its webhook for pods, written after what they do (kubernetes-sigs/lws,
commit 060ab4d, pkg/controllers and pkg/webhooks). It is neither; no test here shows that the real ones agree.

Groups are replaced by the StatefulSet of leaders, one after the other: maxSurge and maxUnavailable are not followed.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from threading import Event
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from tests.kserve import gone

from devcluster import Cluster

Json = dict[str, Any]
GROUP = "leaderworkerset.x-k8s.io"
DEFINITION = Path(__file__).parent / "fixtures" / "lws" / "definition.json.gz"
_LABEL = "leaderworkerset.sigs.k8s.io/"
_INDEX = "apps.kubernetes.io/pod-index"


def leaders_of(found: Mapping[str, Any]) -> Json:
    """The StatefulSet of the leaders of a LeaderWorkerSet."""
    spec, name = found["spec"], found["metadata"]["name"]
    template = deepcopy(spec["leaderWorkerTemplate"]["leaderTemplate"])
    labels = {f"{_LABEL}name": name, f"{_LABEL}worker-index": "0"}
    address = f"$(LWS_POD).{name}.{found['metadata']['namespace']}"
    return _stateful(found, name, spec["replicas"], labels, _in_group(template, labels, spec, address, "0"))


def workers_of(found: Mapping[str, Any], leader: Mapping[str, Any]) -> Json:
    """The StatefulSet of the workers of one leader's pod."""
    spec, name = found["spec"], found["metadata"]["name"]
    template = deepcopy(spec["leaderWorkerTemplate"]["workerTemplate"])
    leads = leader["metadata"]["name"]
    labels = {f"{_LABEL}name": name, f"{_LABEL}group-index": leads.rpartition("-")[2]}
    address = f"{leads}.{name}.{found['metadata']['namespace']}"
    template = _in_group(template, labels, spec, address, None)
    made = _stateful(leader, leads, spec["leaderWorkerTemplate"]["size"] - 1, labels, template)
    made["spec"]["ordinals"] = {"start": 1}
    return made


def _in_group(template: Json, labels: Json, spec: Json, address: str, index: str | None) -> Json:
    template["metadata"]["labels"] = {**template["metadata"].get("labels", {}), **labels}
    own = {"fieldRef": {"fieldPath": f"metadata.labels['{_INDEX}']"}}
    env = [
        {"name": "LWS_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "LWS_LEADER_ADDRESS", "value": address},
        {"name": "LWS_GROUP_SIZE", "value": str(spec["leaderWorkerTemplate"]["size"])},
        {"name": "LWS_WORKER_INDEX", **({"value": index} if index is not None else {"valueFrom": own})},
    ]
    for container in template["spec"]["containers"]:
        container["env"] = [*env, *container.get("env", [])]
    return template


def _stateful(owner: Mapping[str, Any], name: str, replicas: int, labels: Json, template: Json) -> Json:
    meta = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    return {
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": meta["namespace"], "labels": labels, "ownerReferences": [reference]},
        "spec": {
            "replicas": replicas, "serviceName": labels[f"{_LABEL}name"], "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels}, "template": template,
        },
    }  # fmt: skip


def status_of(found: Mapping[str, Any], ready: int, updated: int, total: int, since: str) -> Json:
    """What LWS reports of groups."""
    done = updated == total == found["spec"]["replicas"] == ready
    stamp = {"status": "True", "lastTransitionTime": since, "reason": "Groups", "message": ""}
    return {
        "observedGeneration": found["metadata"]["generation"],
        "replicas": total, "readyReplicas": ready, "updatedReplicas": updated,
        "conditions": [{"type": "Available" if done else "Progressing", **stamp}],
    }  # fmt: skip


def definition() -> Json:
    """LWS's definition of LeaderWorkerSet (tests/fixtures/lws)."""
    found: Json = json.loads(gzip.decompress(DEFINITION.read_bytes()))
    return found


def install(cluster: Cluster) -> None:
    """Apply the definition, and wait until it is served."""
    cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(definition()))
    for _ in range(300):
        found = cluster.kubectl("get", "leaderworkersets", "-A", check=False)
        if found.returncode == 0:
            return
        time.sleep(0.2)
    raise AssertionError(f"the kind is not served: {found.stderr}")


class Controller:
    """The stand-in at work in one namespace."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._api = api
        self._custom, self._apps, self._core = (
            client.CustomObjectsApi(api),
            client.AppsV1Api(api),
            client.CoreV1Api(api),
        )
        self._namespace = namespace
        self._made: dict[str, Json] = {}
        self._members: dict[str, set[str]] = {}
        """Pods of each leader's group that were ever seen; by uids. One may end between two looks."""
        self.recreated: list[str] = []
        """Leaders whose groups were recreated."""

    def run(self, stop: Event) -> None:
        """Look at every LeaderWorkerSet again and again."""
        while not stop.wait(0.3):
            listed: Any = self._custom.list_namespaced_custom_object(GROUP, "v1", self._namespace, "leaderworkersets")
            for found in listed["items"]:
                with gone():
                    self.reconcile(found)

    def reconcile(self, found: Json) -> None:
        """One round for one LeaderWorkerSet."""
        name = found["metadata"]["name"]
        self._apply(leaders_of(found))
        pods = self._pods(name)
        leaders = [one for one in pods if one["metadata"]["labels"].get(f"{_LABEL}worker-index") == "0"]
        for leader in leaders:
            if "deletionTimestamp" not in leader["metadata"]:
                self._lead(found, leader, pods)
        self._report(found, leaders)

    def _lead(self, found: Json, leader: Json, pods: list[Json]) -> None:
        name = leader["metadata"]["name"]
        group = [one for one in pods if one is leader or _owner(one) == name]
        restarts = (one.get("restartCount", 0) for pod in group for one in pod["status"].get("containerStatuses", []))
        present = {one["metadata"]["uid"] for one in group}
        members = self._members.setdefault(leader["metadata"]["uid"], set())
        members |= present
        if any(restarts) or members - present or any("deletionTimestamp" in one["metadata"] for one in group):
            self.recreated.append(name)
            only = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=leader["metadata"]["uid"]))
            self._core.delete_namespaced_pod(name, self._namespace, body=only)
            return
        self._apply(workers_of(found, leader))

    def _report(self, found: Json, leaders: list[Json]) -> None:
        name, wanted = found["metadata"]["name"], leaders_of(found)["spec"]["template"]["spec"]["containers"][0]["args"]
        sets = {one["metadata"]["name"]: one for one in self._as_json(
            self._apps.list_namespaced_stateful_set(self._namespace)
        )["items"]}  # fmt: skip
        updated = [one for one in leaders if one["spec"]["containers"][0]["args"] == wanted]
        ready = [one for one in leaders if _is_ready(one) and self._has_workers(sets.get(one["metadata"]["name"]))]
        before = found.get("status", {})
        since = (before.get("conditions") or [{}])[0].get("lastTransitionTime", "")
        status = status_of(found, len(ready), len(updated), len(leaders), since)
        if [one["type"] for one in status["conditions"]] != [one["type"] for one in before.get("conditions", [])]:
            status["conditions"][0]["lastTransitionTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        if status != before:
            self._custom.patch_namespaced_custom_object_status(
                GROUP, "v1", self._namespace, "leaderworkersets", name, {"status": status}
            )

    def _has_workers(self, workers: Json | None) -> bool:
        if workers is None:
            return False
        return bool(workers["status"].get("readyReplicas", 0) == workers["spec"]["replicas"])

    def _apply(self, body: Json) -> None:
        name = body["metadata"]["name"]
        if self._made.get(name) == body:
            return
        try:
            self._apps.patch_namespaced_stateful_set(
                name, self._namespace, body, field_manager="lws", force=True,
                _content_type="application/apply-patch+yaml",
            )  # fmt: skip
        except ApiException as error:
            if error.status not in (409, 422):  # the one of a leader that is gone has not been collected yet
                raise
            return
        self._made[name] = body

    def _pods(self, name: str) -> list[Json]:
        found = self._core.list_namespaced_pod(self._namespace, label_selector=f"{_LABEL}name={name}")
        return [{"apiVersion": "v1", "kind": "Pod", **one} for one in self._as_json(found)["items"]]

    def _as_json(self, found: Any) -> Any:
        return self._api.sanitize_for_serialization(found)


def _owner(pod: Mapping[str, Any]) -> str:
    return next((str(one["name"]) for one in pod["metadata"].get("ownerReferences", [])), "")


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
