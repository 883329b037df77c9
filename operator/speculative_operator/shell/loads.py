"""Which folders of caches are in use. Kept by `cache`, for objects that it does not keep as well."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from typing import Any

from speculative_operator.reconcile.pair.pinning import VERSION_FOLDER
from speculative_operator.shell.bodies import Body
from speculative_operator.shell.resources import DEPLOYMENT


class Loads:
    """Folders of caches that serving pods and Deployments use, counted by namespace, so that no Job tidies them away.

    Status says it too, but can be wiped, hand-edited or written by another release, and its object may be gone before
    its pods are. What stands in a template is what an engine looks for when it is started again: a Deployment may have
    no pod at the moment.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[Body, frozenset[str]]] = {}
        """uid -> what identifies the pod or Deployment, and its folders, for those that use any."""
        self._count: dict[str, Counter[str]] = {}

    def note(self, body: Body) -> None:
        """Count the folders that this version of a serving pod or Deployment loads from."""
        meta = body["metadata"]
        if body["kind"] == DEPLOYMENT.kind:
            found = folders((body.get("spec") or {}).get("template") or {})
        else:
            # What a pod loads from never changes.
            found = self._of[meta["uid"]][1] if meta["uid"] in self._of else folders(body)
        if meta["uid"] in self._of and self._of[meta["uid"]][1] == found:
            return
        self.forget(meta["uid"])
        if found:
            which = {name: meta.get(name, "") for name in ("name", "namespace", "uid", "resourceVersion")}
            self._of[meta["uid"]] = ({"kind": body["kind"], "metadata": which}, found)
            self._count.setdefault(meta["namespace"], Counter()).update(found)

    def forget(self, uid: str) -> None:
        """Forget the folders of a pod or Deployment that is gone."""
        if uid in self._of:
            body, found = self._of.pop(uid)
            count = self._count[body["metadata"]["namespace"]]
            count.subtract(found)
            self._count[body["metadata"]["namespace"]] = +count

    def noted(self, kind: str) -> dict[str, Body]:
        """uid -> what identifies each object of one kind that loads from folders."""
        return {uid: body for uid, (body, _) in self._of.items() if body["kind"] == kind}

    def within(self, namespace: str) -> Collection[str]:
        """Folders of caches that a pod or Deployment of the namespace loads from."""
        return self._count.get(namespace, Counter()).keys()


def folders(template: Body) -> frozenset[str]:
    """Folders of caches that pods of `template`, or a pod itself, load models from: whatever status says, they need
    them when their engine is started again."""
    parts: list[Any] = [(template.get("metadata") or {}).get("annotations"), template.get("spec")]
    return frozenset(found.rpartition("/")[2] for found in VERSION_FOLDER.findall(json.dumps(parts, default=str)))
