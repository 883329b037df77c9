"""Environment, command and arguments of a container, as the kubelet computes them. Pure; called by ``container``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from devcluster.options import Image

from .fields import pod_field
from .payloads import contents

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class EnvError(ValueError):
    """A value that an environment variable refers to does not exist; the text is the kubelet's."""


@dataclass(frozen=True)
class Scope:
    """Everything an environment can refer to. `objects`: ConfigMaps and Secrets by (kind, name), None if absent."""

    pod: Mapping[str, Any]
    address: str
    node_address: str
    objects: Mapping[tuple[str, str], Mapping[str, Any] | None]
    api_host: str


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace ``$(NAME)``; ``$$`` is an escaped dollar; what is unknown stays as it is written."""
    out: list[str] = []
    at = 0
    while at < len(text):
        following = text[at + 1 : at + 2]
        end = text.find(")", at + 2) if following == "(" else -1
        if text[at] != "$" or (following != "$" and end < 0):
            out.append(text[at])
            at += 1
        elif following == "$":
            out.append("$")
            at += 2
        else:
            name = text[at + 2 : end]
            out.append(values.get(name, text[at : end + 1]))
            at = end + 1
    return "".join(out)


def command(container: Mapping[str, Any], image: Image, values: Mapping[str, str]) -> list[str]:
    """The argument list: ``command`` replaces the image's entrypoint, ``args`` follow."""
    given = container.get("command")
    head = [expand(part, values) for part in given] if given else list(image.entrypoint)
    return head + [expand(part, values) for part in container.get("args") or ()]


def referenced(container: Mapping[str, Any]) -> set[tuple[str, str]]:
    """The (kind, name) of every ConfigMap and Secret that the environment refers to."""
    found = set()
    for entry in container.get("env", ()):
        source = entry.get("valueFrom") or {}
        found |= {(kind, source[key]["name"]) for key, kind in _KEYS.items() if key in source}
    return found


_KEYS = {"configMapKeyRef": "ConfigMap", "secretKeyRef": "Secret"}


def build(container: Mapping[str, Any], image: Image, scope: Scope) -> dict[str, str]:
    """The complete environment. Raises EnvError or fields.FieldError."""
    values = {"PATH": DEFAULT_PATH, "HOME": "/root", "HOSTNAME": hostname(scope.pod), **image.env}
    values |= {"KUBERNETES_SERVICE_HOST": scope.api_host, "KUBERNETES_SERVICE_PORT": "443"}
    if container.get("envFrom"):
        raise EnvError("envFrom is not supported by the process node; use env")
    for entry in container.get("env", ()):
        name = entry["name"]
        if "valueFrom" not in entry:
            values[name] = expand(entry.get("value", ""), values)
            continue
        value = _value_from(entry["valueFrom"], scope)
        if value is not None:
            values[name] = value
    return values


def hostname(pod: Mapping[str, Any]) -> str:
    """The host name inside the pod, 63 characters at most."""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63]


def _object(kind: str, reference: Mapping[str, Any], scope: Scope) -> Mapping[str, Any] | None:
    found = scope.objects.get((kind, reference["name"]))
    if found is None and not reference.get("optional"):
        raise EnvError(f'{kind.lower()} "{reference["name"]}" not found')
    return found


def _value_from(source: Mapping[str, Any], scope: Scope) -> str | None:
    if "fieldRef" in source:
        return pod_field(scope.pod, source["fieldRef"]["fieldPath"], scope.address, scope.node_address)
    for key, kind in _KEYS.items():
        if key in source:
            reference = source[key]
            found = _object(kind, reference, scope)
            entries = contents(kind, found) if found is not None else {}
            if reference["key"] not in entries and not reference.get("optional"):
                where = f"{kind} {scope.pod['metadata']['namespace']}/{reference['name']}"
                raise EnvError(f"couldn't find key {reference['key']} in {where}")
            data = entries.get(reference["key"])
            return None if data is None else data.decode(errors="surrogateescape")
    raise EnvError(f"valueFrom {sorted(source)} is not supported; use fieldRef, configMapKeyRef or secretKeyRef")
