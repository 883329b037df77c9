"""Which folders of caches pods load from, counted by namespace: kept by `cache`, so that no Job tidies them away.

Status says it too, but can be wiped, hand-edited or written by another release, and its object may be gone before its
pods are. What stands in a template is what an engine looks for when it is started again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from speculative_operator.reconcile.choices import folders
from speculative_operator.shell.resources import DEPLOYMENT

_NOTHING: tuple[str, frozenset[str]] = "", frozenset()


class Loads:
    """Folders of caches that serving pods and Deployments use; a Deployment may have no pod at the moment."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[str, frozenset[str]]] = {}
        """uid -> namespace and folders, for pods and Deployments that use any."""
        self._count: dict[str, Counter[str]] = {}

    def note(self, body: Mapping[str, Any]) -> None:
        """Count the folders that this version of a serving pod or Deployment loads from."""
        meta = body["metadata"]
        if body["kind"] == DEPLOYMENT.kind:
            found = folders((body.get("spec") or {}).get("template") or {})
        else:
            # What a pod loads from never changes.
            found = self._of[meta["uid"]][1] if meta["uid"] in self._of else folders(body)
        if self._of.get(meta["uid"], _NOTHING)[1] == found:
            return
        self.forget(meta["uid"])
        if found:
            self._of[meta["uid"]] = (meta["namespace"], found)
            self._count.setdefault(meta["namespace"], Counter()).update(found)

    def forget(self, uid: str) -> None:
        """Forget the folders of a pod or Deployment that is gone."""
        namespace, found = self._of.pop(uid, _NOTHING)
        if found:
            count = self._count[namespace]
            count.subtract(found)
            self._count[namespace] = +count

    def within(self, namespace: str) -> Collection[str]:
        """Folders of caches that a pod or Deployment of the namespace loads from."""
        return self._count.get(namespace, Counter()).keys()
