"""Environment, command and arguments of a container, as the kubelet computes them. Pure; called by ``container``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from devcluster.options import Image

from .fields import pod_field, resource_field
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
    allocatable: Mapping[str, str]
    objects: Mapping[tuple[str, str], Mapping[str, Any] | None]
    services: Sequence[Mapping[str, Any]] = ()
    api_service: tuple[str, int] | None = None


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
    for source in container.get("envFrom", ()):
        found |= {(kind, source[key]["name"]) for key, kind in _FROM.items() if key in source}
    for entry in container.get("env", ()):
        source = entry.get("valueFrom") or {}
        found |= {(kind, source[key]["name"]) for key, kind in _KEYS.items() if key in source}
    return found


_FROM = {"configMapRef": "ConfigMap", "secretRef": "Secret"}
_KEYS = {"configMapKeyRef": "ConfigMap", "secretKeyRef": "Secret"}


def texts(kind: str, found: Mapping[str, Any]) -> dict[str, str]:
    """The text entries of a ConfigMap or Secret."""
    entries = contents(kind, {**found, "binaryData": {}})
    return {key: value.decode(errors="surrogateescape") for key, value in entries.items()}


def build(container: Mapping[str, Any], image: Image, scope: Scope) -> dict[str, str]:
    """The complete environment. Raises EnvError or fields.FieldError."""
    spec = scope.pod["spec"]
    values = {"PATH": DEFAULT_PATH, "HOME": "/root", "HOSTNAME": hostname(scope.pod), **image.env}
    values |= service_links(scope)
    for source in container.get("envFrom", ()):
        values |= _from_object(source, scope)
    for entry in container.get("env", ()):
        name = entry["name"]
        if "valueFrom" not in entry:
            values[name] = expand(entry.get("value", ""), values)
            continue
        value = _value_from(entry["valueFrom"], container["name"], spec, scope)
        if value is not None:
            values[name] = value
    return values


def hostname(pod: Mapping[str, Any]) -> str:
    """The host name inside the pod, 63 characters at most."""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63]


def _from_object(source: Mapping[str, Any], scope: Scope) -> dict[str, str]:
    prefix = source.get("prefix", "")
    for key, kind in _FROM.items():
        if key in source:
            reference = source[key]
            found = _object(kind, reference, scope)
            return {} if found is None else {prefix + name: text for name, text in texts(kind, found).items()}
    return {}


def _object(kind: str, reference: Mapping[str, Any], scope: Scope) -> Mapping[str, Any] | None:
    found = scope.objects.get((kind, reference["name"]))
    if found is None and not reference.get("optional"):
        raise EnvError(f'{kind.lower()} "{reference["name"]}" not found')
    return found


def _value_from(source: Mapping[str, Any], container: str, spec: Mapping[str, Any], scope: Scope) -> str | None:
    if "fieldRef" in source:
        return pod_field(scope.pod, source["fieldRef"]["fieldPath"], scope.address, scope.node_address)
    if "resourceFieldRef" in source:
        return resource_field(spec, source["resourceFieldRef"], scope.allocatable, container)
    for key, kind in _KEYS.items():
        if key in source:
            reference = source[key]
            found = _object(kind, reference, scope)
            entries = texts(kind, found) if found is not None else {}
            if reference["key"] not in entries and not reference.get("optional"):
                where = f"{kind} {scope.pod['metadata']['namespace']}/{reference['name']}"
                raise EnvError(f"couldn't find key {reference['key']} in {where}")
            return entries.get(reference["key"])
    raise EnvError(
        f"valueFrom {sorted(source)} is not supported; use fieldRef, resourceFieldRef, configMapKeyRef or secretKeyRef"
    )


def service_links(scope: Scope) -> dict[str, str]:
    """Variables that tell of services: always the API server's, those of the pod's namespace unless links are off."""
    values: dict[str, str] = {}
    if scope.pod["spec"].get("enableServiceLinks", True):
        for service in sorted(scope.services, key=lambda s: str(s["metadata"]["name"])):
            values |= _links(service)
    if scope.api_service is not None:
        host, port = scope.api_service
        values |= _link_set("KUBERNETES", host, [{"port": port, "name": "https"}])
    return values


def _links(service: Mapping[str, Any]) -> dict[str, str]:
    spec = service["spec"]
    address = spec.get("clusterIP")
    if not address or address == "None" or not spec.get("ports"):
        return {}
    return _link_set(service["metadata"]["name"].upper().replace("-", "_"), address, spec["ports"])


def _link_set(name: str, host: str, ports: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    first = ports[0]
    scheme = first.get("protocol", "TCP").lower()
    values = {
        f"{name}_SERVICE_HOST": host,
        f"{name}_SERVICE_PORT": str(first["port"]),
        f"{name}_PORT": f"{scheme}://{host}:{first['port']}",
    }
    for port in ports:
        if port.get("name"):
            values[f"{name}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}"] = str(port["port"])
        protocol = port.get("protocol", "TCP")
        head = f"{name}_PORT_{port['port']}_{protocol}"
        values |= {
            head: f"{protocol.lower()}://{host}:{port['port']}",
            f"{head}_PROTO": protocol.lower(),
            f"{head}_PORT": str(port["port"]),
            f"{head}_ADDR": host,
        }
    return values
