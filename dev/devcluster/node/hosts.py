"""Names without a DNS server: a hosts file per pod, kept up to date with services and their endpoints.

A service is known as ``svc`` in its own namespace, ``svc.ns``, ``svc.ns.svc`` and ``svc.ns.svc.cluster.local``
everywhere; a headless one resolves to its ready pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOMAIN = "cluster.local"
RESOLV = (
    "# names come from /etc/hosts; there is no DNS server in the development cluster\noptions timeout:1 attempts:1\n"
)


@dataclass(frozen=True)
class Name:
    """One name of a namespace: `label` is what stands before ``.namespace.svc.cluster.local``."""

    address: str
    label: str
    namespace: str

    def line(self, namespace: str) -> str:
        """The hosts line, as seen from a namespace."""
        long = f"{self.label}.{self.namespace}"
        names = [f"{long}.svc.{DOMAIN}", f"{long}.svc", long]
        return "\t".join([self.address, *names, *([self.label] if self.namespace == namespace else [])])


def names(services: Iterable[Mapping[str, Any]], slices: Iterable[Mapping[str, Any]]) -> list[Name]:
    """All names that services give, sorted."""
    found: set[Name] = set()
    headless = set()
    for service in services:
        meta, address = service["metadata"], service["spec"].get("clusterIP")
        if address == "None":
            headless.add((meta["namespace"], meta["name"]))
        elif address:
            found.add(Name(address, meta["name"], meta["namespace"]))
    for part in slices:
        meta = part["metadata"]
        service_name = (meta.get("labels") or {}).get("kubernetes.io/service-name", "")
        if (meta["namespace"], service_name) in headless:
            found |= _headless(part, service_name)
    return sorted(found, key=lambda n: (n.namespace, n.label, n.address))


def _headless(part: Mapping[str, Any], service: str) -> set[Name]:
    namespace = part["metadata"]["namespace"]
    ready = (one for one in part.get("endpoints") or () if (one.get("conditions") or {}).get("ready", True))
    return {Name(address, service, namespace) for one in ready for address in one["addresses"]}


def render(own: Sequence[str], known: Iterable[Name], namespace: str) -> str:
    """The text of a hosts file: the pod's own lines first."""
    head = ["127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback", *own]
    return "\n".join([*head, *(name.line(namespace) for name in known)]) + "\n"


@dataclass(frozen=True)
class _Entry:
    path: Path
    namespace: str
    own: tuple[str, ...]


class Hosts:
    """The hosts files of the pods of this node."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._names: list[Name] = []

    def add(self, uid: str, path: Path, namespace: str, own: Sequence[str]) -> None:
        """Write a pod's file and keep it up to date from now on."""
        self._entries[uid] = _Entry(path, namespace, tuple(own))
        self._write(self._entries[uid])

    def remove(self, uid: str) -> None:
        self._entries.pop(uid, None)

    def update(self, services: Iterable[Mapping[str, Any]], slices: Iterable[Mapping[str, Any]]) -> None:
        """Rewrite the files when names have changed."""
        fresh = names(services, slices)
        if fresh == self._names:
            return
        self._names = fresh
        for entry in self._entries.values():
            self._write(entry)

    def _write(self, entry: _Entry) -> None:
        # In place: containers have this very file mounted and would not see one that replaces it.
        with entry.path.open("r+b" if entry.path.exists() else "wb") as file:
            file.write(render(entry.own, self._names, entry.namespace).encode())
            file.truncate()
